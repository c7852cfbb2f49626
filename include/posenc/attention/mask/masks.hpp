// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_MASK_MASKS_HPP
#define POSENC_ATTENTION_MASK_MASKS_HPP

#include <cmath>

#include "../../core/finite.hpp"
#include "concepts.hpp"

/// The masks that models use; all read the order. They compose with `&`, `|` and `!` (mask_algebra.hpp):
/// a causal window is `causal{} & window_of(4096)` (or just `window_of(4096)`), prefix-LM is
/// `causal{} | prefix{.length = n}`, chunked attention `causal{} & chunk{.size = 8192}`.
namespace posenc::inline POSENC_ABI {

/// Every key of the query's document.
struct bidirectional {
  constexpr bool visible(const token&, const token&) const noexcept { return true; }
  constexpr visibility classify(const token_block&, const token_block&) const noexcept { return visibility::all; }
  constexpr order_interval interval(double) const noexcept { return {-detail::far_order, detail::far_order}; }
};

/// Keys that are not later than the query; equal orders see each other.
struct causal {
  constexpr bool visible(const token& q, const token& k) const noexcept { return k.order <= q.order; }
  constexpr visibility classify(const token_block& q, const token_block& k) const noexcept {
    if (k.last_order <= q.first_order) return visibility::all;
    if (k.first_order > q.last_order) return visibility::none;
    return visibility::some;
  }
  constexpr order_interval interval(double order) const noexcept { return {-detail::far_order, order}; }
};

/// Keys from `left` before the query to `right` after it, in units of order, both ends included.
/// Neither may be negative or NaN.
struct sliding_window {
  double left = 0, right = 0;

  constexpr bool visible(const token& q, const token& k) const noexcept {
    return k.order >= q.order - left && k.order <= q.order + right;
  }
  constexpr visibility classify(const token_block& q, const token_block& k) const noexcept {
    if (k.first_order >= q.last_order - left && k.last_order <= q.first_order + right) return visibility::all;
    if (k.last_order < q.first_order - left || k.first_order > q.last_order + right) return visibility::none;
    return visibility::some;
  }
  constexpr order_interval interval(double order) const noexcept { return {order - left, order + right}; }

  maybe_error check(const mask_use&) const noexcept {
    if (!detail::is_finite(left) || left < 0)
      return make_error(errc::invalid_value, "sliding_window.left",
                        "is %g; allowed: finite, 0 and more (window_of(W) has left = W - 1)", left);
    if (!detail::is_finite(right) || right < 0)
      return make_error(errc::invalid_value, "sliding_window.right", "is %g; allowed: finite, 0 and more", right);
    return {};
  }
};

/// A model's `sliding_window = size`: each query sees `size` keys, itself included (the reading of Hugging Face and
/// llama.cpp; a peer that keeps size + 1 keys is `sliding_window{.left = size}`).
constexpr sliding_window window_of(double size) noexcept { return {.left = size - 1, .right = 0}; }

/// |key - query| <= size: the window of bidirectional models.
constexpr sliding_window symmetric_window(double size) noexcept { return {.left = size, .right = size}; }

/// Keys whose order is below `length`: the prompt that everybody sees in a prefix language model. Packed documents
/// whose orders start again have a prefix each.
struct prefix {
  double length = 0;

  constexpr bool visible(const token&, const token& k) const noexcept { return k.order < length; }
  constexpr visibility classify(const token_block&, const token_block& k) const noexcept {
    if (k.last_order < length) return visibility::all;
    if (k.first_order >= length) return visibility::none;
    return visibility::some;
  }

  maybe_error check(const mask_use&) const noexcept {
    if (!detail::is_finite(length))
      return make_error(errc::invalid_value, "prefix.length", "is %g; allowed: finite", length);
    return {};
  }
};

/// Keys of the query's own chunk: floor(order / size) is the same. Negative orders have chunks too.
struct chunk {
  double size = 0;

  bool visible(const token& q, const token& k) const noexcept { return of(q.order) == of(k.order); }
  visibility classify(const token_block& q, const token_block& k) const noexcept {
    const double q_first = of(q.first_order), q_last = of(q.last_order);
    const double k_first = of(k.first_order), k_last = of(k.last_order);
    if (k_last < q_first || k_first > q_last) return visibility::none;
    if (q_first == q_last && k_first == k_last && q_first == k_first) return visibility::all;
    return visibility::some;
  }

  maybe_error check(const mask_use&) const noexcept {
    if (!detail::is_finite(size) || size < 1e-200)
      return make_error(errc::invalid_value, "chunk.size", "is %g; allowed: finite and above 0 (1e-200 and more)",
                        size);
    return {};
  }

 private:
  double of(double order) const noexcept { return std::floor(order / size); }
};

/// Keys of the query's own document. Documents restrict every mask anyway; this one is for building others, such as
/// `!documents{}`.
struct documents {
  constexpr bool visible(const token& q, const token& k) const noexcept {
    return q.document == k.document && k.document != -1;
  }
  constexpr visibility classify(const token_block&, const token_block&) const noexcept { return visibility::some; }
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ATTENTION_MASK_MASKS_HPP
