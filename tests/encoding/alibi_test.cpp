// SPDX-License-Identifier: Apache-2.0
#include <posenc/encoding/alibi.hpp>
#include <posenc/encoding/any_encoding.hpp>

#include <bit>
#include <random>

#include "encoding/encoding_support.hpp"

namespace {

using namespace encoding_test;
using posenc::alibi;
using posenc::alibi_slopes;

TEST(AlibiSlopes, AreTheReferencesForEveryHeadCount) {
  const json data = data_of("encoding_alibi_slopes.json");
  std::size_t cases = 0;
  for (const json& c : data.at("cases")) {
    const auto heads = c.at("heads").get<index_t>();
    const numbers expected = c.at("slopes");
    const numbers slopes = alibi_slopes(heads, c.at("max_bias"));
    ASSERT_EQ(slopes.size(), expected.size());
    for (std::size_t h = 0; h < slopes.size(); ++h) {
      EXPECT_NEAR(slopes[h] / expected[h], 1, 1e-15) << heads << " heads, head " << h;
      EXPECT_NEAR(static_cast<float>(slopes[h]) / expected[h], 1, 1e-7) << heads << " heads, head " << h;
    }
    ++cases;
  }
  EXPECT_EQ(cases, 55U);
}

TEST(AlibiSlopes, AreThoseOfTheNextPowerOfTwoReordered) {
  // The same slopes the other way round: every second of the next power of two's, then those between, as many as needed.
  for (index_t heads = 1; heads < 200; ++heads)
    for (const double max_bias : {8.0, 16.0, 5.5}) {
      const auto power = static_cast<index_t>(std::bit_ceil(static_cast<std::size_t>(heads)));
      const bool whole = power == heads;
      numbers expected;
      for (index_t h = whole ? 1 : 2; h <= power; h += whole ? 1 : 2)
        expected.push_back(std::pow(2.0, -max_bias * static_cast<double>(h) / static_cast<double>(power)));
      for (index_t h = 1; h < power && !whole; h += 2)
        expected.push_back(std::pow(2.0, -max_bias * static_cast<double>(h) / static_cast<double>(power)));
      expected.resize(static_cast<std::size_t>(heads));
      EXPECT_LE(largest_difference(alibi_slopes(heads, max_bias), expected), 1e-15) << heads;
    }
}

TEST(AlibiSlopes, OfEightHeadsAreThePapers) {
  // 2^-1 ... 2^-8; a variant that starts at 2^0 is not what models were trained with.
  const numbers slopes = alibi_slopes(8);
  for (int h = 0; h < 8; ++h) EXPECT_EQ(slopes[static_cast<std::size_t>(h)], std::ldexp(1.0, -h - 1));
}

TEST(AlibiSlopes, ReportsOfWrongOnes) {
  for (const char* id : {"BR-060", "BR-061"}) {
    const json c = report(id);
    const numbers slopes = alibi_slopes(c.at("inputs").at("n_heads"), c.at("inputs").at("max_bias"));
    const double tolerance = c.at("tolerance").at("abs_f64");
    EXPECT_LE(largest_difference(slopes, c.at("expected").at("slopes").get<numbers>()), tolerance) << id;
    EXPECT_GT(largest_difference(slopes, c.at("wrong").at("slopes").get<numbers>()), tolerance) << id;
  }
}

TEST(AlibiSlopes, MaxBiasIsHonouredAndZeroMeansNone) {
  const json c = report("BR-063");
  const index_t heads = c.at("inputs").at("n_heads");
  const json& expected = c.at("expected").at("slopes");
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const numbers slopes = alibi_slopes(heads, c.at("inputs").at("max_bias_list").at(i));
    const numbers right = expected[i].is_array() ? expected[i].get<numbers>() : numbers(4, 0.0);
    EXPECT_LE(largest_difference(slopes, right), 1e-16);
    EXPECT_GT(largest_difference(slopes, c.at("wrong").at("slopes").at(i).get<numbers>()), 1e-16);
  }
  const alibi none(heads, {.max_bias = 0});
  for (const float bias : bias_row<float>(none, {5}, {range(0, 6)}, 3, true)) EXPECT_EQ(bias, 0.0F);
}

TEST(AlibiSlopes, BadArgumentsAreErrors) {
  POSENC_EXPECT_ERROR(alibi_slopes(0), posenc::errc::invalid_shape, "heads: is 0");
  POSENC_EXPECT_ERROR(alibi_slopes(8, -1), posenc::errc::invalid_value, "max_bias: is -1");
  for (const double& bad : not_finite())
    POSENC_EXPECT_ERROR(alibi_slopes(8, bad), posenc::errc::invalid_value, "max_bias");
}

template <class Real>
class Alibi : public testing::Test {};
TYPED_TEST_SUITE(Alibi, real_types, real_names);

TYPED_TEST(Alibi, BiasFallsWithTheDistance) {
  const json c = report("BR-066");
  const numbers slope{c.at("inputs").at("slope")};
  const alibi encoding{std::span<const double>(slope)};
  const auto right = c.at("expected").at("bias").get<std::vector<numbers>>();
  const auto wrong = c.at("wrong").at("bias").get<std::vector<numbers>>();
  double away = 0;
  for (std::size_t q = 0; q < right.size(); ++q) {
    const auto bias = bias_row<TypeParam>(encoding, {static_cast<double>(q)}, {range(0, 4)}, 0, true);
    EXPECT_LE(largest_difference(bias, right[q]), 1e-15);
    away = (std::max)(away, largest_difference(bias, wrong[q]));
  }
  EXPECT_GT(away, 1e-7);
}

/// The weights of a row of scores.
template <class Real>
numbers softmax(const std::vector<Real>& scores) {
  numbers weights;
  double sum = 0;
  for (const Real s : scores) sum += weights.emplace_back(std::exp(static_cast<double>(s)));
  for (double& w : weights) w /= sum;
  return weights;
}

TYPED_TEST(Alibi, WeightsOfReports) {
  // A decoding query must not stand at position 0, and near keys weigh more than far ones.
  for (const char* id : {"BR-064", "BR-065"}) {
    const json c = report(id);
    const numbers slope{c.at("inputs").at("slope")};
    const alibi encoding{std::span<const double>(slope)};
    const auto bias = bias_row<TypeParam>(encoding, {c.at("inputs").at("q_position").get<double>()},
                                          {c.at("inputs").at("k_positions").get<numbers>()}, 0, true);
    const double tolerance = c.at("tolerance").at(std::is_same_v<TypeParam, double> ? "abs_f64" : "abs_f32");
    EXPECT_LE(largest_difference(bias, c.at("expected").at("bias").get<numbers>()), tolerance) << id;
    EXPECT_LE(largest_difference(softmax(bias), c.at("expected").at("weights").get<numbers>()), tolerance) << id;
    EXPECT_GT(largest_difference(bias, c.at("wrong").at("bias").get<numbers>()), tolerance) << id;
    EXPECT_GT(largest_difference(softmax(bias), c.at("wrong").at("weights").get<numbers>()), tolerance) << id;
  }
}

TYPED_TEST(Alibi, SignedBiasIsSlopeTimesKeyMinusQuery) {
  const alibi plain(2), with_sign(2, {.is_signed = true});
  const numbers keys = range(-3, 40);
  for (const index_t head : {0, 1}) {
    const auto p = bias_row<TypeParam>(plain, {7}, {keys}, head, true);
    const auto s = bias_row<TypeParam>(with_sign, {7}, {keys}, head, true);
    for (std::size_t j = 0; j < keys.size(); ++j) {
      const double slope = alibi_slopes(2)[static_cast<std::size_t>(head)];
      EXPECT_EQ(s[j], static_cast<TypeParam>(slope * (keys[j] - 7)));
      EXPECT_EQ(p[j], static_cast<TypeParam>(-slope * std::fabs(keys[j] - 7)));
    }
  }
}

TYPED_TEST(Alibi, ConsecutiveKeysGiveTheSameBits) {
  std::mt19937 random(7);
  const alibi encoding(12);
  for (int trial = 0; trial < 200; ++trial) {
    const double first = std::uniform_int_distribution<int>(-5000, 1'000'000)(random);
    const double query = first + std::uniform_int_distribution<int>(-70, 70)(random);
    const index_t head = trial % 12;
    const numbers keys = range(first, 64);
    EXPECT_EQ((bias_row<TypeParam>(encoding, {query}, {keys}, head, true)),
              (bias_row<TypeParam>(encoding, {query}, {keys}, head, false)));
  }
}

TYPED_TEST(Alibi, TakesFractionalNegativeAndFarPositions) {
  const numbers slope{0.75};
  const alibi encoding{std::span<const double>(slope)};
  // 2^40 + ...: the distance is formed in double, so float keeps it.
  const double far = 1099511627776.0;
  const numbers keys{far, far - 2.5, far + 8, -1.25};
  const auto bias = bias_row<TypeParam>(encoding, {far + 0.5}, {keys}, 0, false);
  EXPECT_EQ(bias[0], TypeParam(-0.375));
  EXPECT_EQ(bias[1], TypeParam(-2.25));
  EXPECT_EQ(bias[2], TypeParam(-5.625));
  EXPECT_NEAR(bias[3] / (0.75 * far), -1, 1e-6);
}

TYPED_TEST(Alibi, ReadsTheNamedAxis) {
  const std::vector<numbers> keys{{0, 0, 0}, {4, 5, 9}};
  const auto bias = bias_row<TypeParam>(alibi(1, {.axis = 1}), {100, 5}, keys, 0, false);
  EXPECT_EQ(bias[0], TypeParam(-1.0 / 256));
  EXPECT_EQ(bias[1], TypeParam(0));
  EXPECT_EQ(bias[2], TypeParam(-4.0 / 256));
}

TYPED_TEST(Alibi, ChosenAtRunTimeIsTheSame) {
  const alibi encoding(8);
  const posenc::any_encoding any = encoding;
  const numbers keys = range(3, 64);
  EXPECT_EQ((bias_row<TypeParam>(any, {20}, {keys}, 5, true)), (bias_row<TypeParam>(encoding, {20}, {keys}, 5, true)));
}

TEST(AlibiArguments, OwnSlopesOfAnySign) {
  const std::vector<float> floats{0.5F, 0.0F, -0.25F};
  const alibi encoding{std::span<const float>(floats)};
  EXPECT_EQ(encoding.slopes().size(), 3U);
  EXPECT_EQ((bias_row<double>(encoding, {4}, {{0.0}}, 0, false))[0], -2.0);
  EXPECT_EQ((bias_row<double>(encoding, {4}, {{0.0}}, 1, false))[0], 0.0);
  EXPECT_EQ((bias_row<double>(encoding, {4}, {{0.0}}, 2, false))[0], 1.0);
}

TEST(AlibiArguments, BadOnesAreErrors) {
  const numbers none;
  POSENC_EXPECT_ERROR(alibi(std::span<const double>(none)), posenc::errc::invalid_shape, "slopes: has none");
  const numbers good{0.5};
  POSENC_EXPECT_ERROR((alibi(std::span<const double>(good), {.max_bias = 16})), posenc::errc::mismatch,
                      "max_bias: is 16");
  POSENC_EXPECT_ERROR((alibi(4, {.axis = -1})), posenc::errc::invalid_value, "axis: is -1");
  POSENC_EXPECT_ERROR((alibi(std::span<const double>(good), {.axis = 8})), posenc::errc::invalid_value, "axis: is 8");
  for (const double& bad : not_finite()) {
    const numbers slopes{0.5, bad};
    POSENC_EXPECT_ERROR(alibi(std::span<const double>(slopes)), posenc::errc::invalid_value, "for head 1");
  }
}

TEST(AlibiArguments, CheckComparesHeadsAndAxes) {
  const auto tokens = posenc::token_range(4);
  EXPECT_EQ(check_text(alibi(8), tokens, 8, 2, 16), "");
  EXPECT_NE(check_text(alibi(8), tokens, 4, 2, 16).find("alibi has slopes for 8 heads; the call has 4 query heads"),
            std::string::npos);
  EXPECT_NE(check_text(alibi(8, {.axis = 1}), tokens, 8, 2, 16).find("position axis 1"), std::string::npos);
}

// Distances of queries at fractional positions are formed in double and rounded once, of keys in a row as of others.
TEST(Alibi, DistancesAreRoundedOnce) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> fraction(0, 1), start(-3e6, 3e6);
  for (int i = 0; i < 2000; ++i) {
    double keys[block_keys];
    const double first = std::floor(start(random)), query = first + 40 * fraction(random) - 20 + fraction(random);
    for (index_t j = 0; j < block_keys; ++j) keys[j] = first + static_cast<double>(j);
    const posenc::score_keys<float, true> in_a_row(keys, block_keys, &query);
    const posenc::score_keys<float, false> any(keys, block_keys, &query);
    constexpr int lanes = posenc::simd::vec<float>::lanes;
    float distances[lanes], others[lanes];
    posenc::simd::store(distances, in_a_row.distance());
    posenc::simd::store(others, any.distance());
    for (int j = 0; j < lanes; ++j) {
      EXPECT_EQ(distances[j], static_cast<float>(keys[j] - query)) << keys[j] << " " << query;
      EXPECT_EQ(others[j], distances[j]);
    }
  }
}

}  // namespace
