// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_PER_HEAD_HPP
#define POSENC_ENCODING_PER_HEAD_HPP

#include <type_traits>
#include <utility>
#include <vector>

#include "concepts.hpp"
#include "diagnostics.hpp"
#include "place_list.hpp"
#include "rotated_dims.hpp"

namespace posenc::inline POSENC_ABI {

namespace detail {

template <class E>
consteval bool check_per_head_encoding() {
  if constexpr (check_is_encoding<E>()) {
    static_assert(
        !acts_on<E, on_inputs>,
        "posenc: per_head takes encodings for posenc::attention; one that acts on inputs (sinusoidal, learned) "
        "is added to whole embeddings, before there are heads");
    return !acts_on<E, on_inputs>;
  }
  return false;
}

/// Whether an encoding really rotates or really adds biases: one whose type is chosen at run time may do neither.
template <class E>
bool really_rotates(const E& encoding) noexcept {
  if constexpr (requires { encoding.rotates(); }) {
    return encoding.rotates();
  } else {
    return acts_on<E, on_queries_keys>;
  }
}
template <class E>
bool really_biases(const E& encoding) noexcept {
  if constexpr (requires { encoding.biases(); }) {
    return encoding.biases();
  } else {
    return acts_on<E, on_scores>;
  }
}

/// The rows of all heads, one after another, behind a header that says where each begins.
template <class Wrapper, bool Listed>
struct rotation_per_head {};
template <class Wrapper>
struct rotation_per_head<Wrapper, true> {
  index_t rotation_size(rotation_shape shape) const {
    index_t size = header();
    for (const auto& encoding : encodings()) size += encoding.rotation_size(shape);
    return size;
  }

  template <class Real>
  void prepare_rotation(rotation_shape shape, position_span position, rotation_use use, Real* row) const {
    index_t begin = header(), head = 0;
    for (index_t i = 0; i < begin; ++i) row[i] = Real(0);
    for (const auto& encoding : encodings()) {
      row[head++] = static_cast<Real>(begin);  // exact: rows have far fewer than 2^24 numbers
      encoding.prepare_rotation(shape, position, use, row + begin);
      begin += encoding.rotation_size(shape);
    }
  }

  template <class Real>
  void apply_rotation(rotation_shape shape, const Real* row, index_t kv_head, Real* x) const {
    encodings()[static_cast<std::size_t>(kv_head)].apply_rotation(shape, row + static_cast<index_t>(row[kv_head]),
                                                                  kv_head, x);
  }

  dim_range rotated_dims(rotation_shape shape) const {
    dim_range all;
    for (const auto& encoding : encodings()) all = hull(all, rotated_dims_of(encoding, shape));
    return all;
  }

 private:
  const auto& encodings() const noexcept { return static_cast<const Wrapper*>(this)->encodings(); }
  /// Whole registers, so that the rows behind it are as aligned as this one.
  index_t header() const noexcept { return (static_cast<index_t>(encodings().size()) + 15) / 16 * 16; }
};

}  // namespace detail

/// What `per_head` returns.
template <class E>
class per_head_encoding : public detail::rotation_per_head<per_head_encoding<E>, acts_on<E, on_queries_keys>>,
                          public detail::bias_of_one<per_head_encoding<E>, acts_on<E, on_scores>> {
 public:
  using acts_on = detail::places_where<false, posenc::acts_on<E, on_queries_keys>, posenc::acts_on<E, on_scores>>;
  static constexpr bool rotation_depends_on_role = detail::depends_on_role<E>();

  /// Errors: invalid_shape for no encodings.
  explicit per_head_encoding(std::vector<E> encodings) : encodings_(std::move(encodings)) {
    if (encodings_.empty()) raise(make_error(errc::invalid_shape, "count", "is 0; allowed: 1 and more heads"));
  }

  const std::vector<E>& encodings() const noexcept { return encodings_; }
  /// Encodings that add no biases may be fewer than the query heads: then any one answers.
  const E& of_query_head(index_t head) const noexcept {
    return encodings_[static_cast<std::size_t>(head) < encodings_.size() ? static_cast<std::size_t>(head) : 0];
  }

  maybe_error check(const encoding_use& use) const noexcept {
    const auto count = static_cast<index_t>(encodings_.size());
    bool rotates = false, biases = false;
    for (const E& encoding : encodings_) {
      rotates = rotates || detail::really_rotates(encoding);
      biases = biases || detail::really_biases(encoding);
    }
    if (rotates)
      if (use.kv_heads != 0 && use.kv_heads != count)
        return make_error(
            errc::invalid_shape, "encoding",
            "per_head was made for %td heads; it rotates, and the call has %td key and value heads; allowed: "
            "equal",
            count, use.kv_heads);
    if (biases)
      if (use.heads != 0 && use.heads != count)
        return make_error(
            errc::invalid_shape, "encoding",
            "per_head was made for %td heads; it adds biases, and the call has %td query heads; allowed: equal", count,
            use.heads);
    for (const E& encoding : encodings_)
      if (maybe_error e = detail::check_encoding(encoding, use)) return e;
    return {};
  }

 private:
  std::vector<E> encodings_;
};

/// A choice for each head: f(0), ..., f(count - 1) are called once, here, and return encodings of one type. Rotations are
/// chosen by the key and value head, whose queries share it, so `count` is their number; biases by the query head, so
/// `count` is the number of those. An encoding that does both needs as many of either. Each sees the head's own number.
/// Errors: invalid_shape for count < 1; those of f.
template <class F>
auto per_head(index_t count, F&& f) {
  using E = std::decay_t<std::invoke_result_t<F&, index_t>>;
  if constexpr (detail::check_per_head_encoding<E>()) {
    if (count < 1) raise(make_error(errc::invalid_shape, "count", "is %td; allowed: 1 and more heads", count));
    std::vector<E> encodings;
    encodings.reserve(static_cast<std::size_t>(count));
    for (index_t head = 0; head < count; ++head) encodings.push_back(f(head));
    return per_head_encoding<E>(std::move(encodings));
  }
}

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_PER_HEAD_HPP
