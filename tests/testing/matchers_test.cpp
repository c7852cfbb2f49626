// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <posenc/core/eigen.hpp>
#include <posenc/core/error.hpp>
#include <posenc/core/tensor_view.hpp>
#include <posenc/testing/matchers.hpp>

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace posenc;
using posenc::testing::all_finite;
using posenc::testing::all_near;
using posenc::testing::error_names;
using posenc::testing::no_error;
using posenc::testing::same_bits_as;
using ::testing::AllOf;
using ::testing::Not;

const double not_a_number = std::bit_cast<double>(std::uint64_t{0x7ff8000000000000});
const double infinite = std::bit_cast<double>(std::uint64_t{0x7ff0000000000000});

/// What a failing matcher says about a value.
template <class Matcher, class X>
std::string explanation(const Matcher& matcher, const X& x) {
  ::testing::StringMatchResultListener listener;
  EXPECT_FALSE(matcher.MatchAndExplain(x, &listener));
  return listener.str();
}

TEST(AllNear, TakesRangesAndViewsOfAnyType) {
  const std::vector<double> expected{1, 2, 3, 4, 5, 6};
  const std::vector<float> close{1.0625F, 2, 3, 4, 5, 6};
  EXPECT_THAT(close, all_near(expected, 0.0625));
  EXPECT_THAT(close, Not(all_near(expected, 0.06)));
  EXPECT_THAT(std::span<const float>(close), all_near(expected, 0.0625));
  EXPECT_THAT((std::array<int, 6>{1, 2, 3, 4, 5, 6}), all_near(expected, 0));
  std::vector<half> halves;
  for (const double x : expected) halves.push_back(static_cast<half>(static_cast<float>(x)));
  EXPECT_THAT(view_bhtd(halves.data(), 1, 1, 2, 3), all_near(expected, 0));
  Eigen::Matrix<float, 2, 3, Eigen::RowMajor> matrix;
  matrix << 1, 2, 3, 4, 5, 6;
  EXPECT_THAT(matrix, all_near(view_bhtd(expected.data(), 1, 1, 2, 3), 0));
}

TEST(AllNear, BoundsAreAbsolutePlusRelative) {
  EXPECT_THAT((std::vector<double>{100.5}), all_near(std::vector<double>{100}, 0.25, 0.0025));
  EXPECT_THAT((std::vector<double>{100.6}), Not(all_near(std::vector<double>{100}, 0.25, 0.0025)));
}

TEST(AllNear, StridesAreFollowed) {
  const std::vector<double> memory{1, 2, 9, 3, 4, 9};
  const tensor_view<const double> rows(memory.data(), {1, 1, 2, 2}, {0, 0, 3, 1});
  EXPECT_THAT(rows, all_near(std::vector<double>{1, 2, 3, 4}, 0));
}

TEST(AllNear, ExtentsCount) {
  const std::vector<double> x{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(explanation(all_near(view_bhtd(x.data(), 1, 1, 3, 2), 1), view_bhtd(x.data(), 1, 1, 2, 3)),
            "which has extents [1, 1, 2, 3] instead of [1, 1, 3, 2]");
  EXPECT_THAT(x, Not(all_near(std::vector<double>{1, 2, 3, 4, 5}, 1)));
}

TEST(AllNear, NamesTheWorstElement) {
  const std::vector<double> expected{0, 0, 0, 0, 0, 0}, actual{0, 0.5, 0, 0, 2, 0};
  EXPECT_EQ(
      explanation(all_near(view_bhtd(expected.data(), 1, 1, 2, 3), 0.25), view_bhtd(actual.data(), 1, 1, 2, 3)),
      "of which 2 of 6 elements are off, most of all element [0, 0, 1, 1]: 2 instead of 0, a deviation of 2 where 0.25 "
      "is allowed");
}

TEST(AllNear, NaNIsNearNothingAndInfinitiesAreNearThemselves) {
  EXPECT_THAT(std::vector{not_a_number}, Not(all_near(std::vector{not_a_number}, 1e9)));
  EXPECT_THAT(std::vector{not_a_number}, Not(all_near(std::vector{1.0}, 1e9)));
  EXPECT_THAT(std::vector{1.0}, Not(all_near(std::vector{not_a_number}, 1e9)));
  EXPECT_THAT(std::vector{-infinite}, all_near(std::vector{-infinite}, 0));
  EXPECT_THAT(std::vector{infinite}, Not(all_near(std::vector{-infinite}, 1e9)));
  EXPECT_THAT(std::vector{1e300}, Not(all_near(std::vector{infinite}, 1e9)));
}

TEST(SameBitsAs, TellsZerosApartAndKeepsNaN) {
  EXPECT_THAT((std::vector{1.5, not_a_number}), same_bits_as(std::vector{1.5, not_a_number}));
  EXPECT_THAT(std::vector{0.0}, Not(same_bits_as(std::vector{-0.0})));
  EXPECT_EQ(explanation(same_bits_as(std::vector{1.0, 2.0}), std::vector{1.0, 3.0}),
            "whose element [1] is 3 instead of 2");
}

TEST(AllFinite, FindsWhatIsNot) {
  EXPECT_THAT((std::vector<float>{1, -3e38F}), all_finite());
  EXPECT_EQ(explanation(all_finite(), std::vector{1.0, -infinite}), "whose element [1] is -inf");
  EXPECT_THAT(std::vector{not_a_number}, Not(all_finite()));
}

TEST(ErrorNames, LooksAtTheArgument) {
  const error e = make_error(errc::invalid_value, "tokens.q", "is %d", 3);
  const maybe_error some = e, none;
  EXPECT_THAT(e, error_names("tokens.q"));
  EXPECT_THAT(some, error_names("tokens.q"));
  EXPECT_THAT(some, AllOf(error_names(errc::invalid_value, "tokens.q"), Not(no_error())));
  EXPECT_THAT(some, Not(error_names("tokens")));
  EXPECT_THAT(some, Not(error_names(errc::mismatch, "tokens.q")));
  EXPECT_THAT(none, Not(error_names("tokens.q")));
  EXPECT_THAT(none, no_error());
  EXPECT_EQ(explanation(no_error(), some), "which is \"posenc: tokens.q: is 3\"");
  EXPECT_EQ(explanation(error_names("q"), none), "which is no error");
  EXPECT_EQ(::testing::PrintToString(e), "posenc: tokens.q: is 3");
}

}  // namespace
