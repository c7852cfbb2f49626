// SPDX-License-Identifier: Apache-2.0
#include <posenc/ladder/frequency_factors.hpp>
#include <posenc/ladder/llama3.hpp>
#include <posenc/ladder/ntk_aware.hpp>
#include <posenc/ladder/position_interpolation.hpp>
#include <posenc/ladder/scaling.hpp>
#include <posenc/ladder/yarn.hpp>

#include <functional>

#include "ladder_support.hpp"
#include "support/expect_error.hpp"

// A user's own scalings, in a namespace of their own.
namespace user {

// Drops every frequency that makes less than a turn in `context`.
struct freeze_slow_pairs {
  double context = 4096;

  static constexpr bool stretches_context = true;
  static constexpr const char* name = "freeze_slow_pairs";

  posenc::frequency_ladder operator()(const posenc::frequency_ladder& ladder) const {
    std::vector<double> w(ladder.inv_freq().begin(), ladder.inv_freq().end());
    for (double& x : w) x = x * context < 6.28 ? 0 : x;
    return ladder.with_inv_freq(w);
  }
};

// Says what it does by itself.
struct thirds {
  double factor = 3;
  bool stretches_context = true;

  posenc::maybe_error check(const posenc::frequency_ladder&) const noexcept {
    if (factor == 3) return {};
    return posenc::make_error(posenc::errc::invalid_value, "factor", "is %g; allowed: 3", factor);
  }

  posenc::frequency_ladder operator()(const posenc::frequency_ladder& ladder) const {
    std::vector<double> w(ladder.inv_freq().begin(), ladder.inv_freq().end());
    for (double& x : w) x /= 3;
    return ladder.scaled(
        {.name = "thirds", .factor = 3, .stretches_context = stretches_context, .parameters = "by hand"}, w, 1.1);
  }
};

posenc::frequency_ladder halve(const posenc::frequency_ladder& ladder) {
  std::vector<double> w(ladder.inv_freq().begin(), ladder.inv_freq().end());
  for (double& x : w) x /= 2;
  return ladder.with_inv_freq(w);
}

struct quarters {
  static constexpr bool stretches_context = true;
  static constexpr const char* name = "quarters";

  posenc::frequency_ladder operator()(const posenc::frequency_ladder& ladder) const { return ladder | halve | halve; }
};

}  // namespace user

namespace {

using namespace posenc;
using namespace ladder_test;

const position_interpolation linear2{.factor = 2};
const yarn yarn8{.factor = 8, .original_context = 4096};

struct not_a_scaling {
  int operator()(const frequency_ladder&) const { return 1; }
};

struct changes_itself {
  frequency_ladder operator()(const frequency_ladder& ladder) { return ladder; }
};

static_assert(ladder_transform<yarn> && ladder_transform<position_interpolation> && ladder_transform<ntk_aware>);
static_assert(ladder_transform<llama3> && ladder_transform<frequency_factors> && ladder_transform<user::thirds>);
static_assert(ladder_transform<decltype(&user::halve)> && ladder_transform<decltype(stacked(yarn{}))>);
static_assert(!ladder_transform<not_a_scaling> && !ladder_transform<changes_itself> && !ladder_transform<int>);
static_assert(std::is_aggregate_v<yarn> && std::is_aggregate_v<llama3> && std::is_aggregate_v<ntk_aware>);

TEST(Scaling, HistoryReadsLeftToRight) {
  const frequency_ladder ladder = frequency_ladder(128) | yarn{.factor = 4, .original_context = 4096};
  EXPECT_EQ(ladder.describe(), "base 10000 | yarn(factor 4, original 4096)");
  ASSERT_EQ(ladder.provenance().size(), 1u);
  const scaling_record expected{"yarn", 4, true, false, "factor 4, original 4096"};
  EXPECT_EQ(ladder.provenance()[0], expected);
}

TEST(Scaling, EveryScalingDescribesItself) {
  EXPECT_EQ((frequency_ladder(64) | position_interpolation{.factor = 2.5}).describe(),
            "base 10000 | position_interpolation(factor 2.5)");
  EXPECT_EQ((frequency_ladder(64) | ntk_aware{.factor = 4}).describe(),
            "base 10000 | ntk_aware(factor 4, base becomes 41829.4)");
  EXPECT_EQ((frequency_ladder(64) | ntk_aware{.factor = 4, .rule = ntk_rule::scaled_base, .mixed_b = 0.625}).describe(),
            "base 10000 | ntk_aware(factor 4, scaled base, mixed_b 0.625, base becomes 10000)");
  EXPECT_EQ((frequency_ladder(128, {.base = 5e5}) | llama3{.factor = 8, .original_context = 8192}).describe(),
            "base 500000 | llama3(factor 8, original 8192, low 1, high 4)");
  EXPECT_EQ((frequency_ladder(4) | frequency_factors{{1, 2.5}}).describe(), "base 10000 | frequency_factors(1 to 2.5)");
  const yarn all{.factor = 4,
                 .original_context = 4096,
                 .beta_fast = 16,
                 .beta_slow = 2,
                 .truncate = false,
                 .ramp_width = yarn_ramp_width::at_least_0_001,
                 .extrapolation_factor = 0.5,
                 .attn_factor = 1.1,
                 .apply_yarn_scaling = false,
                 .mscale = 0.7,
                 .mscale_all_dim = 0.5,
                 .mscale_rule = yarn_mscale_rule::each,
                 .magnitude_below_one = true};
  EXPECT_EQ(
      (frequency_ladder(64) | all).describe(),
      "base 10000 | yarn(factor 4, original 4096, betas 16 and 2, not truncated, ramp at least 0.001, extrapolation "
      "0.5, attn_factor 1.1, no magnitude, mscale 0.7, mscale_all_dim 0.5, mscale read each, magnitude below one)");
}

TEST(Scaling, TwoExtensionsAreAnErrorThatExplainsItself) {
  const frequency_ladder stretched = frequency_ladder(128) | yarn8;
  for (const char* part : {"posenc: position_interpolation: ", "already stretched by yarn", "twice (8 times 2 is 16)",
                           "write stacked(...) around position_interpolation"}) {
    POSENC_EXPECT_ERROR(stretched | linear2, errc::stacked_scaling, part);
    POSENC_EXPECT_ERROR(linear2(stretched), errc::stacked_scaling, part);
  }
  const maybe_error as_value = check(stretched, linear2);
  ASSERT_TRUE(as_value);
  EXPECT_EQ(as_value->code(), errc::stacked_scaling);
  EXPECT_STREQ(as_value->argument(), "position_interpolation");
}

template <class Scaling>
class EveryScaling : public testing::Test {};

template <class Scaling>
Scaling example() {
  if constexpr (std::is_same_v<Scaling, frequency_factors>) {
    return {std::vector<double>(32, 2.0)};
  } else if constexpr (requires(Scaling s) { s.original_context; }) {
    return {.factor = 2, .original_context = 4096};
  } else {
    return {.factor = 2};
  }
}

using all_scalings = testing::Types<position_interpolation, ntk_aware, yarn, llama3, frequency_factors>;
TYPED_TEST_SUITE(EveryScaling, all_scalings);

TYPED_TEST(EveryScaling, IsRefusedOnTopOfAnotherAndLetsNoneOnTop) {
  const TypeParam scaling = example<TypeParam>();
  const frequency_ladder plain(64);
  EXPECT_FALSE(check(plain, scaling));
  EXPECT_TRUE((plain | scaling).provenance()[0].stretches_context);
  POSENC_EXPECT_ERROR(plain | linear2 | scaling, errc::stacked_scaling, "already stretched by position_interpolation");
  POSENC_EXPECT_ERROR(plain | scaling | linear2, errc::stacked_scaling, std::string("stretched by ") + TypeParam::name);
  EXPECT_EQ((plain | linear2 | stacked(scaling)).provenance().size(), 2u);
}

TYPED_TEST(EveryScaling, WithFactorOneChangesNothingAndDoesNotCount) {
  TypeParam scaling = example<TypeParam>();
  if constexpr (std::is_same_v<TypeParam, frequency_factors>) {
    scaling.factors.assign(32, 1.0);
  } else {
    scaling.factor = 1;
  }
  const frequency_ladder plain(64);
  EXPECT_EQ(plain | scaling, plain);
  EXPECT_EQ((plain | scaling).base(), plain.base());
  EXPECT_EQ(plain | scaling | linear2, plain | linear2);
  EXPECT_EQ(plain | linear2 | scaling, plain | linear2);
}

TYPED_TEST(EveryScaling, KeepsZerosAndTheAttentionFactorOfTheLadder) {
  std::vector<double> own(32, 0.25);
  own[3] = 0;
  const frequency_ladder ladder = frequency_ladder::from_inv_freq(own, 1.5, 10000);
  const frequency_ladder scaled = ladder | example<TypeParam>();
  EXPECT_EQ(scaled.inv_freq(3), 0.0);
  const double magnitude = std::is_same_v<TypeParam, yarn> ? 1 + 0.1 * std::log(2.0) : 1.0;
  EXPECT_NEAR(scaled.attention_factor(), 1.5 * magnitude, 1e-15);
}

TYPED_TEST(EveryScaling, MemberCheckAndCallAgreeOnBadParameters) {
  TypeParam scaling = example<TypeParam>();
  for (const double& bad : not_positive()) {
    const char* argument = "factor: ";
    if constexpr (std::is_same_v<TypeParam, frequency_factors>) {
      scaling.factors[5] = bad;
      argument = "factors: [5] is ";
    } else {
      scaling.factor = bad;
    }
    const frequency_ladder plain(64);
    POSENC_EXPECT_ERROR(plain | scaling, errc::invalid_value, argument);
    POSENC_EXPECT_ERROR(plain | stacked(scaling), errc::invalid_value, argument);
    const maybe_error as_value = check(plain, scaling);
    ASSERT_TRUE(as_value);
    EXPECT_EQ(as_value->code(), errc::invalid_value);
    EXPECT_TRUE(check(plain, stacked(scaling)));
  }
}

TYPED_TEST(EveryScaling, SaysWhenAMandatoryFieldIsMissing) {
  if constexpr (requires(TypeParam s) { s.factor; }) {
    POSENC_EXPECT_ERROR(frequency_ladder(64) | TypeParam{}, errc::invalid_value, "factor: not given");
  } else {
    POSENC_EXPECT_ERROR(frequency_ladder(64) | TypeParam{}, errc::invalid_shape,
                        "factors: has 0 elements; allowed: 32");
  }
  if constexpr (requires(TypeParam s) { s.original_context; }) {
    TypeParam scaling{.factor = 4};
    POSENC_EXPECT_ERROR(frequency_ladder(64) | scaling, errc::invalid_value, "original_context: not given");
    scaling.original_context = -1;
    POSENC_EXPECT_ERROR(frequency_ladder(64) | scaling, errc::invalid_value, "original_context: is -1");
  }
}

TYPED_TEST(EveryScaling, BelowOneIsAccepted) {
  TypeParam scaling = example<TypeParam>();
  if constexpr (std::is_same_v<TypeParam, frequency_factors>) {
    scaling.factors.assign(32, 0.5);
  } else {
    scaling.factor = 0.5;
  }
  const frequency_ladder ladder = frequency_ladder(64) | scaling;
  EXPECT_GT(ladder.inv_freq(31), frequency_ladder(64).inv_freq(31));
  EXPECT_EQ(ladder.attention_factor(), 1.0);
}

TYPED_TEST(EveryScaling, AResultBeyondTheRangeOfDoubleIsAnError) {
  TypeParam scaling = example<TypeParam>();
  if constexpr (std::is_same_v<TypeParam, frequency_factors>) {
    scaling.factors.assign(32, 1e-50);
  } else {
    scaling.factor = 1e-50;
  }
  const frequency_ladder ladder = frequency_ladder::from_inv_freq(std::vector<double>(32, 1e280), 1, 10000);
  if constexpr (std::is_same_v<TypeParam, llama3>) {
    EXPECT_EQ(ladder | scaling, ladder) << "all of these turn fast enough to be left alone";
  } else if constexpr (!std::is_same_v<TypeParam, yarn>) {
    POSENC_EXPECT_ERROR(ladder | scaling, errc::invalid_value, ": is 1e-50, which makes inf");
  }
}

TEST(Stacked, IsMarkedInTheHistoryAndDividesTwice) {
  const frequency_ladder ladder = frequency_ladder(64) | linear2 | stacked(position_interpolation{.factor = 4});
  EXPECT_EQ(ladder, frequency_ladder(64) | position_interpolation{.factor = 8});
  EXPECT_EQ(ladder.describe(),
            "base 10000 | position_interpolation(factor 2) | stacked position_interpolation(factor 4)");
  EXPECT_TRUE(ladder.provenance()[1].stacked);
}

TEST(Stacked, ConsentHoldsForOneScalingOnly) {
  const frequency_ladder ladder = frequency_ladder(64) | linear2 | stacked(linear2);
  POSENC_EXPECT_ERROR(ladder | linear2, errc::stacked_scaling, "already stretched");
  // Even if nothing was there to stack on.
  POSENC_EXPECT_ERROR(frequency_ladder(64) | stacked(linear2) | linear2, errc::stacked_scaling, "already stretched");
  EXPECT_FALSE((frequency_ladder(64) | stacked(linear2)).provenance()[0].stacked);
}

// Neighbouring positions under a ladder that is stretched by 8 and then, by mistake, by 2 again.
TEST(Stacked, DoubleCountingHalvesTheResolutionOfSlowPairs) {
  const frequency_ladder once = frequency_ladder(128) | yarn8;
  const frequency_ladder twice = once | stacked(linear2);
  for (index_t i = 0; i < once.size(); ++i) EXPECT_EQ(twice.inv_freq(i), once.inv_freq(i) / 2);
  EXPECT_EQ(twice.attention_factor(), once.attention_factor());
}

TEST(OwnScaling, LambdasAndFunctionsCompose) {
  const auto halve = [](const frequency_ladder& ladder) { return user::halve(ladder); };
  const std::function<frequency_ladder(const frequency_ladder&)> stored = halve;
  const frequency_ladder expected = frequency_ladder(64) | linear2;
  EXPECT_EQ(frequency_ladder(64) | halve, expected);
  EXPECT_EQ(frequency_ladder(64) | user::halve, expected);
  EXPECT_EQ(frequency_ladder(64) | &user::halve, expected);
  EXPECT_EQ(frequency_ladder(64) | stored, expected);
  const frequency_ladder ladder = frequency_ladder(64) | halve | halve | yarn8;
  EXPECT_EQ(ladder.describe(), "base 10000 | custom | custom | yarn(factor 8, original 4096)");
  EXPECT_FALSE(ladder.provenance()[0].stretches_context) << "a plain callable does not count";
  EXPECT_FALSE(check(ladder, halve));
}

TEST(OwnScaling, AStructMaySayThatItStretches) {
  const frequency_ladder ladder = frequency_ladder(128) | user::freeze_slow_pairs{};
  EXPECT_EQ(ladder.describe(), "base 10000 | freeze_slow_pairs");
  EXPECT_EQ(ladder.inv_freq(63), 0.0);
  POSENC_EXPECT_ERROR(ladder | yarn8, errc::stacked_scaling, "stretched by freeze_slow_pairs");
  POSENC_EXPECT_ERROR(frequency_ladder(128) | yarn8 | user::freeze_slow_pairs{}, errc::stacked_scaling,
                      "posenc: freeze_slow_pairs: the ladder is already stretched by yarn");
  EXPECT_TRUE(check(ladder, yarn8));
  EXPECT_TRUE(check(frequency_ladder(128) | yarn8, user::freeze_slow_pairs{}));
  const frequency_ladder both = frequency_ladder(128) | yarn8 | stacked(user::freeze_slow_pairs{});
  EXPECT_EQ(both.describe(), "base 10000 | yarn(factor 8, original 4096) | stacked freeze_slow_pairs");
}

TEST(OwnScaling, AStructMayKeepItsOwnRecord) {
  const frequency_ladder ladder = frequency_ladder(8) | user::thirds{};
  EXPECT_EQ(ladder.describe(), "base 10000 | thirds(by hand)");
  EXPECT_EQ(ladder.attention_factor(), 1.1);
  POSENC_EXPECT_ERROR(ladder | linear2, errc::stacked_scaling, "3 times 2 is 6");
  EXPECT_EQ((frequency_ladder(8) | user::thirds{.stretches_context = false} | linear2).provenance().size(), 2u);
  const maybe_error wrong = check(frequency_ladder(8), user::thirds{.factor = 4});
  ASSERT_TRUE(wrong);
  EXPECT_STREQ(wrong->what(), "posenc: factor: is 4; allowed: 3");
}

// Made of parts that do not count, it counts as a whole, because it says so.
TEST(OwnScaling, AStructMayStretchByHarmlessParts) {
  const frequency_ladder ladder = frequency_ladder(8) | user::quarters{};
  EXPECT_EQ(ladder.describe(), "base 10000 | custom | custom | quarters");
  POSENC_EXPECT_ERROR(ladder | linear2, errc::stacked_scaling, "already stretched by quarters");
  POSENC_EXPECT_ERROR(frequency_ladder(8) | linear2 | user::quarters{}, errc::stacked_scaling, "posenc: quarters: ");
  const frequency_ladder both = frequency_ladder(8) | linear2 | stacked(user::quarters{});
  EXPECT_EQ(both, frequency_ladder(8) | position_interpolation{.factor = 8});
  EXPECT_TRUE(both.provenance()[3].stacked);
}

TEST(OwnScaling, HistorySurvivesALadderMadeFromScratch) {
  const auto from_scratch = [](const frequency_ladder& ladder) {
    return frequency_ladder::from_inv_freq(ladder.inv_freq());
  };
  const frequency_ladder ladder = frequency_ladder(64) | linear2 | from_scratch;
  EXPECT_EQ(ladder.describe(), "base 10000 | position_interpolation(factor 2) | custom");
  POSENC_EXPECT_ERROR(ladder | linear2, errc::stacked_scaling, "already stretched by position_interpolation");
  // One that brings a stretched ladder of its own is a second stretch, too.
  const auto another = [](const frequency_ladder&) { return frequency_ladder(64) | yarn8; };
  POSENC_EXPECT_ERROR(frequency_ladder(64) | linear2 | another, errc::stacked_scaling,
                      "stretched by position_interpolation");
  const frequency_ladder permitted = frequency_ladder(64) | linear2 | stacked(another);
  EXPECT_EQ(permitted.describe(),
            "base 10000 | position_interpolation(factor 2) | stacked yarn(factor 8, original 4096)");
  EXPECT_EQ(permitted, frequency_ladder(64) | yarn8);
}

TEST(OwnScaling, SeesALadderLikeAnyOtherInsideStacked) {
  bool ran = false;
  const auto looks = [&ran](const frequency_ladder& ladder) {
    ran = true;
    EXPECT_EQ(ladder.provenance().size(), 1u);
    return ladder;
  };
  const frequency_ladder ladder = frequency_ladder(64) | linear2 | stacked(looks);
  EXPECT_TRUE(ran);
  POSENC_EXPECT_ERROR(ladder | linear2, errc::stacked_scaling, "already stretched");
}

TEST(Composed, IsTheSameAsOneAfterTheOther) {
  const auto recipe =
      ntk_aware{.factor = 4} | user::halve | [](const frequency_ladder& l) { return l.with_attention_factor(2); };
  for (index_t d : {4, 64, 128}) {
    const frequency_ladder plain(d);
    EXPECT_EQ(plain | recipe, (plain | ntk_aware{.factor = 4} | user::halve).with_attention_factor(2));
    EXPECT_FALSE(check(plain, recipe));
  }
  EXPECT_EQ((frequency_ladder(64) | recipe).provenance().size(), 3u);
  EXPECT_TRUE(check(frequency_ladder(2), recipe)) << "a part's error is the recipe's";
}

// check must foresee what applying does, for every way of nesting.
template <class Transform>
void expect_outcome(const char* what, const frequency_ladder& ladder, const Transform& transform, bool fails) {
  SCOPED_TRACE(what);
  const auto raised = posenc_test::error_of([&] { static_cast<void>(ladder | transform); });
  const maybe_error foreseen = check(ladder, transform);
  EXPECT_EQ(raised.has_value(), fails);
  EXPECT_EQ(foreseen.has_value(), fails);
  if (raised && foreseen) {
    EXPECT_EQ(raised->code, errc::stacked_scaling);
    EXPECT_EQ(foreseen->code(), errc::stacked_scaling);
    EXPECT_EQ(raised->text, foreseen->what());
  }
}

TEST(Composed, StackingIsFoundInEveryNesting) {
  const frequency_ladder plain(64);
  const frequency_ladder stretched = plain | linear2;
  const auto harmless = [](const frequency_ladder& ladder) { return ladder; };
  const position_interpolation one{.factor = 3};
  const llama3 two{.factor = 5, .original_context = 4096};
#define POSENC_TEST_OUTCOME(ladder, transform, fails) expect_outcome(#ladder " | " #transform, ladder, transform, fails)
  POSENC_TEST_OUTCOME(plain, one | two, true);
  POSENC_TEST_OUTCOME(plain, one | stacked(two), false);
  POSENC_TEST_OUTCOME(plain, stacked(one) | two, true);
  POSENC_TEST_OUTCOME(plain, stacked(one | two), true);
  POSENC_TEST_OUTCOME(plain, stacked(one | stacked(two)), false);
  POSENC_TEST_OUTCOME(plain, harmless | one, false);
  POSENC_TEST_OUTCOME(plain, harmless | (one | harmless), false);
  POSENC_TEST_OUTCOME(plain, (harmless | one) | (harmless | two), true);
  POSENC_TEST_OUTCOME(plain, one | (harmless | stacked(two)), false);
  POSENC_TEST_OUTCOME(stretched, harmless | one, true);
  POSENC_TEST_OUTCOME(stretched, one | harmless, true);
  POSENC_TEST_OUTCOME(stretched, stacked(harmless | one), false);
  POSENC_TEST_OUTCOME(stretched, stacked(one | harmless), false);
  POSENC_TEST_OUTCOME(stretched, stacked(one | two), true);
  POSENC_TEST_OUTCOME(stretched, stacked(one | stacked(two)), false);
  POSENC_TEST_OUTCOME(stretched, stacked(stacked(one) | two), false);
  POSENC_TEST_OUTCOME(stretched, stacked(one) | harmless, false);
  POSENC_TEST_OUTCOME(stretched, stacked(one) | two, true);
  POSENC_TEST_OUTCOME(stretched, harmless | stacked(one) | stacked(two), false);
  POSENC_TEST_OUTCOME(stretched, stacked(stacked(one)), false);
#undef POSENC_TEST_OUTCOME
}

}  // namespace
