// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTS_ATTENTION_CACHE_SUPPORT_HPP
#define POSENC_TESTS_ATTENTION_CACHE_SUPPORT_HPP

#include <gtest/gtest.h>
#include <posenc/attention/cached_attention.hpp>
#include <posenc/attention/kv_cache.hpp>
#include <posenc/attention/mask/any_mask.hpp>
#include <posenc/encoding/alibi.hpp>
#include <posenc/encoding/any_encoding.hpp>
#include <posenc/encoding/combine.hpp>
#include <posenc/encoding/rope.hpp>
#include <posenc/ladder/frequency_ladder.hpp>

#include <cstring>
#include <vector>

#include "attention/attention_support.hpp"

/// What tests of caches share: the same blocks, and attention over a cache by types chosen at run time.
namespace attention_test {

/// Tokens [first, first + count) of a batch row, or of all rows.
template <class T>
tensor_view<const T> cut(const buffer<T>& x, index_t row, index_t first, index_t count) {
  return {
      x.view.row(row, 0, first), {1, x.view.heads(), count, x.view.dim()}, {0, x.view.stride(1), x.view.stride(2), 1}};
}

inline posenc::any_encoding rope_and_alibi(index_t heads, index_t dim) {
  return posenc::combine(posenc::rope(posenc::frequency_ladder(dim)), posenc::alibi(heads));
}

/// Bit for bit the same blocks from `a_first` and `b_first` on, summaries included.
template <class T>
void expect_same_blocks(const posenc::kv_view<T>& a, index_t a_sequence, const posenc::kv_view<T>& b,
                        index_t b_sequence, index_t a_first = 0, index_t b_first = 0) {
  const posenc::kv_pool_shape& shape = a.pool().shape();
  const auto bytes = static_cast<std::size_t>(shape.kv_heads * a.pool().layout().elements()) * sizeof(T);
  ASSERT_EQ(a.blocks(a_sequence) - a_first, b.blocks(b_sequence) - b_first);
  for (index_t i = 0; i < a.blocks(a_sequence) - a_first; ++i) {
    const auto &x = a.block(a_sequence, a_first + i), &y = b.block(b_sequence, b_first + i);
    EXPECT_EQ(std::memcmp(x.data.get(), y.data.get(), bytes), 0) << "block " << i;
    EXPECT_EQ(x.whole_positions, y.whole_positions);
    for (std::size_t h = 0; h < static_cast<std::size_t>(shape.kv_heads); ++h) EXPECT_EQ(x.finite[h], y.finite[h]);
    const auto &s = x.tokens, &t = y.tokens;
    ASSERT_EQ(s.count, t.count) << "block " << i;
    EXPECT_EQ(s.first_index, t.first_index);
    EXPECT_EQ(s.first_order, t.first_order);
    EXPECT_EQ(s.last_order, t.last_order);
    EXPECT_EQ(s.first_document, t.first_document);
    EXPECT_EQ(s.last_document, t.last_document);
    EXPECT_EQ(s.has_padding, t.has_padding);
    EXPECT_EQ(s.consecutive_orders, t.consecutive_orders);
    EXPECT_EQ(s.consecutive_positions, t.consecutive_positions);
    for (index_t j = 0; j < s.count; ++j) {
      EXPECT_EQ(s.order[j], t.order[j]);
      EXPECT_EQ(s.document[j], t.document[j]);
    }
    for (index_t j = 0; j < shape.axes * posenc::block_keys; ++j) EXPECT_EQ(s.positions[j], t.positions[j]);
  }
}

}  // namespace attention_test

#endif  // POSENC_TESTS_ATTENTION_CACHE_SUPPORT_HPP
