// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_MASK_DENSE_MASK_HPP
#define POSENC_ATTENTION_MASK_DENSE_MASK_HPP

#include <array>
#include <concepts>
#include <type_traits>
#include <utility>

#include "concepts.hpp"

namespace posenc::inline POSENC_ABI {

/// A stored mask [batch or 1, heads or 1, queries, keys] in the caller's memory, visible where not zero; extent 1 of
/// batch and heads is shared. Any strides, in elements. The one mask that goes by index instead of order: q and k are the
/// indices in the rows of the tensors.
template <class T>
class dense_mask {
 public:
  static constexpr bool per_head = true;

  constexpr dense_mask(const T* data, std::array<index_t, 4> extents, std::array<index_t, 4> strides) noexcept
      : data_(data), extents_(extents), strides_(strides) {}

  /// Contiguous [queries, keys] for all rows and heads.
  constexpr dense_mask(const T* data, index_t queries, index_t keys) noexcept
      : dense_mask(data, {1, 1, queries, keys}, {0, 0, keys, 1}) {}

  constexpr bool visible(const token& q, const token& k) const noexcept {
    const index_t b = extents_[0] == 1 ? 0 : q.batch, h = extents_[1] == 1 ? 0 : q.head;
    return data_[b * strides_[0] + h * strides_[1] + q.index * strides_[2] + k.index * strides_[3]] != T{};
  }
  constexpr visibility classify(const token_block&, const token_block&) const noexcept { return visibility::some; }

  maybe_error check(const mask_use& use) const noexcept {
    const auto shape = [&](const char* what, index_t has, index_t wants) {
      return make_error(errc::invalid_shape, "dense_mask", "has extent %td for %s; allowed: %td%s", has, what, wants,
                        what[0] == 'b' || what[0] == 'h' ? " or 1" : "");
    };
    if (extents_[0] != 1 && extents_[0] != use.batch) return shape("batch", extents_[0], use.batch);
    if (extents_[1] != 1 && extents_[1] != use.heads) return shape("heads", extents_[1], use.heads);
    if (extents_[2] != use.q_tokens) return shape("queries", extents_[2], use.q_tokens);
    if (extents_[3] != use.k_tokens) return shape("keys", extents_[3], use.k_tokens);
    if (data_ == nullptr && use.q_tokens * use.k_tokens > 0)
      return make_error(errc::invalid_layout, "dense_mask", "is null for %td x %td entries", use.q_tokens,
                        use.k_tokens);
    return {};
  }

 private:
  const T* data_;
  std::array<index_t, 4> extents_, strides_;
};

/// A function of two whole tokens (query, key) -> bool as a mask. It is asked for every pair that documents allow, so it
/// costs more than the others. `f` must not throw.
template <std::predicate<const token&, const token&> F>
class predicate_mask {
 public:
  static constexpr bool per_head = true;

  constexpr explicit predicate_mask(F f) : f_(std::move(f)) {}

  constexpr bool visible(const token& q, const token& k) const { return f_(q, k); }
  constexpr visibility classify(const token_block&, const token_block&) const noexcept { return visibility::some; }

 private:
  F f_;
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ATTENTION_MASK_DENSE_MASK_HPP
