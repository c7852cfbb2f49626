// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_COMBINE_HPP
#define POSENC_ENCODING_COMBINE_HPP

#include <array>
#include <limits>
#include <span>
#include <tuple>
#include <utility>

#include "concepts.hpp"
#include "diagnostics.hpp"
#include "place_list.hpp"
#include "rotated_dims.hpp"

namespace posenc::inline POSENC_ABI {

namespace detail {

/// f(part) for the parts that act on the place, in order.
template <class Place, class... Es, class F>
POSENC_ALWAYS_INLINE void for_parts(const std::tuple<Es...>& parts, F&& f) {
  std::apply(
      [&](const Es&... part) POSENC_INLINE_LAMBDA {
        const auto visit = [&](const auto& one) POSENC_INLINE_LAMBDA {
          if constexpr (acts_on<std::remove_cvref_t<decltype(one)>, Place>) f(one);
        };
        (visit(part), ...);
      },
      parts);
}

template <class Combined, bool Listed>
struct combined_inputs {};
template <class Combined>
struct combined_inputs<Combined, true> {
  template <class Real>
  void add_position(position_span position, std::span<Real> x) const {
    for_parts<on_inputs>(static_cast<const Combined*>(this)->parts(),
                         [&](const auto& part) { part.add_position(position, x); });
  }
};

/// Each part has its own stretch of the row, one after another.
template <class Combined, bool Listed>
struct combined_rotations {};
template <class Combined>
struct combined_rotations<Combined, true> {
  index_t rotation_size(rotation_shape shape) const {
    index_t size = 0;
    for_parts<on_queries_keys>(parts(), [&](const auto& part) { size += part.rotation_size(shape); });
    return size;
  }

  template <class Real>
  void prepare_rotation(rotation_shape shape, position_span position, rotation_use use, Real* row) const {
    for_parts<on_queries_keys>(parts(), [&](const auto& part) {
      part.prepare_rotation(shape, position, use, row);
      row += part.rotation_size(shape);
    });
  }

  template <class Real>
  void apply_rotation(rotation_shape shape, const Real* row, index_t kv_head, Real* x) const {
    for_parts<on_queries_keys>(parts(), [&](const auto& part) {
      part.apply_rotation(shape, row, kv_head, x);
      row += part.rotation_size(shape);
    });
  }

  dim_range rotated_dims(rotation_shape shape) const {
    dim_range all;
    for_parts<on_queries_keys>(parts(), [&](const auto& part) { all = hull(all, rotated_dims_of(part, shape)); });
    return all;
  }

 private:
  const auto& parts() const noexcept { return static_cast<const Combined*>(this)->parts(); }
};

template <class Combined, bool Listed>
struct combined_biases {};
template <class Combined>
struct combined_biases<Combined, true> {
  template <class Keys>
  typename Keys::value_type bias(const Keys& keys, index_t head) const {
    typename Keys::value_type sum(0);
    for_parts<on_scores>(static_cast<const Combined*>(this)->parts(), [&](const auto& part) POSENC_INLINE_LAMBDA {
      sum = sum + typename Keys::value_type(part.bias(keys, head));
    });
    return sum;
  }
};

/// A sum of biases is bounded where all of them are.
template <class Combined, bool Bounded>
struct combined_bounds {};
template <class Combined>
struct combined_bounds<Combined, true> {
  double largest_bias(double low, double high, index_t head) const {
    double sum = 0;
    bool one_axis = true;
    for_parts<on_scores>(parts(), [&](const auto& part) {
      sum += part.largest_bias(low, high, head);
      one_axis = one_axis && part.bias_axis() == bias_axis();
    });
    return one_axis ? sum : (std::numeric_limits<double>::max)();  // distances on one axis do not bound all of them
  }
  index_t bias_axis() const {
    index_t first = -1;
    for_parts<on_scores>(parts(), [&](const auto& part) { first = first < 0 ? part.bias_axis() : first; });
    return first;
  }

 private:
  const auto& parts() const noexcept { return static_cast<const Combined*>(this)->parts(); }
};

template <class... Es>
inline constexpr bool all_biases_bounded = ((!acts_on<Es, on_scores> || bounded_bias<Es>) && ...);

template <class Place, class... Es>
inline constexpr bool any_acts_on = (acts_on<Es, Place> || ...);

}  // namespace detail

/// What `combine` returns: an encoding that acts wherever one of its parts does.
template <class... Es>
class combined : public detail::combined_inputs<combined<Es...>, detail::any_acts_on<on_inputs, Es...>>,
                 public detail::combined_rotations<combined<Es...>, detail::any_acts_on<on_queries_keys, Es...>>,
                 public detail::combined_biases<combined<Es...>, detail::any_acts_on<on_scores, Es...>>,
                 public detail::combined_bounds<combined<Es...>, detail::any_acts_on<on_scores, Es...> &&
                                                                     detail::all_biases_bounded<Es...>> {
 public:
  using acts_on =
      detail::places_where<detail::any_acts_on<on_inputs, Es...>, detail::any_acts_on<on_queries_keys, Es...>,
                           detail::any_acts_on<on_scores, Es...>>;
  static constexpr bool rotation_depends_on_role = (detail::depends_on_role<Es>() || ...);

  explicit combined(std::tuple<Es...> parts) : parts_(std::move(parts)) {}

  const std::tuple<Es...>& parts() const noexcept { return parts_; }

  maybe_error check(const encoding_use& use) const noexcept {
    maybe_error result;
    std::apply(
        [&](const Es&... part) {
          static_cast<void>(((result = detail::check_encoding(part, use)).has_value() || ...));
        },
        parts_);
    if (!result) result = check_rotations({use.dim, use.kv_heads});
    return result;
  }

 private:
  maybe_error check_rotations(rotation_shape shape) const noexcept {
    std::array<dim_range, sizeof...(Es) + 1> turned{};
    std::size_t count = 0;
    detail::for_parts<on_queries_keys>(
        parts_, [&](const auto& part) { turned[count++] = detail::rotated_dims_of(part, shape); });
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t j = i + 1; j < count; ++j)
        if (detail::meet(turned[i], turned[j]))
          return make_error(
              errc::mismatch, "encoding",
              "combine has two rotations that turn the same dimensions: [%td, %td) and [%td, %td); allowed: "
              "rotations of disjoint dimensions (a rotation says which by rotated_dims, else it is all)",
              turned[i].begin, turned[i].end, turned[j].begin, turned[j].end);
    return {};
  }

  std::tuple<Es...> parts_;
};

namespace detail {

template <class E>
std::tuple<E> parts_of(E&& e) {
  return std::tuple<E>(std::move(e));
}
template <class... Es>
std::tuple<Es...> parts_of(combined<Es...>&& e) {
  return e.parts();
}

template <class... Es>
combined<Es...> combined_of(std::tuple<Es...> parts) {
  return combined<Es...>(std::move(parts));
}

template <class... Es>
consteval bool check_combination() {
  constexpr bool apart =
      !any_acts_on<on_inputs, Es...> || !(any_acts_on<on_queries_keys, Es...> || any_acts_on<on_scores, Es...>);
  static_assert(apart,
                "posenc: combine takes encodings that act on inputs (for posenc::add_positions) or encodings for "
                "posenc::attention, not both: call add_positions with the first and pass the others to attention");
  return apart;
}

}  // namespace detail

/// Several encodings as one. Inputs get all positions added, in order; rotations turn disjoint dimensions of a head;
/// biases add. Combinations within combinations are flattened. Parts are copied.
///
/// Errors are those of the parts, found when it is used, and mismatch where two rotations turn the same dimension.
template <class... Es>
auto combine(Es... parts) {
  if constexpr ((detail::check_is_encoding<Es>() && ...)) {
    if constexpr (detail::check_combination<Es...>())
      return detail::combined_of(std::tuple_cat(detail::parts_of(std::move(parts))...));
  }
}

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_COMBINE_HPP
