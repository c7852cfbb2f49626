// SPDX-License-Identifier: Apache-2.0
// The double-precision reference against numbers worked out by hand and against stored results of other evaluations.
#include <gtest/gtest.h>
#include <posenc/attention/mask/any_mask.hpp>
#include <posenc/attention/mask/dense_mask.hpp>
#include <posenc/attention/mask/mask_algebra.hpp>
#include <posenc/attention/mask/masks.hpp>
#include <posenc/core/token_builders.hpp>
#include <posenc/encoding/alibi.hpp>
#include <posenc/encoding/any_encoding.hpp>
#include <posenc/encoding/combine.hpp>
#include <posenc/encoding/nope.hpp>
#include <posenc/encoding/rope.hpp>
#include <posenc/encoding/rotated.hpp>
#include <posenc/encoding/t5_bucket.hpp>
#include <posenc/testing/matchers.hpp>
#include <posenc/testing/reference.hpp>

#include <bit>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/expect_error.hpp"

#ifndef POSENC_TEST_DATA_DIR
#define POSENC_TEST_DATA_DIR "tests/data"
#endif

namespace {

namespace reference = posenc::testing;
using namespace posenc;
using reference::all_near;
using reference::error_names;
using reference::no_error;
using reference::same_bits_as;
using ::testing::Not;

const double not_a_number = std::bit_cast<double>(std::uint64_t{0x7ff8000000000000});
const double infinite = std::bit_cast<double>(std::uint64_t{0x7ff0000000000000});

/// Two queries and keys of width 1, one head: scores are products of two numbers.
struct tiny {
  std::vector<double> q{1, 2}, k{1, 3}, v{10, 20};
  tensor_view<const double> q_view() const { return view_bhtd(q.data(), 1, 1, 2, 1); }
  tensor_view<const double> k_view() const { return view_bhtd(k.data(), 1, 1, 2, 1); }
  tensor_view<const double> v_view() const { return view_bhtd(v.data(), 1, 1, 2, 1); }

  std::vector<double> lse = {7, 7};

  template <class E = nope, class M = bidirectional>
  std::vector<double> run(attention_options options = {}, const E& encoding = {}, const M& mask = {},
                          const token_pair& tokens = token_range(2)) {
    std::vector<double> out(2, 7);
    options.lse = lse_view(lse.data(), 1, 1, 2);
    reference::attention(q_view(), k_view(), v_view(), view_bhtd(out.data(), 1, 1, 2, 1), tokens, encoding, mask,
                         options);
    return out;
  }
};

TEST(Reference, SoftmaxOfProducts) {
  tiny t;
  // Scores 1 3 and 2 6.
  const double w = 1 / (1 + std::exp(2.0)), x = 1 / (1 + std::exp(4.0));
  EXPECT_THAT(t.run(), all_near(std::vector{10 * w + 20 * (1 - w), 10 * x + 20 * (1 - x)}, 1e-14));
  EXPECT_THAT(
      t.lse,
      all_near(std::vector{std::log(std::exp(1.0) + std::exp(3.0)), std::log(std::exp(2.0) + std::exp(6.0))}, 1e-14));
}

TEST(Reference, ScaleThenSoftcapThenBias) {
  tiny t;
  attention_options options;
  options.scale = 0.5;
  options.softcap = 2;
  // Query 1 at position 1: 2 tanh(0.5 / 2) and 2 tanh(1.5 / 2), then the bias -0.25 |k - q|.
  const double slope = 0.25;
  const alibi encoding(std::span<const double>(&slope, 1));
  const double s0 = 2 * std::tanh(0.5 * 2 / 2.0) - 0.25, s1 = 2 * std::tanh(0.5 * 6 / 2.0);
  const double w = std::exp(s0) / (std::exp(s0) + std::exp(s1));
  const auto out = t.run(options, encoding);
  EXPECT_NEAR(out[1], 10 * w + 20 * (1 - w), 1e-14);
  EXPECT_NEAR(t.lse[1], std::log(std::exp(s0) + std::exp(s1)), 1e-14);
}

TEST(Reference, SinkTakesWeightAndHasNoValue) {
  tiny t;
  const std::vector<double> sinks{2};
  attention_options options;
  options.sinks = sinks;
  const double sum = std::exp(1.0) + std::exp(3.0) + std::exp(2.0);
  EXPECT_NEAR(t.run(options)[0], (10 * std::exp(1.0) + 20 * std::exp(3.0)) / sum, 1e-14);
  EXPECT_NEAR(t.lse[0], std::log(sum), 1e-14);
  const auto weights =
      reference::attention_weights(t.q_view(), t.k_view(), token_range(2), nope{}, bidirectional{}, options);
  EXPECT_NEAR(weights(0, 0, 0, 0), std::exp(1.0) / sum, 1e-15);
  EXPECT_NEAR(weights(0, 0, 0, 1), std::exp(3.0) / sum, 1e-15);
}

TEST(Reference, RowsThatSeeNothing) {
  tiny t;
  const std::int64_t q_documents[] = {-1, 5}, k_documents[] = {-1, 6};
  const token_pair tokens{token_range(2).with_documents(q_documents), token_range(2).with_documents(k_documents)};
  EXPECT_THAT(t.run({}, nope{}, bidirectional{}, tokens), same_bits_as(std::vector<double>{0, 0}));
  EXPECT_THAT(t.lse, same_bits_as(std::vector{-infinite, -infinite}));
  const std::vector<double> sinks{-1.5};
  attention_options options;
  options.sinks = sinks;
  EXPECT_THAT(t.run(options, nope{}, bidirectional{}, tokens), same_bits_as(std::vector<double>{0, 0}));
  EXPECT_THAT(t.lse, same_bits_as(std::vector{-infinite, -1.5}));  // padding; a row whose whole weight is on the sink
}

TEST(Reference, InvisibleKeysAreNeverTouched) {
  tiny t;
  t.k[1] = not_a_number;
  t.v[1] = infinite;
  EXPECT_NEAR(t.run({}, nope{}, causal{})[0], 10, 1e-15);
  EXPECT_THAT(t.run({}, nope{}, causal{}), Not(reference::all_finite()));  // query 1 sees them
  const auto scores = reference::score_matrix(t.q_view(), t.k_view(), token_range(2), nope{}, causal{});
  EXPECT_THAT(scores.scores.row(0, 0, 0), same_bits_as(std::vector{1.0, -infinite}));
  EXPECT_TRUE(scores.is_visible(0, 0, 0, 0));
  EXPECT_FALSE(scores.is_visible(0, 0, 0, 1));
  EXPECT_TRUE(scores.is_visible(0, 0, 1, 1));
}

TEST(Reference, OutMayBeQAndHasItsOwnType) {
  tiny t;
  const auto expected = t.run();
  std::vector<float> q{1, 2};
  const auto in_place = view_bhtd(q.data(), 1, 1, 2, 1);
  reference::attention(in_place, t.k_view(), t.v_view(), in_place, token_range(2), nope{}, bidirectional{});
  EXPECT_THAT(q, all_near(expected, 0, 6e-8));
}

TEST(Reference, QueriesOfAGroupShareTheirHead) {
  // Four query heads, two key heads, value_dim 2: weights are all alike, so that outputs are means of values.
  const std::vector<float> q(4 * 3, 0), k(2 * 2 * 3, 1);
  std::vector<float> v(2 * 2 * 2);
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i);
  std::vector<double> out(4 * 2);
  reference::attention(view_bhtd(q.data(), 1, 4, 1, 3), view_bhtd(k.data(), 1, 2, 2, 3),
                       view_bhtd(v.data(), 1, 2, 2, 2), view_bhtd(out.data(), 1, 4, 1, 2),
                       {token_range(1, 1), token_range(2)}, nope{}, causal{});
  EXPECT_THAT(out, all_near(std::vector<double>{1, 2, 1, 2, 5, 6, 5, 6}, 1e-15));
}

TEST(Reference, SequencesAreApart) {
  tiny t;
  const token_list tokens = ragged_sequences(std::vector<std::int64_t>{0, 1, 1, 2});
  EXPECT_THAT(t.run({}, nope{}, bidirectional{}, tokens), all_near(t.v, 0));
}

TEST(BiasMatrix, AlibiIsSlopeTimesDistance) {
  const auto bias = reference::bias_matrix(alibi(8), token_range(5), 8);
  for (index_t h = 0; h < 8; ++h)
    for (index_t q = 0; q < 5; ++q)
      for (index_t k = 0; k < 5; ++k)
        EXPECT_EQ(bias(0, h, q, k), -std::exp2(-static_cast<double>(h + 1)) * std::abs(static_cast<double>(k - q)));
  EXPECT_EQ(bias.queries(), 5);
  EXPECT_EQ(as_view(bias).dim(), 5);
}

TEST(BiasMatrix, T5ReadsItsTable) {
  std::vector<float> table(32 * 2);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i);
  const t5_bucket encoding(table.data(), 2, {.bidirectional = true});
  const auto bias = reference::bias_matrix(encoding, {token_range(1, 100), token_range(200)}, 2);
  for (index_t k = 0; k < 200; ++k)
    for (index_t h = 0; h < 2; ++h)
      EXPECT_EQ(bias(0, h, 0, k), static_cast<double>(2 * t5_relative_bucket(k - 100) + h));
}

TEST(BiasMatrix, SumsPartsAndIsZeroWithoutBiases) {
  const rope turning{frequency_ladder(8)};
  EXPECT_THAT(reference::bias_matrix(turning, token_range(3), 2).values(), all_near(std::vector<double>(18, 0), 0));
  const auto both = combine(turning, alibi(2), alibi(2));
  EXPECT_EQ(reference::bias_matrix(both, token_range(3), 2)(0, 1, 2, 0), -2 * 2 * 0.00390625);
  EXPECT_EQ(reference::bias_matrix(any_encoding(both), token_range(3), 2)(0, 1, 2, 0), -2 * 2 * 0.00390625);
  POSENC_EXPECT_ERROR(reference::bias_matrix(alibi(2), token_range(3), 4), errc::invalid_shape, "encoding");
  POSENC_EXPECT_ERROR(reference::bias_matrix(any_encoding(alibi(2)), token_range(3), 4), errc::invalid_shape,
                      "encoding");
  POSENC_EXPECT_ERROR(reference::bias_matrix(alibi(2), token_range(3), 0), errc::invalid_shape, "heads");
}

TEST(Scores, RotatedScoreDependsOnTheDistance) {
  // d 8: scores at (0, 2), (2, 4) and (3, 5) are equal.
  std::vector<double> q, k;
  for (int i = 0; i < 8; ++i) {
    q.push_back(0.25 * i - 1);
    k.push_back(1.5 - 0.5 * i);
  }
  const rope encoding{frequency_ladder(8)};
  const auto score = [&](double at_q, double at_k) {
    return reference::score_matrix(view_bhtd(q.data(), 1, 1, 1, 8), view_bhtd(k.data(), 1, 1, 1, 8),
                                   {token_range(1, at_q), token_range(1, at_k)}, encoding, bidirectional{})
        .scores(0, 0, 0, 0);
  };
  EXPECT_NEAR(score(0, 2), score(2, 4), 1e-14);
  EXPECT_NEAR(score(0, 2), score(3, 5), 1e-14);
  EXPECT_GT(std::abs(score(0, 2) - score(0, 3)), 0.1);
  // Turned by hand: the pair (x, y) = (q[0], q[4]) by one radian a position, (q[1], q[5]) by 0.1, ...
  double expected = 0;
  for (int i = 0; i < 4; ++i) {
    const double angle = 2 * std::pow(10000.0, -i / 4.0);
    const auto a = static_cast<std::size_t>(i), b = a + 4;
    expected += q[a] * (k[a] * std::cos(angle) - k[b] * std::sin(angle)) +
                q[b] * (k[a] * std::sin(angle) + k[b] * std::cos(angle));
  }
  EXPECT_NEAR(score(0, 2), expected / std::sqrt(8.0), 1e-14);
}

TEST(Weights, RowsAddUpToOneAndKeepToTheMask) {
  std::vector<double> x;
  for (int i = 0; i < 2 * 6 * 4; ++i) x.push_back(std::sin(1.7 * i));
  const auto view = view_bhtd(x.data(), 1, 2, 6, 4);
  const auto weights = reference::attention_weights(view, view, token_range(6), nope{}, window_of(3));
  for (index_t h = 0; h < 2; ++h)
    for (index_t q = 0; q < 6; ++q) {
      double sum = 0;
      for (index_t k = 0; k < 6; ++k) {
        sum += weights(0, h, q, k);
        EXPECT_EQ(weights(0, h, q, k) > 0, k <= q && k > q - 3);
      }
      EXPECT_NEAR(sum, 1, 1e-15);
    }
}

TEST(Reference, ReportsTheErrorsOfAttention) {
  tiny t;
  std::vector<double> out(2);
  const auto out_view = view_bhtd(out.data(), 1, 1, 2, 1);
  const auto run = [&](const token_pair& tokens, const auto& encoding, const auto& mask,
                       attention_options options = {}) {
    reference::attention(t.q_view(), t.k_view(), t.v_view(), out_view, tokens, encoding, mask, options);
  };
  POSENC_EXPECT_ERROR((run({token_range(3), token_range(2)}, nope{}, causal{})), errc::invalid_shape, "tokens.q");
  POSENC_EXPECT_ERROR((run(token_range(2), alibi(3), causal{})), errc::invalid_shape, "alibi");
  POSENC_EXPECT_ERROR((run(token_range(2), nope{}, chunk{})), errc::invalid_value, "chunk.size");
  attention_options options;
  options.softcap = -1;
  POSENC_EXPECT_ERROR((run(token_range(2), nope{}, causal{}, options)), errc::invalid_value, "softcap");
  const auto narrow = view_bhtd(t.k.data(), 1, 1, 1, 2);
  POSENC_EXPECT_ERROR(
      (reference::attention_weights(t.q_view(), narrow, {token_range(2), token_range(1)}, nope{}, causal{})),
      errc::invalid_shape, "k");
}

// ---- stored results ----

using nlohmann::json;

std::vector<double> numbers(const json& value) {
  std::vector<double> result;
  if (value.is_array()) {
    for (const json& element : value)
      for (const double x : numbers(element)) result.push_back(x);
  } else if (value.is_string()) {
    result.push_back(value == "nan" ? not_a_number : value == "inf" ? infinite : -infinite);
  } else {
    result.push_back(value.get<double>());
  }
  return result;
}

any_encoding encoding_of(const json& e) {
  const std::string type = e.at("type");
  if (type == "rope") {
    rope_options options;
    options.pairing = e.at("style") == "half" ? pairing::half : pairing::interleaved;
    options.offset = e.at("offset");
    return rope(frequency_ladder::from_inv_freq(numbers(e.at("inv_freq")), e.at("attention_factor").get<double>()),
                options);
  }
  if (type == "alibi") return alibi(std::span<const double>(numbers(e.at("slopes"))));
  EXPECT_EQ(type, "t5");
  const std::vector<double> table = numbers(e.at("table"));
  const auto heads = static_cast<index_t>(e.at("table")[0].size());
  return t5_bucket(table.data(), heads,
                   {.num_buckets = e.at("num_buckets"),
                    .max_distance = e.at("max_distance"),
                    .bidirectional = e.at("bidirectional")});
}

any_mask mask_of(const json& rule) {
  const std::string kind = rule.begin().key();
  const json& value = rule.begin().value();
  if (kind == "causal") return causal{};
  if (kind == "window") return sliding_window{value.at("left"), value.at("right")};
  if (kind == "and") return mask_of(value[0]) & mask_of(value[1]);
  EXPECT_EQ(kind, "all");
  return bidirectional{};
}

token_list tokens_of(const json& c, const std::string& side, index_t count) {
  token_list tokens;
  tokens.batch = c.at("batch");
  tokens.count = count;
  tokens.positions = numbers(c.at(side + "_positions"));
  for (const double x : numbers(c.value(side + "_documents", json::array())))
    tokens.documents.push_back(static_cast<std::int64_t>(x));
  for (const double x : numbers(c.value("cu_seqlens_" + side, json::array())))
    tokens.cu_seqlens.push_back(static_cast<std::int64_t>(x));
  return tokens;
}

template <class T>
class StoredCases : public ::testing::Test {};
using element_types = ::testing::Types<double, float, half, bfloat16>;
TYPED_TEST_SUITE(StoredCases, element_types);

// Inputs are exact in every type, so that the reference has to give the same from all of them.
TYPED_TEST(StoredCases, AgreeFromEveryElementType) {
  std::ifstream stream(std::string(POSENC_TEST_DATA_DIR) + "/testing_attention.json");
  ASSERT_TRUE(stream.good());
  int checked = 0;
  const json document = json::parse(stream);
  for (const json& c : document.at("data").at("cases")) {
    SCOPED_TRACE(c.at("name").get<std::string>());
    const auto elements = [&](const char* name) {
      std::vector<TypeParam> result;
      for (const double& x : numbers(c.at(name)))
        result.push_back(static_cast<TypeParam>(static_cast<compute_type<TypeParam>>(x)));
      return result;
    };
    const auto q = elements("q"), k = elements("k"), v = elements("v");
    const index_t batch = c.at("batch"), heads = c.at("heads"), kv_heads = c.at("kv_heads");
    const index_t q_len = c.at("q_len"), kv_len = c.at("kv_len"), dim = c.at("head_dim"),
                  value_dim = c.at("v_head_dim");
    const std::vector<double> sinks = c.at("sinks").is_null() ? std::vector<double>() : numbers(c.at("sinks"));
    attention_options options;
    options.scale = c.at("scale").get<double>();
    options.softcap = c.at("softcap").is_null() ? 0 : c.at("softcap").get<double>();
    options.sinks = sinks;
    std::vector<double> out(static_cast<std::size_t>(batch * heads * q_len * value_dim), 7),
        lse(static_cast<std::size_t>(batch * heads * q_len), 7);
    options.lse = lse_view(lse.data(), batch, heads, q_len);
    const token_list q_tokens = tokens_of(c, "q", q_len), k_tokens = tokens_of(c, "k", kv_len);
    const any_encoding encoding = encoding_of(c.at("encoding"));
    const any_mask mask = mask_of(c.at("mask_rule"));
    reference::attention(
        view_bhtd(q.data(), batch, heads, q_len, dim), view_bhtd(k.data(), batch, kv_heads, kv_len, dim),
        view_bhtd(v.data(), batch, kv_heads, kv_len, value_dim), view_bhtd(out.data(), batch, heads, q_len, value_dim),
        {q_tokens.view(), k_tokens.view()}, encoding, mask, options);
    EXPECT_THAT(out, all_near(numbers(c.at("output")), 1e-13));
    EXPECT_THAT(lse, all_near(numbers(c.at("lse")), 1e-13, 1e-13));
    ++checked;
  }
  EXPECT_EQ(checked, 7);
}

}  // namespace
