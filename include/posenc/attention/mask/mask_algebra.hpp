// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_MASK_MASK_ALGEBRA_HPP
#define POSENC_ATTENTION_MASK_MASK_ALGEBRA_HPP

#include <algorithm>

#include "concepts.hpp"

namespace posenc::inline POSENC_ABI {

/// Visible where both masks say so.
template <attention_mask A, attention_mask B>
struct and_mask {
  static constexpr bool per_head = is_per_head<A> || is_per_head<B>;
  A a;
  B b;

  constexpr bool visible(const token& q, const token& k) const { return a.visible(q, k) && b.visible(q, k); }
  constexpr visibility classify(const token_block& q, const token_block& k) const {
    const visibility x = a.classify(q, k), y = b.classify(q, k);
    if (x == visibility::none || y == visibility::none) return visibility::none;
    return x == visibility::all && y == visibility::all ? visibility::all : visibility::some;
  }
  constexpr order_interval interval(double order) const
    requires interval_mask<A> && interval_mask<B>
  {
    const order_interval x = a.interval(order), y = b.interval(order);
    return {(std::max)(x.first, y.first), (std::min)(x.last, y.last)};
  }
  maybe_error check(const mask_use& use) const noexcept {
    if (maybe_error e = detail::check_mask(a, use)) return e;
    return detail::check_mask(b, use);
  }
};

/// Visible where either mask says so.
template <attention_mask A, attention_mask B>
struct or_mask {
  static constexpr bool per_head = is_per_head<A> || is_per_head<B>;
  A a;
  B b;

  constexpr bool visible(const token& q, const token& k) const { return a.visible(q, k) || b.visible(q, k); }
  constexpr visibility classify(const token_block& q, const token_block& k) const {
    const visibility x = a.classify(q, k), y = b.classify(q, k);
    if (x == visibility::all || y == visibility::all) return visibility::all;
    return x == visibility::none && y == visibility::none ? visibility::none : visibility::some;
  }
  maybe_error check(const mask_use& use) const noexcept {
    if (maybe_error e = detail::check_mask(a, use)) return e;
    return detail::check_mask(b, use);
  }
};

/// Visible where the mask says not. Documents and padding restrict all the same.
template <attention_mask A>
struct not_mask {
  static constexpr bool per_head = is_per_head<A>;
  A a;

  constexpr bool visible(const token& q, const token& k) const { return !a.visible(q, k); }
  constexpr visibility classify(const token_block& q, const token_block& k) const {
    const visibility x = a.classify(q, k);
    return x == visibility::all ? visibility::none : x == visibility::none ? visibility::all : visibility::some;
  }
  maybe_error check(const mask_use& use) const noexcept { return detail::check_mask(a, use); }
};

template <attention_mask A, attention_mask B>
constexpr and_mask<A, B> operator&(A a, B b) {
  return {a, b};
}
template <attention_mask A, attention_mask B>
constexpr or_mask<A, B> operator|(A a, B b) {
  return {a, b};
}
template <attention_mask A>
constexpr not_mask<A> operator!(A a) {
  return {a};
}

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ATTENTION_MASK_MASK_ALGEBRA_HPP
