// SPDX-License-Identifier: Apache-2.0
#include <posenc/encoding/convert_pairs.hpp>

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "encoding/rope_support.hpp"

namespace {

using namespace rope_test;
using posenc::convert_pairs;
using posenc::pair_conversion;
using posenc::token_range;
using posenc::view_thd;

TEST(ConvertPairs, MovesRowsOfEveryHead) {
  std::vector<int> bias(16);
  std::iota(bias.begin(), bias.end(), 0);
  convert_pairs(bias.data(), 16, 1, {.from = pairing::half, .to = pairing::interleaved, .head_dim = 8});
  EXPECT_EQ(bias, (std::vector<int>{0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15}));
  // Part of a head: the rest stays.
  std::iota(bias.begin(), bias.end(), 0);
  convert_pairs(bias.data(), 16, 1, {.head_dim = 8, .rotary_dim = 4, .offset = 2});
  EXPECT_EQ(bias, (std::vector<int>{0, 1, 2, 4, 3, 5, 6, 7, 8, 9, 10, 12, 11, 13, 14, 15}));
}

template <class T>
struct ConvertPairsOf : testing::Test {};
TYPED_TEST_SUITE(ConvertPairsOf, element_types, element_names);

TYPED_TEST(ConvertPairsOf, RoundTripIsTheIdentity) {
  for (const index_t rotary : {index_t{0}, index_t{6}})
    for (const index_t columns : {index_t{1}, index_t{7}, index_t{1500}})
      for (const index_t extra : {index_t{0}, index_t{5}}) {
        const index_t rows = 3 * 10, stride = columns + extra;
        std::vector<TypeParam> w = as_elements<TypeParam>(pattern(rows * stride));
        const std::vector<TypeParam> before = w;
        pair_conversion how{.head_dim = 10, .rotary_dim = rotary, .offset = rotary == 0 ? 0 : 3};
        if (extra != 0) how.row_stride = stride;
        convert_pairs(w.data(), rows, columns, how);
        EXPECT_NE(as_doubles(w), as_doubles(before));
        std::swap(how.from, how.to);
        convert_pairs(w.data(), rows, columns, how);
        EXPECT_EQ(as_doubles(w), as_doubles(before));
        how.to = how.from;
        convert_pairs(w.data(), rows, columns, how);
        EXPECT_EQ(as_doubles(w), as_doubles(before));
      }
}

/// y = W x + b, then each head divided by its size and multiplied by the norm's weights: what stands before a rotation.
numbers projected(const numbers& w, const numbers& b, const numbers& norm, const numbers& x, index_t head_dim) {
  const auto rows = b.size(), columns = x.size();
  numbers y(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    y[r] = b[r];
    for (std::size_t c = 0; c < columns; ++c) y[r] += w[r * columns + c] * x[c];
  }
  const auto dim = static_cast<std::size_t>(head_dim);
  for (std::size_t h = 0; h < rows / dim; ++h) {
    double square = 0;
    for (std::size_t d = 0; d < dim; ++d) square += y[h * dim + d] * y[h * dim + d];
    for (std::size_t d = 0; d < dim; ++d)
      y[h * dim + d] *= norm[d] / std::sqrt(square / static_cast<double>(dim) + 1e-6);
  }
  return y;
}

// Scores of a grouped layer with projections, biases and norms are what they were, with the other pairing.
TEST(ConvertPairs, LeavesScoresAsTheyWere) {
  constexpr index_t head_dim = 16, heads = 4, kv_heads = 2, width = 12;
  for (const index_t rotary : {index_t{16}, index_t{8}}) {
    numbers wq = pattern(heads * head_dim * width, 1), wk = pattern(kv_heads * head_dim * width, 2),
            bq = pattern(heads * head_dim, 3), bk = pattern(kv_heads * head_dim, 4), nq = pattern(head_dim, 5),
            nk = pattern(head_dim, 6);
    const numbers x = pattern(width, 7), z = pattern(width, 8);
    const auto scores = [&](pairing how) {
      const rope encoding(ladder_of(rotary), {.pairing = how, .offset = head_dim - rotary});
      numbers q = projected(wq, bq, nq, x, head_dim), k = projected(wk, bk, nk, z, head_dim), result;
      posenc::rotate(view_thd(q.data(), 1, heads, head_dim), token_range(1, 700), encoding);
      posenc::rotate(view_thd(k.data(), 1, kv_heads, head_dim), token_range(1, 13), encoding);
      for (index_t h = 0; h < heads; ++h) {
        double sum = 0;
        for (index_t d = 0; d < head_dim; ++d)
          sum += q[static_cast<std::size_t>(h * head_dim + d)] * k[static_cast<std::size_t>(h / 2 * head_dim + d)];
        result.push_back(sum);
      }
      return result;
    };
    const numbers before = scores(pairing::half), wrong = scores(pairing::interleaved);
    const pair_conversion how{.head_dim = head_dim, .rotary_dim = rotary, .offset = head_dim - rotary};
    convert_pairs(wq.data(), heads * head_dim, width, how);
    convert_pairs(wk.data(), kv_heads * head_dim, width, how);
    convert_pairs(bq.data(), heads * head_dim, 1, how);
    convert_pairs(bk.data(), kv_heads * head_dim, 1, how);
    convert_pairs(nq.data(), head_dim, 1, how);
    convert_pairs(nk.data(), head_dim, 1, how);
    const numbers after = scores(pairing::interleaved);
    EXPECT_LE(encoding_test::largest_difference(before, after), 1e-12);
    EXPECT_GT(encoding_test::largest_difference(before, wrong), 1e-2);
  }
}

TEST(ConvertPairs, TakesTransposedWeights) {
  const index_t rows = 16, columns = 5;
  const numbers w = pattern(rows * columns);
  numbers plain = w, transposed(w.size());
  for (index_t r = 0; r < rows; ++r)
    for (index_t c = 0; c < columns; ++c)
      transposed[static_cast<std::size_t>(c * rows + r)] = w[static_cast<std::size_t>(r * columns + c)];
  convert_pairs(plain.data(), rows, columns, {.head_dim = 8});
  convert_pairs(transposed.data(), rows, columns, {.head_dim = 8, .row_stride = 1, .column_stride = rows});
  for (index_t r = 0; r < rows; ++r)
    for (index_t c = 0; c < columns; ++c)
      EXPECT_EQ(transposed[static_cast<std::size_t>(c * rows + r)], plain[static_cast<std::size_t>(r * columns + c)]);
}

TEST(ConvertPairs, RefusesWhatDoesNotFit) {
  std::vector<float> w(64);
  const auto check = [&](index_t rows, index_t columns, const pair_conversion& how) {
    return posenc::check_convert_pairs(w.data(), rows, columns, how);
  };
  EXPECT_FALSE(check(16, 4, {.head_dim = 8}));
  EXPECT_TRUE(check(15, 4, {.head_dim = 8}));
  EXPECT_TRUE(check(16, 4, {.head_dim = 0}));
  EXPECT_TRUE(check(14, 4, {.head_dim = 7}));
  EXPECT_TRUE(check(16, 4, {.head_dim = 8, .rotary_dim = 6, .offset = 4}));
  EXPECT_TRUE(check(16, 4, {.head_dim = 8, .rotary_dim = 4, .offset = -1}));
  EXPECT_TRUE(check(16, -1, {.head_dim = 8}));
  EXPECT_TRUE(check(16, 4, {.head_dim = 8, .row_stride = 3}));
  EXPECT_TRUE(posenc::check_convert_pairs(nullptr, 16, 4, {.head_dim = 8}));
  EXPECT_FALSE(posenc::check_convert_pairs(nullptr, 0, 4, {.head_dim = 8}));
}

}  // namespace
