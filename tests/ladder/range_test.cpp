// SPDX-License-Identifier: Apache-2.0
// Scalings whose result double cannot hold: the ladder is in range, the parameters are in range, both together are not.
#include <posenc/ladder/frequency_factors.hpp>
#include <posenc/ladder/llama3.hpp>
#include <posenc/ladder/ntk_aware.hpp>
#include <posenc/ladder/position_interpolation.hpp>
#include <posenc/ladder/yarn.hpp>

#include <string>
#include <vector>

#include "ladder_support.hpp"
#include "support/expect_error.hpp"

namespace {

using namespace posenc;
using namespace ladder_test;

/// `check` says what the pipe raises, and both name the argument and the result.
template <class Scaling>
void expect_out_of_range(const frequency_ladder& ladder, const Scaling& scaling, const std::string& text) {
  const maybe_error value = check(ladder, scaling);
  ASSERT_TRUE(value.has_value()) << text;
  EXPECT_EQ(value->code(), errc::invalid_value);
  EXPECT_NE(std::string(value->what()).find(text), std::string::npos) << value->what();
  EXPECT_NE(std::string(value->what()).find("allowed"), std::string::npos) << value->what();
  POSENC_EXPECT_ERROR(ladder | scaling, errc::invalid_value, text);
}

frequency_ladder ladder_of(double w) { return frequency_ladder::from_inv_freq(std::vector<double>{1, w}, 1, 10000); }

TEST(ScalingRange, FrequenciesThatBecomeZeroDenormalOrInfinite) {
  expect_out_of_range(ladder_of(1e-290), position_interpolation{.factor = 1e50},
                      "factor: is 1e+50, which makes 0 of frequency 1, 1e-290");
  // 1e-310, or 0 where the caller's floating-point mode flushes it.
  expect_out_of_range(ladder_of(1e-290), position_interpolation{.factor = 1e20}, "factor: is 1e+20, which makes ");
  expect_out_of_range(ladder_of(1e290), position_interpolation{.factor = 1e-50}, "factor: is 1e-50, which makes inf");
  expect_out_of_range(ladder_of(1e-290), ntk_aware{.factor = 1e50}, "factor: is 1e+50");
  expect_out_of_range(ladder_of(1e-290), ntk_aware{.factor = 1e50, .rule = ntk_rule::scaled_base}, "factor: is 1e+50");
  expect_out_of_range(ladder_of(1e-290), llama3{.factor = 1e50, .original_context = 8192}, "factor: is 1e+50");
  expect_out_of_range(ladder_of(1e-290), yarn{.factor = 1e50, .original_context = 8192, .extrapolation_factor = 0},
                      "factor: is 1e+50");
  expect_out_of_range(ladder_of(1e-290), frequency_factors{{1, 1e50}},
                      "factors: is 1e+50, which makes 0 of frequency 1");
}

TEST(ScalingRange, StackedScalingsThatLeaveIt) {
  const position_interpolation part{.factor = 1e50};
  frequency_ladder ladder = frequency_ladder(4) | part;
  for (int i = 0; i < 5; ++i) ladder = ladder | stacked(part);
  expect_out_of_range(ladder, stacked(part), "factor: is 1e+50, which makes 0 of frequency 0");
  EXPECT_GT(ladder.inv_freq(1), 0);
}

TEST(ScalingRange, BasesAndAttentionFactors) {
  frequency_ladder based = frequency_ladder::from_inv_freq(std::vector<double>{1, 0.01}, 1, 1e250);
  expect_out_of_range(based, ntk_aware{.factor = 1e40}, "factor: is 1e+40, which makes inf of the base 1e+250");
  frequency_ladder loud = frequency_ladder::from_inv_freq(std::vector<double>{1, 0.01}, 1e300, 10000);
  expect_out_of_range(loud, yarn{.factor = 2, .original_context = 8192, .attention_factor = 1e40},
                      "which makes inf of the ladder's attention factor 1e+300");
}

TEST(ScalingRange, PairsThatNeverTurnStayZero) {
  const frequency_ladder ladder = frequency_ladder::from_inv_freq(std::vector<double>{1, 0}, 1, 10000);
  EXPECT_FALSE(check(ladder, position_interpolation{.factor = 1e50}).has_value());
  EXPECT_EQ((ladder | position_interpolation{.factor = 1e50}).inv_freq(1), 0);
  EXPECT_FALSE(check(ladder_of(5e-324), position_interpolation{.factor = 1}).has_value())
      << "what was denormal may stay";
}

}  // namespace
