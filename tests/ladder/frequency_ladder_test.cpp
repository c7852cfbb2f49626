// SPDX-License-Identifier: Apache-2.0
#include <posenc/ladder/frequency_ladder.hpp>
#include <posenc/ladder/rotary_dim.hpp>

#include "ladder_support.hpp"
#include "support/expect_error.hpp"

namespace {

using namespace posenc;
using namespace ladder_test;

static_assert(!std::is_convertible_v<index_t, frequency_ladder>);
static_assert(std::is_nothrow_move_constructible_v<frequency_ladder>);

// The spacing of doubles at x.
double ulp(double x) { return std::nextafter(x, 2 * x) - x; }

TEST(FrequencyLadder, IsCorrectlyRoundedOrOneUlpOff) {
  int off = 0;
  for (const json& c : cases_of("ladder_exact.json")) {
    const frequency_ladder ladder(c.at("rotary_dim"), {.base = c.at("base")});
    const std::vector<double> exact = c.at("inv_freq");
    ASSERT_EQ(static_cast<std::size_t>(ladder.size()), exact.size());
    for (std::size_t i = 0; i < exact.size(); ++i) {
      EXPECT_LE(std::abs(ladder.inv_freq()[i] - exact[i]), ulp(exact[i])) << c.at("base") << " pair " << i;
      off += ladder.inv_freq()[i] != exact[i];
    }
  }
  if (std::numeric_limits<long double>::digits >= 64) {
    EXPECT_LE(off, 1) << "long double leaves next to nothing to double rounding";
  }
}

TEST(FrequencyLadder, TheSmallestHasOnePairThatTurnsOneRadian) {
  const frequency_ladder ladder(2, {.base = 123.0});
  EXPECT_EQ(ladder.size(), 1);
  EXPECT_EQ(ladder.rotary_dim(), 2);
  EXPECT_EQ(ladder.inv_freq(0), 1.0);
}

TEST(FrequencyLadder, DefaultBaseIs10000) {
  const frequency_ladder ladder(8);
  EXPECT_EQ(ladder.base(), 10000.0);
  EXPECT_EQ(frequencies(ladder), (std::vector<double>{1.0, 0.1, 0.01, 0.001}));
  EXPECT_EQ(ladder.attention_factor(), 1.0);
  EXPECT_TRUE(ladder.provenance().empty());
}

TEST(FrequencyLadder, WavelengthsOfTheTextbook) {
  const frequency_ladder ladder(8);
  EXPECT_NEAR(ladder.wavelength(0), 6.283185307179586, 1e-15);
  EXPECT_NEAR(ladder.wavelength(3), 6283.185307179586, 1e-12);
}

TEST(FrequencyLadder, BelowOneTheFrequenciesRise) {
  const frequency_ladder ladder(4, {.base = 0.25});
  EXPECT_EQ(ladder.inv_freq(1), 2.0);
}

TEST(FrequencyLadder, BadArgumentsAreNamed) {
  for (index_t bad : {index_t{0}, index_t{-2}, index_t{1}, index_t{63}}) {
    POSENC_EXPECT_ERROR(frequency_ladder(bad), errc::invalid_shape, "rotary_dim: is " + std::to_string(bad));
  }
  for (const double& bad : not_positive()) {
    const ladder_options options{.base = bad};
    POSENC_EXPECT_ERROR(frequency_ladder(64, options), errc::invalid_value, "base: is ");
    EXPECT_TRUE(frequency_ladder::check(64, options));
  }
  EXPECT_FALSE(frequency_ladder::check(64, {.base = 0.5}));
}

TEST(FrequencyLadder, AskingForAPairThatIsNotThere) {
  const frequency_ladder ladder(8);
  POSENC_EXPECT_ERROR(ladder.inv_freq(4), errc::out_of_range, "i: is 4; allowed: 0 to 3");
  POSENC_EXPECT_ERROR(ladder.wavelength(-1), errc::out_of_range, "i: is -1");
}

TEST(FrequencyLadder, OwnFrequencies) {
  const std::vector<double> own = {3.0, 0.0, 0.5};
  const frequency_ladder ladder = frequency_ladder::from_inv_freq(own, 1.5);
  EXPECT_EQ(ladder.rotary_dim(), 6);
  EXPECT_EQ(frequencies(ladder), own);
  EXPECT_EQ(ladder.attention_factor(), 1.5);
  EXPECT_EQ(ladder.base(), 0.0);
  EXPECT_EQ(ladder.describe(), "own frequencies (3 pairs)");
  EXPECT_EQ(ladder.wavelength(1), (std::numeric_limits<double>::max)());
}

TEST(FrequencyLadder, BadOwnFrequenciesAreNamed) {
  POSENC_EXPECT_ERROR(frequency_ladder::from_inv_freq({}), errc::invalid_shape, "inv_freq: is empty");
  const std::span<const double> null(static_cast<const double*>(nullptr), 4);
  POSENC_EXPECT_ERROR(frequency_ladder::from_inv_freq(null), errc::invalid_layout, "inv_freq: is null");
  std::vector<double> own = {1.0, -0.1};
  POSENC_EXPECT_ERROR(frequency_ladder::from_inv_freq(own), errc::invalid_value, "[1] is -0.1");
  for (const double& bad : not_finite()) {
    own[1] = bad;
    POSENC_EXPECT_ERROR(frequency_ladder::from_inv_freq(own), errc::invalid_value, "inv_freq: [1] is ");
  }
  own[1] = 0.1;
  for (const double& bad : not_positive()) {
    POSENC_EXPECT_ERROR(frequency_ladder::from_inv_freq(own, bad), errc::invalid_value, "attention_factor: is ");
  }
  for (const double& bad : not_finite()) {
    POSENC_EXPECT_ERROR(frequency_ladder::from_inv_freq(own, 1.0, bad), errc::invalid_value, "base: is ");
  }
}

TEST(FrequencyLadder, EqualityIsByBitsOfFrequenciesAndAttentionFactor) {
  const frequency_ladder a(64);
  EXPECT_EQ(a, frequency_ladder(64));
  EXPECT_EQ(a, frequency_ladder::from_inv_freq(a.inv_freq())) << "history and base do not count";
  EXPECT_NE(a, frequency_ladder(66));
  EXPECT_NE(a, frequency_ladder(64, {.base = 10001}));
  EXPECT_NE(a, a.with_attention_factor(1.25));
  std::vector<double> nearly = frequencies(a);
  nearly[31] = std::nextafter(nearly[31], 1.0);
  EXPECT_NE(a, a.with_inv_freq(nearly));
  const std::vector<double> zero = {0.0};
  const std::vector<double> minus_zero = {-0.0};
  EXPECT_EQ(frequency_ladder::from_inv_freq(zero), frequency_ladder::from_inv_freq(minus_zero));
}

TEST(FrequencyLadder, ReplacingKeepsTheNumberOfPairs) {
  const frequency_ladder ladder(8);
  POSENC_EXPECT_ERROR(ladder.with_inv_freq(std::vector<double>{1.0, 2.0}), errc::invalid_shape,
                      "inv_freq: has 2 elements; allowed: 4");
  POSENC_EXPECT_ERROR(ladder.with_inv_freq(std::vector<double>{1.0, 2.0, 3.0, -4.0}), errc::invalid_value,
                      "inv_freq: [3] is -4");
  for (const double& bad : not_positive()) {
    POSENC_EXPECT_ERROR(ladder.with_attention_factor(bad), errc::invalid_value, "attention_factor: is ");
  }
}

struct partial_case {
  index_t head_dim;
  double factor;
  index_t rotary_dim;
};

class PartialRotary : public testing::TestWithParam<partial_case> {};

TEST_P(PartialRotary, CutsToAWholeNumber) {
  EXPECT_EQ(partial_rotary_dim(GetParam().head_dim, GetParam().factor), GetParam().rotary_dim);
  EXPECT_FALSE(check_partial_rotary_dim(GetParam().head_dim, GetParam().factor));
}

INSTANTIATE_TEST_SUITE_P(Models, PartialRotary,
                         testing::Values(partial_case{96, 0.25, 24}, partial_case{80, 0.25, 20},
                                         partial_case{80, 0.4, 32}, partial_case{128, 0.75, 96},
                                         partial_case{64, 1.0, 64}, partial_case{2, 1.0, 2},
                                         partial_case{100, 0.29, 28}));  // 28.999999999999996

TEST(PartialRotary, BadArgumentsAreNamed) {
  POSENC_EXPECT_ERROR(partial_rotary_dim(10, 0.3), errc::invalid_shape, "is 0.3, which makes 3 of 10");
  POSENC_EXPECT_ERROR(partial_rotary_dim(4, 0.1), errc::invalid_shape, "makes 0 of 4");
  POSENC_EXPECT_ERROR(partial_rotary_dim(0, 1.0), errc::invalid_shape, "head_dim: is 0");
  POSENC_EXPECT_ERROR(partial_rotary_dim(64, 1.5), errc::invalid_value, "partial_rotary_factor: is 1.5");
  for (const double& bad : not_positive()) {
    POSENC_EXPECT_ERROR(partial_rotary_dim(64, bad), errc::invalid_value, "partial_rotary_factor: is ");
  }
}

}  // namespace
