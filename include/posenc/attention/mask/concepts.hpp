// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_MASK_CONCEPTS_HPP
#define POSENC_ATTENTION_MASK_CONCEPTS_HPP

#include <concepts>
#include <cstdint>
#include <span>

#include "../../core/error.hpp"
#include "../../core/platform.hpp"

/// A mask says which keys a query sees. It reads order and document of the tokens, never their position, and has two
/// members: `visible` for one query and one key, and `classify` for many queries against a block of keys, so that blocks
/// that are seen wholly or not at all cost nothing. Documents always restrict in addition to the mask.
namespace posenc::inline POSENC_ABI {

/// What masks know of one token.
struct token {
  double order = 0;
  std::int64_t document = 0;
  index_t index = 0;  ///< in its row of the tensor
  index_t batch = 0;
  index_t head = 0;                    ///< query head, on both sides
  std::span<const double> position{};  ///< one number an axis; for predicates of the user
};

/// What masks know of several tokens: the smallest and the largest order, and the range of indices [begin, end).
struct token_block {
  double first_order = 0, last_order = 0;
  index_t begin = 0, end = 0;
  index_t batch = 0;
  index_t head = 0;
};

/// How much of a block of keys a range of queries sees.
enum class visibility { none, some, all };

/// Orders [first, last] of the keys that a query sees.
struct order_interval {
  double first, last;
};

template <class M>
concept has_visible = requires(const M& m, const token& q, const token& k) {
  { m.visible(q, k) } -> std::convertible_to<bool>;
};

/// `none` and `all` must be true of every pair of the two blocks; `some` is always allowed.
template <class M>
concept has_classify = requires(const M& m, const token_block& q, const token_block& k) {
  { m.classify(q, k) } -> std::convertible_to<visibility>;
};

template <class M>
concept attention_mask = has_visible<M> && has_classify<M>;

/// A mask that sees, for each query, the keys of an interval of orders: `posenc::order_interval interval(double
/// query_order) const`. The kernel then needs no test per key where orders run by one. Optional.
template <class M>
concept interval_mask = attention_mask<M> && requires(const M& m, double order) {
  { m.interval(order) } -> std::convertible_to<order_interval>;
};

/// A mask that differs between heads says so with `static constexpr bool per_head = true`.
template <class M>
inline constexpr bool is_per_head = false;
template <class M>
  requires requires { M::per_head; }
inline constexpr bool is_per_head<M> = M::per_head;

/// Shapes of a call, for the optional member `posenc::maybe_error check(const posenc::mask_use&) const`.
struct mask_use {
  index_t batch = 0, heads = 0, q_tokens = 0, k_tokens = 0;
};

template <class M>
concept mask_with_check = requires(const M& m, const mask_use& use) {
  { m.check(use) } -> std::convertible_to<maybe_error>;
};

namespace detail {

/// Beyond every order that is allowed (2^53), and still finite.
inline constexpr double far_order = 1e300;

template <attention_mask M>
maybe_error check_mask(const M& m, const mask_use& use) noexcept {
  if constexpr (mask_with_check<M>) {
    return m.check(use);
  } else {
    static_cast<void>(m);
    static_cast<void>(use);
    return {};
  }
}

template <class M>
consteval bool check_is_mask() {
  static_assert(has_visible<M>,
                "posenc: this is not a mask: it needs the member `bool visible(const posenc::token& query, const "
                "posenc::token& key) const` (for a function of two tokens use posenc::predicate_mask)");
  constexpr bool classifies = !has_visible<M> || has_classify<M>;
  static_assert(
      classifies,
      "posenc: this is not a mask: it needs the member `posenc::visibility classify(const posenc::token_block& "
      "queries, const posenc::token_block& keys) const`; returning posenc::visibility::some is always right");
  return has_visible<M> && classifies;
}

}  // namespace detail

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ATTENTION_MASK_CONCEPTS_HPP
