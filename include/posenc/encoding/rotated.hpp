// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_ROTATED_HPP
#define POSENC_ENCODING_ROTATED_HPP

#include <utility>

#include "concepts.hpp"
#include "diagnostics.hpp"
#include "place_list.hpp"
#include "rotated_dims.hpp"

/// Encodings for queries and keys that are rotated already, in an own cache or by posenc::rotate.
namespace posenc::inline POSENC_ABI {

/// What `rotated` returns.
template <class E>
class rotated_encoding : public detail::bias_of_one<rotated_encoding<E>, acts_on<E, on_scores>>,
                         public detail::bound_of_one<rotated_encoding<E>, detail::bounds_its_biases<E>> {
 public:
  using acts_on = detail::places_where<false, false, posenc::acts_on<E, on_scores>>;

  explicit rotated_encoding(E encoding) : encoding_(std::move(encoding)) {}

  const E& of_query_head(index_t) const noexcept { return encoding_; }
  maybe_error check(const encoding_use& use) const noexcept { return detail::check_encoding(encoding_, use); }

  /// An encoding chosen at run time is reached directly.
  template <class Real>
    requires requires(const E& e) { e.template erased<Real>(); }
  auto erased() const noexcept {
    auto policy = encoding_.template erased<Real>();
    policy.rotation = nullptr;
    return policy;
  }

 private:
  E encoding_;
};

/// The encoding without its rotations: queries and keys are rotated already, attention only adds the biases.
template <class E>
auto rotated(E encoding) {
  if constexpr (detail::check_attention_encoding<E>()) return rotated_encoding<E>(std::move(encoding));
}

namespace detail {

/// The row is that of the encoding and then one number: 1 to turn, 0 to leave alone.
template <class Wrapper, bool Listed>
struct rotation_of_queries {};
template <class Wrapper>
struct rotation_of_queries<Wrapper, true> {
  static constexpr bool leaves_keys = true;  ///< attention need not look at them, and reads them where they lie

  index_t rotation_size(rotation_shape shape) const {
    const index_t size = inner().rotation_size(shape);
    return size == 0 ? 0 : size + 1;
  }

  template <class Real>
  void prepare_rotation(rotation_shape shape, position_span position, rotation_use use, Real* row) const {
    const index_t size = inner().rotation_size(shape);
    if (size == 0) return;
    const bool turns = use.role == token_role::query;
    if (turns) {
      inner().prepare_rotation(shape, position, use, row);
    } else {
      for (index_t i = 0; i < size; ++i) row[i] = Real(0);
    }
    row[size] = turns ? Real(1) : Real(0);
  }

  template <class Real>
  void apply_rotation(rotation_shape shape, const Real* row, index_t kv_head, Real* x) const {
    const index_t size = inner().rotation_size(shape);
    if (size != 0 && row[size] != Real(0)) inner().apply_rotation(shape, row, kv_head, x);
  }

  dim_range rotated_dims(rotation_shape shape) const { return rotated_dims_of(inner(), shape); }

 private:
  const auto& inner() const noexcept { return static_cast<const Wrapper*>(this)->of_query_head(0); }
};

}  // namespace detail

/// What `rotated_keys` returns.
template <class E>
class rotated_keys_encoding : public detail::rotation_of_queries<rotated_keys_encoding<E>, acts_on<E, on_queries_keys>>,
                              public detail::bias_of_one<rotated_keys_encoding<E>, acts_on<E, on_scores>>,
                              public detail::bound_of_one<rotated_keys_encoding<E>, detail::bounds_its_biases<E>> {
 public:
  using acts_on = detail::places_where<false, posenc::acts_on<E, on_queries_keys>, posenc::acts_on<E, on_scores>>;

  explicit rotated_keys_encoding(E encoding) : encoding_(std::move(encoding)) {}

  const E& of_query_head(index_t) const noexcept { return encoding_; }
  maybe_error check(const encoding_use& use) const noexcept { return detail::check_encoding(encoding_, use); }

 private:
  E encoding_;
};

/// The encoding for keys that are rotated already, as an own cache holds them: attention turns the queries only.
template <class E>
auto rotated_keys(E encoding) {
  if constexpr (detail::check_attention_encoding<E>()) return rotated_keys_encoding<E>(std::move(encoding));
}

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_ROTATED_HPP
