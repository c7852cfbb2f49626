// SPDX-License-Identifier: Apache-2.0
// What users of other libraries reported about positions, packing and 16-bit numbers, with the numbers of their reports.
// The wrong results that they saw are in the comments.
#include <gtest/gtest.h>
#include <posenc/attention/mask/masks.hpp>
#include <posenc/core/eigen.hpp>
#include <posenc/core/finite.hpp>
#include <posenc/core/token_builders.hpp>
#include <posenc/encoding/add_positions.hpp>
#include <posenc/encoding/learned.hpp>
#include <posenc/simd/convert.hpp>

#include <bit>
#include <cstdint>
#include <vector>

namespace {

using posenc::index_t;
using numbers = std::vector<double>;

// BR-013: positions by token index, so that a padded prompt stood at 2, 3, 4 and decoding went on at 5.
TEST(UserReports, PositionsOfALeftPaddedBatch) {
  const int mask[] = {0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  const posenc::token_list tokens = posenc::from_attention_mask(mask, 2, 5);
  EXPECT_EQ(numbers(tokens.positions.begin() + 2, tokens.positions.end()), (numbers{0, 1, 2, 0, 1, 2, 3, 4}));
  EXPECT_EQ(tokens.next_position(0), 3);
  EXPECT_EQ(tokens.next_position(1), 5);
}

// BR-014: rows 2, 3 and 4 of the table were read, with the sum (9, 29).
TEST(UserReports, LearnedRowsOfALeftPaddedText) {
  float table[8][2], x[5][2] = {};
  for (int r = 0; r < 8; ++r) {
    table[r][0] = static_cast<float>(r);
    table[r][1] = static_cast<float>(r * r);
  }
  const int mask[] = {0, 0, 1, 1, 1};
  add_positions(posenc::view_bhtd(&x[0][0], 1, 1, 5, 2), posenc::from_attention_mask(mask, 1, 5),
                posenc::learned_positions(posenc::view_bhtd(static_cast<const float*>(&table[0][0]), 1, 1, 8, 2)));
  float sum[2] = {};
  for (int t = 2; t < 5; ++t)
    for (int d = 0; d < 2; ++d) sum[d] += x[t][d];
  EXPECT_EQ(sum[0], 3.0f);
  EXPECT_EQ(sum[1], 5.0f);
}

// BR-016: positions ran on over the documents, 0 to 8.
TEST(UserReports, PositionsStartAgainInEachDocument) {
  EXPECT_EQ(posenc::packed_documents({3, 2, 4}).positions, (numbers{0, 1, 2, 0, 1, 0, 1, 2, 3}));
}

// BR-019: bounds by the longest document, 0, 5, 10, 15, and 55 visible pairs.
TEST(UserReports, VisiblePairsOfPackedDocuments) {
  EXPECT_EQ(posenc::cu_seqlens_of({3, 2, 5}), (std::vector<std::int64_t>{0, 3, 5, 10}));
  int pairs = 0;
  const posenc::token_list list = posenc::packed_documents({3, 2, 5});
  const posenc::token_view view = list;
  for (index_t q = 0; q < 10; ++q)
    for (index_t k = 0; k < 10; ++k) {
      const posenc::token query{view.order(0, q), view.document(0, q), q, 0, 0, {}},
          key{view.order(0, k), view.document(0, k), k, 0, 0, {}};
      pairs += query.document == key.document && posenc::causal{}.visible(query, key) ? 1 : 0;
    }
  EXPECT_EQ(pairs, 24);
}

template <class T>
float rounded(float x) {
  T stored;
  posenc::simd::store_row(&x, 1, &stored);
  posenc::simd::load_row(&stored, 1, &x);
  return x;
}

// BR-112: cut off in place of rounded to nearest: 0.267578125, 3.125, 9.953510016202927e-09.
TEST(UserReports, Bfloat16RoundsToNearest) {
  EXPECT_EQ(rounded<posenc::bfloat16>(0.2691408770292272f), 0.26953125f);
  EXPECT_EQ(rounded<posenc::bfloat16>(3.14f), 3.140625f);
  EXPECT_EQ(rounded<posenc::bfloat16>(1e-8f), 1.0011717677116394e-08f);
}

// BR-113: NaN with a small payload became infinite, or minus zero.
TEST(UserReports, Bfloat16KeepsNan) {
  const auto bits_of = [](std::uint32_t x) {
    const float from = std::bit_cast<float>(x);
    posenc::bfloat16 to;
    posenc::simd::store_row(&from, 1, &to);
    return std::bit_cast<std::uint16_t>(to);
  };
  for (const std::uint32_t nan : {0x7f800001u, 0x7fffffffu, 0xff800001u})
    EXPECT_GT(bits_of(nan) & 0x7fff, 0x7f80) << nan;
  EXPECT_EQ(bits_of(0x7f7fffff), 0x7f80) << "the largest float rounds to infinity";
  EXPECT_EQ(bits_of(0x7f800000), 0x7f80);
}

}  // namespace
