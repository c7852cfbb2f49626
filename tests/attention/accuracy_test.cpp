// SPDX-License-Identifier: Apache-2.0
// The bound of the documentation, over sizes of scores: errors of scores grow with them, and words that come again have the
// same error each time, so that nothing averages out.
#include <posenc/encoding/alibi.hpp>
#include <posenc/encoding/any_encoding.hpp>
#include <posenc/encoding/combine.hpp>
#include <posenc/encoding/rope.hpp>
#include <posenc/encoding/t5_bucket.hpp>
#include <posenc/testing/reference.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "attention/simple_call.hpp"

namespace {

using attention_test::index_t;

struct accuracy_case {
  double deviation;  ///< of the scores
  index_t words, head_dim;
};

class FloatAccuracy : public testing::TestWithParam<accuracy_case> {};

TEST_P(FloatAccuracy, IsWithinTheDocumentedBound) {
  const auto [deviation, words, head_dim] = GetParam();
  constexpr index_t tokens = 320;
  attention_test::random_engine random(17);
  auto q = attention_test::random_buffer<float>(random, 1, 1, tokens, head_dim),
       k = attention_test::random_buffer<float>(random, 1, 1, tokens, head_dim),
       v = attention_test::random_buffer<float>(random, 1, 1, tokens, head_dim);
  double squares = 0, largest_value = 0;
  for (index_t t = 0; t < tokens; ++t)
    for (index_t d = 0; d < head_dim; ++d) squares += std::pow(double(q.view(0, 0, t, d)), 2);
  const double variance = squares / static_cast<double>(tokens * head_dim);
  const auto factor = static_cast<float>(std::sqrt(deviation / variance));
  for (index_t t = 0; t < tokens; ++t) {
    const index_t word = t < words ? t : static_cast<index_t>(random() % static_cast<std::uint64_t>(words));
    for (index_t d = 0; d < head_dim; ++d) {
      q.view(0, 0, t, d) *= factor;
      k.view(0, 0, t, d) = t < words ? k.view(0, 0, t, d) * factor : k.view(0, 0, word, d);
      v.view(0, 0, t, d) = v.view(0, 0, word, d);
      largest_value = std::max(largest_value, std::fabs(double(v.view(0, 0, t, d))));
    }
  }
  const auto out = attention_test::make_buffer<float>(1, 1, tokens, head_dim);
  const auto exact = attention_test::make_buffer<double>(1, 1, tokens, head_dim);
  for (const posenc::any_encoding& encoding :
       {posenc::any_encoding(posenc::nope{}), posenc::any_encoding(posenc::rope{posenc::frequency_ladder(head_dim)}),
        posenc::any_encoding(posenc::alibi(1))}) {
    posenc::attention(q.view, k.view, v.view, out.view, posenc::token_range(tokens), encoding, posenc::causal{});
    posenc::testing::attention(q.view, k.view, v.view, exact.view, posenc::token_range(tokens), encoding,
                               posenc::causal{});
    // The largest q.k * scale, rotated or not: its size is what counts, not the biases'.
    double largest_score = 0;
    const auto scores = posenc::testing::score_matrix(
        q.view, k.view, posenc::token_range(tokens),
        encoding.rotates() ? encoding : posenc::any_encoding(posenc::nope{}), posenc::causal{});
    for (index_t i = 0; i < tokens; ++i)
      for (index_t j = 0; j <= i; ++j) largest_score = std::max(largest_score, std::fabs(scores.scores(0, 0, i, j)));
    double worst = 0;
    out.for_each([&](index_t b, index_t h, index_t t, index_t d) {
      worst = std::max(worst, std::fabs(double(out.view(b, h, t, d)) - exact.view(b, h, t, d)));
    });
    const double bound = 2.5e-7 * std::max(8.0, largest_score);
    EXPECT_LE(worst / largest_value, bound) << "largest score " << largest_score;
    RecordProperty("error_over_bound", std::to_string(worst / largest_value / bound));
  }
}

INSTANTIATE_TEST_SUITE_P(Scores, FloatAccuracy,
                         testing::Values(accuracy_case{1, 320, 128}, accuracy_case{1, 60, 128},
                                         accuracy_case{2, 100, 128}, accuracy_case{4, 100, 64},
                                         accuracy_case{8, 100, 128}, accuracy_case{20, 100, 96}));

// Scores below 3 that are differences of products of thousands: the size of the products counts.
TEST(FloatAccuracyOfCancellingScores, IsWithinTheDocumentedBound) {
  constexpr index_t tokens = 128, head_dim = 64;
  for (const float size : {1.0f, 100.0f, 1000.0f}) {
    attention_test::random_engine random(19);
    const auto q = attention_test::random_buffer<float>(random, 1, 1, tokens, head_dim),
               k = attention_test::random_buffer<float>(random, 1, 1, tokens, head_dim),
               v = attention_test::random_buffer<float>(random, 1, 1, tokens, head_dim);
    double largest_value = 0, largest_sum = 0;
    for (index_t t = 0; t < tokens; ++t) {
      q.view(0, 0, t, 5) = size;
      q.view(0, 0, t, 6) = -size;
      k.view(0, 0, t, 5) += 10;
      k.view(0, 0, t, 6) = k.view(0, 0, t, 5) + k.view(0, 0, t, 6) / size;
    }
    for (index_t i = 0; i < tokens; ++i)
      for (index_t j = 0; j <= i; ++j) {
        double sum = 0;
        for (index_t d = 0; d < head_dim; ++d) {
          sum += std::fabs(double(q.view(0, 0, i, d)) * double(k.view(0, 0, j, d))) / 8;
          largest_value = std::max(largest_value, std::fabs(double(v.view(0, 0, i, d))));
        }
        largest_sum = std::max(largest_sum, sum);
      }
    const auto out = attention_test::make_buffer<float>(1, 1, tokens, head_dim);
    const auto exact = attention_test::make_buffer<double>(1, 1, tokens, head_dim);
    posenc::attention(q.view, k.view, v.view, out.view, posenc::token_range(tokens), posenc::nope{}, posenc::causal{});
    posenc::testing::attention(q.view, k.view, v.view, exact.view, posenc::token_range(tokens), posenc::nope{},
                               posenc::causal{});
    double worst = 0;
    out.for_each([&](index_t b, index_t h, index_t t, index_t d) {
      worst = std::max(worst, std::fabs(double(out.view(b, h, t, d)) - exact.view(b, h, t, d)));
    });
    EXPECT_LE(worst / largest_value, 2.5e-7 * std::max(8.0, largest_sum)) << size;
    RecordProperty("error_over_bound_" + std::to_string(int(size)),
                   std::to_string(worst / largest_value / (2.5e-7 * std::max(8.0, largest_sum))));
  }
}

// 8192 keys, and queries from everywhere among them: sums over many keys do not add up errors.
TEST(FloatAccuracyOfLongContexts, IsWithinTwoMillionthsOfTheLargestValue) {
  constexpr index_t keys = 8192, queries = 33, head_dim = 64;
  attention_test::random_engine random(18);
  const auto q = attention_test::random_buffer<float>(random, 1, 2, queries, head_dim),
             k = attention_test::random_buffer<float>(random, 1, 1, keys, head_dim),
             v = attention_test::random_buffer<float>(random, 1, 1, keys, head_dim);
  double largest_value = 0;
  v.for_each([&](index_t b, index_t h, index_t t, index_t d) {
    largest_value = std::max(largest_value, std::fabs(double(v.view(b, h, t, d))));
  });
  std::vector<std::int64_t> positions;
  for (index_t i = 0; i < queries; ++i) positions.push_back(i * (keys - 1) / (queries - 1));
  const posenc::token_pair tokens(posenc::token_positions(positions), posenc::token_range(keys));
  std::vector<float> table(64);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = 0.05f * static_cast<float>(i % 17);
  const posenc::rope rope{posenc::frequency_ladder(head_dim)};
  const posenc::alibi alibi(2);
  const posenc::t5_bucket t5(table.data(), 2);
  const auto out = attention_test::make_buffer<float>(1, 2, queries, head_dim);
  const auto exact = attention_test::make_buffer<double>(1, 2, queries, head_dim);
  for (const posenc::any_encoding& encoding :
       {posenc::any_encoding(posenc::nope{}), posenc::any_encoding(rope), posenc::any_encoding(alibi),
        posenc::any_encoding(t5), posenc::any_encoding(posenc::combine(rope, alibi, t5))}) {
    posenc::attention(q.view, k.view, v.view, out.view, tokens, encoding, posenc::causal{});
    posenc::testing::attention(q.view, k.view, v.view, exact.view, tokens, encoding, posenc::causal{});
    double worst = 0;
    out.for_each([&](index_t b, index_t h, index_t t, index_t d) {
      worst = std::max(worst, std::fabs(double(out.view(b, h, t, d)) - exact.view(b, h, t, d)));
    });
    EXPECT_LE(worst / largest_value, 2e-6);
    RecordProperty("error", std::to_string(worst / largest_value * 1e6) + "e-6");
  }
}

}  // namespace
