// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_KEY_TOKENS_HPP
#define POSENC_ATTENTION_KEY_TOKENS_HPP

#include <cmath>
#include <cstdint>

#include "../core/tokens.hpp"
#include "../encoding/score_keys.hpp"
#include "mask/concepts.hpp"

namespace posenc::inline POSENC_ABI::detail {

/// The tokens of one block of keys, shared by all KV heads: what masks and biases read, and a summary that settles most
/// blocks without looking at single keys. Slots from `count` on are never visible.
struct key_tokens {
  index_t count = 0;                  ///< keys in the block, at most block_keys
  index_t first_index = 0;            ///< index of the first one in its row (of the tensor or the cache)
  const double* positions = nullptr;  ///< [axes][block_keys]
  double order[block_keys];
  std::int64_t document[block_keys];
  double first_order = 0, last_order = 0;  ///< smallest and largest, padding left out
  std::int64_t first_document = -1, last_document = -1;
  bool has_padding = false;            ///< some key has document -1
  bool consecutive_positions = false;  ///< the block is full, and they run by one on every axis
  bool consecutive_orders = false;     ///< they run by one and start at a whole number

  bool all_padding() const noexcept { return first_document == -1 && has_padding; }
  bool one_document() const noexcept { return !has_padding && first_document == last_document; }

  token_block summary(index_t batch) const noexcept {
    return {first_order, last_order, first_index, first_index + count, batch, 0};
  }
  token key(index_t j, index_t axes, index_t batch, index_t head, double* position_scratch) const noexcept {
    for (index_t axis = 0; axis < axes; ++axis) position_scratch[axis] = positions[axis * block_keys + j];
    return {order[j], document[j], first_index + j,
            batch,    head,        std::span<const double>(position_scratch, static_cast<std::size_t>(axes))};
  }

  /// Appends tokens [first, first + n) of a row; n + count <= block_keys. `storage` is what `positions` points at.
  void append(const token_view& tokens, index_t batch, index_t first, index_t n, double* storage) noexcept {
    if (n == 0) return;
    for (index_t axis = 0; axis < tokens.axes(); ++axis)
      tokens.read_positions(axis, batch, first, n, storage + axis * block_keys + count);
    tokens.read_order(batch, first, n, order + count);
    for (index_t i = 0; i < n; ++i) document[count + i] = tokens.document(batch, first + i);
    positions = storage;
    count += n;
    // Biases are computed for whole registers: the slots without a key repeat the last one's position.
    for (index_t axis = 0; axis < tokens.axes(); ++axis)
      for (index_t j = count; j < block_keys; ++j)
        storage[axis * block_keys + j] = storage[axis * block_keys + count - 1];
    summarise(tokens.axes());
  }

  /// Becomes the first n tokens of a block, which may be this one; n > 0. `storage` as for append.
  void copy_first(const key_tokens& from, index_t n, index_t axes, double* storage) noexcept {
    for (index_t axis = 0; axis < axes; ++axis)
      for (index_t j = 0; j < block_keys; ++j)
        storage[axis * block_keys + j] = from.positions[axis * block_keys + (j < n ? j : n - 1)];
    for (index_t j = 0; j < n; ++j) {
      order[j] = from.order[j];
      document[j] = from.document[j];
    }
    first_index = from.first_index;
    positions = storage;
    count = n;
    summarise(axes);
  }

  /// Makes the summary anew.
  void summarise(index_t axes) noexcept {
    has_padding = false;
    first_document = last_document = -1;
    bool any = false;
    consecutive_orders = count > 0 && order[0] == std::floor(order[0]);
    for (index_t j = 0; j < count; ++j) {
      consecutive_orders = consecutive_orders && order[j] == order[0] + static_cast<double>(j);
      if (document[j] == -1) {
        has_padding = true;
        continue;
      }
      if (!any) {
        first_order = last_order = order[j];
        first_document = last_document = document[j];
        any = true;
      }
      first_order = order[j] < first_order ? order[j] : first_order;
      last_order = order[j] > last_order ? order[j] : last_order;
      first_document = document[j] < first_document ? document[j] : first_document;
      last_document = document[j] > last_document ? document[j] : last_document;
    }
    consecutive_positions = count == block_keys;
    for (index_t axis = 0; axis < axes && consecutive_positions; ++axis)
      for (index_t j = 0; j < count; ++j)
        consecutive_positions = consecutive_positions && positions[axis * block_keys + j] ==
                                                             positions[axis * block_keys] + static_cast<double>(j);
  }
};

/// The low n bits.
constexpr std::uint64_t low_bits(index_t n) noexcept {
  return n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
}

/// Which keys are of the document, as bits; padding is of none.
inline std::uint64_t document_bits(std::int64_t document, const key_tokens& keys) noexcept {
  if (document == -1) return 0;
  if (keys.one_document()) return keys.first_document == document ? low_bits(keys.count) : 0;
  std::uint64_t bits = 0;
  for (index_t j = 0; j < keys.count; ++j) bits |= static_cast<std::uint64_t>(keys.document[j] == document) << j;
  return bits;
}

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ATTENTION_KEY_TOKENS_HPP
