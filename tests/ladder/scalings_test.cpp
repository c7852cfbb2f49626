// SPDX-License-Identifier: Apache-2.0
// Position interpolation, NTK-aware, llama3 and frequency factors: known answers and properties.
#include <posenc/ladder/dialect.hpp>
#include <posenc/ladder/frequency_factors.hpp>
#include <posenc/ladder/llama3.hpp>
#include <posenc/ladder/ntk_aware.hpp>
#include <posenc/ladder/position_interpolation.hpp>

#include "ladder_support.hpp"
#include "support/expect_error.hpp"

namespace {

using namespace posenc;
using namespace ladder_test;

constexpr llama3 llama31{.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_context = 8192};

TEST(PositionInterpolation, PositionsBecomeHalves) {
  const frequency_ladder plain(64);
  const frequency_ladder ladder = plain | position_interpolation{.factor = 2};
  for (index_t i = 0; i < 32; ++i) {
    for (double position : {0.0, 1.0, 2.0, 4095.0})
      EXPECT_EQ(position * ladder.inv_freq(i), position / 2 * plain.inv_freq(i));
  }
  EXPECT_EQ(ladder.base(), 10000.0);
}

TEST(NtkAware, KnownAnswers) {
  const frequency_ladder ladder = frequency_ladder(64) | ntk_aware{.factor = 4};
  EXPECT_NEAR(ladder.base(), 41829, 0.5);
  const double expected[] = {1.0000, 0.7171, 0.5142, 0.3688, 0.2644};
  const double unscaled[] = {1.0000, 0.7499, 0.5623, 0.4217, 0.3162};
  for (index_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(ladder.inv_freq(i), expected[i], 5e-5);
    EXPECT_NEAR(frequency_ladder(64).inv_freq(i), unscaled[i], 5e-5);
  }
}

TEST(NtkAware, FastestPairIsUntouchedAndSlowestIsDividedByTheFactor) {
  const frequency_ladder plain(128);
  const frequency_ladder ladder = plain | ntk_aware{.factor = 4};
  EXPECT_EQ(ladder.inv_freq(0), plain.inv_freq(0));
  EXPECT_EQ(ladder.inv_freq(63), plain.inv_freq(63) / 4);
  EXPECT_NEAR(ladder.base(), 10000 * std::pow(4.0, 128.0 / 126.0), 1e-9);
  // The same as a ladder that is made with that base.
  EXPECT_LE(largest_relative_deviation(ladder, frequencies(frequency_ladder(128, {.base = ladder.base()}))), 1e-15);
}

TEST(NtkAware, WithMixedB1IsTheBaseTimesTheFactorAndOneMoreDivision) {
  const frequency_ladder ladder = frequency_ladder(128) | ntk_aware{.factor = 4, .rule = ntk_rule::scaled_base};
  EXPECT_EQ(ladder.base(), 40000.0);
  EXPECT_NEAR(ladder.inv_freq(0), 0.97857206208770, 1e-13);
  EXPECT_EQ(ladder.inv_freq(63), frequency_ladder(128).inv_freq(63) / 4);
  std::vector<double> expected = frequencies(frequency_ladder(128, {.base = 40000}));
  for (double& w : expected) w /= std::pow(4.0, 2.0 / 128.0);
  EXPECT_LE(largest_relative_deviation(ladder, expected), 1e-15);
}

TEST(NtkAware, NeedsNoBase) {
  const frequency_ladder plain(64);
  const frequency_ladder own = frequency_ladder::from_inv_freq(plain.inv_freq());
  EXPECT_EQ(own | ntk_aware{.factor = 4}, plain | ntk_aware{.factor = 4});
  EXPECT_EQ((own | ntk_aware{.factor = 4}).base(), 0.0);
}

TEST(NtkAware, OnePairHasNoExponent) {
  const frequency_ladder one_pair(2);
  POSENC_EXPECT_ERROR(one_pair | ntk_aware{.factor = 4}, errc::invalid_shape, "rotary_dim: is 2");
  EXPECT_EQ((one_pair | ntk_aware{.factor = 4, .rule = ntk_rule::scaled_base}).inv_freq(0), 0.25);
}

TEST(NtkAware, BadParametersAreNamed) {
  ntk_aware scaling{.factor = 4, .mixed_b = 0.5};
  POSENC_EXPECT_ERROR(frequency_ladder(64) | scaling, errc::mismatch,
                      "mixed_b: is 0.5, which base_rescaling does not read");
  scaling.rule = ntk_rule::scaled_base;
  EXPECT_FALSE(check(frequency_ladder(64), scaling));
  for (double bad : not_positive()) {
    if (detail::is_finite(bad) && bad == 0) continue;
    scaling.mixed_b = bad;
    POSENC_EXPECT_ERROR(frequency_ladder(64) | scaling, errc::invalid_value, "mixed_b: is ");
  }
}

TEST(NtkAware, ReadAsAPeerReadsIt) {
  const ntk_aware alpha = ntk_as(dialect::vllm, {.alpha = 1000});
  EXPECT_EQ(alpha.rule, ntk_rule::base_rescaling);
  EXPECT_EQ(alpha.factor, 1000);
  EXPECT_EQ(ntk_as(dialect::llama_cpp, {.alpha = 3}).rule, ntk_rule::base_rescaling);
  const ntk_aware mixed = ntk_as(dialect::vllm, {.factor = 4, .mixed_b = 0.625});
  EXPECT_EQ(mixed.rule, ntk_rule::scaled_base);
  EXPECT_EQ(mixed.mixed_b, 0.625);
  EXPECT_EQ(ntk_as(dialect::vllm, {.factor = 4}).mixed_b, 1.0);
  POSENC_EXPECT_ERROR(ntk_as(dialect::huggingface, {.factor = 4}), errc::mismatch, "dialect: is huggingface");
  POSENC_EXPECT_ERROR(ntk_as(dialect::llama_cpp, {.factor = 4}), errc::mismatch, "factor: is not read by llama_cpp");
  POSENC_EXPECT_ERROR((ntk_as(dialect::vllm, {.factor = 4, .alpha = 2})), errc::mismatch,
                      "alpha: is 2 beside factor 4");
  POSENC_EXPECT_ERROR((ntk_as(dialect::vllm, {.alpha = 2, .mixed_b = 1})), errc::mismatch,
                      "mixed_b: is 1 without factor");
  POSENC_EXPECT_ERROR(frequency_ladder(64) | ntk_as(dialect::vllm, {}), errc::invalid_value, "factor: not given");
}

TEST(Llama3, KnownAnswersOfLlama31) {
  const frequency_ladder plain(128, {.base = 5e5});
  const frequency_ladder ladder = plain | llama31;
  EXPECT_EQ(ladder.inv_freq(28), plain.inv_freq(28)) << "last untouched pair";
  EXPECT_NE(ladder.inv_freq(29), plain.inv_freq(29)) << "first blended pair";
  EXPECT_NE(ladder.inv_freq(34), plain.inv_freq(34) / 8) << "last blended pair";
  EXPECT_EQ(ladder.inv_freq(35), plain.inv_freq(35) / 8) << "first divided pair";
  const std::pair<index_t, double> expected[] = {{28, 0.003211445994752591},  {29, 0.002166570763503359},
                                                 {31, 0.0008567514129196321}, {34, 0.0001785078127679964},
                                                 {35, 9.556212353964683e-05}, {63, 3.068925988914511e-07}};
  for (const auto& [pair, w] : expected) EXPECT_NEAR(ladder.inv_freq(pair), w, 1e-13 * w) << pair;
  EXPECT_EQ(ladder.attention_factor(), 1.0);
  EXPECT_EQ(ladder.base(), 5e5);
}

TEST(Llama3, BandsOfLlama321B) {
  const frequency_ladder plain(64, {.base = 5e5});
  llama3 scaling = llama31;
  scaling.factor = 32;
  const frequency_ladder ladder = plain | scaling;
  for (index_t i = 0; i < 32; ++i) {
    EXPECT_EQ(ladder.inv_freq(i) == plain.inv_freq(i), i < 15) << i;
    EXPECT_EQ(ladder.inv_freq(i) == plain.inv_freq(i) / 32, i >= 18) << i;
  }
}

// As Llama 4 has it.
TEST(Llama3, EqualFactorsBlendNothing) {
  const frequency_ladder plain(128, {.base = 5e5});
  const frequency_ladder ladder =
      plain | llama3{.factor = 16, .low_freq_factor = 1, .high_freq_factor = 1, .original_context = 8192};
  for (index_t i = 0; i < 64; ++i) {
    const bool fast = plain.wavelength(i) < 8192;
    EXPECT_EQ(ladder.inv_freq(i), fast ? plain.inv_freq(i) : plain.inv_freq(i) / 16) << i;
  }
}

// A pair that makes exactly as many turns as both factors say is divided, and nothing is divided by zero.
TEST(Llama3, EqualFactorsAtTheVeryBound) {
  const detail::wide per_frequency = detail::quotient(detail::wide{8192}, detail::two_pi);
  const auto at = [](double w, double bound) {
    const frequency_ladder own = frequency_ladder::from_inv_freq(std::vector<double>{w});
    const llama3 step{.factor = 4, .low_freq_factor = bound, .high_freq_factor = bound, .original_context = 8192};
    return (own | step).inv_freq(0);
  };
  int exact = 0;
  for (int k = 0; k < 20000; ++k) {  // one in 2048 of these turns is a double
    const double w = 0.5 + k * 0x1p-20;
    const detail::wide turns = detail::product(per_frequency, static_cast<detail::wide>(w));
    const double bound = static_cast<double>(turns);
    if (static_cast<detail::wide>(bound) != turns) continue;
    ++exact;
    EXPECT_EQ(at(w, bound), w / 4);
    EXPECT_EQ(at(w, std::nextafter(bound, 0)), w);
    EXPECT_EQ(at(w, std::nextafter(bound, 1e9)), w / 4);
  }
  if (std::numeric_limits<detail::wide>::digits <= 64) {
    EXPECT_GT(exact, 0);
  }
}

TEST(Llama3, BadParametersAreNamed) {
  const frequency_ladder plain(64);
  for (const double& bad : not_positive()) {
    llama3 scaling = llama31;
    scaling.low_freq_factor = bad;
    POSENC_EXPECT_ERROR(plain | scaling, errc::invalid_value, "low_freq_factor: is ");
    scaling = llama31;
    scaling.high_freq_factor = bad;
    POSENC_EXPECT_ERROR(plain | scaling, errc::invalid_value, "high_freq_factor: is ");
  }
  llama3 scaling = llama31;
  scaling.low_freq_factor = 5;
  POSENC_EXPECT_ERROR(plain | scaling, errc::mismatch, "low_freq_factor: is 5 with high_freq_factor 4");
}

TEST(FrequencyFactors, DivideEachPair) {
  const frequency_ladder plain(8);
  const frequency_ladder ladder = plain | frequency_factors{{1, 3, 0.5, 32}};
  const double factors[] = {1, 3, 0.5, 32};
  for (index_t i = 0; i < 4; ++i) EXPECT_EQ(ladder.inv_freq(i), plain.inv_freq(i) / factors[i]);
  EXPECT_EQ(ladder.provenance()[0].factor, 32);
  POSENC_EXPECT_ERROR((plain | frequency_factors{{1, 2}}), errc::invalid_shape, "factors: has 2 elements; allowed: 4");
}

// llama3's scaling as model files bake it into factors, one a pair.
TEST(FrequencyFactors, GiveLlama3) {
  const frequency_ladder plain(128, {.base = 5e5});
  const frequency_ladder ladder = plain | llama31;
  frequency_factors baked;
  for (index_t i = 0; i < 64; ++i) baked.factors.push_back(plain.inv_freq(i) / ladder.inv_freq(i));
  EXPECT_LE(largest_relative_deviation(plain | baked, frequencies(ladder)), 4e-16);
}

}  // namespace
