// SPDX-License-Identifier: Apache-2.0
#include <posenc/ladder/dialect.hpp>
#include <posenc/ladder/position_interpolation.hpp>
#include <posenc/ladder/yarn.hpp>

#include <numbers>

#include "ladder_support.hpp"
#include "support/expect_error.hpp"

namespace {

using namespace posenc;
using namespace ladder_test;

struct model_case {
  const char* model;
  index_t rotary_dim;
  double base;
  yarn scaling;
  double raw_low, raw_high;  // to the digits that are known
  double raw_tolerance;
  double low, high;  // truncated
  double attention_factor;
};

class YarnOfModels : public testing::TestWithParam<model_case> {};

TEST_P(YarnOfModels, RangeAndAttentionFactor) {
  const model_case& c = GetParam();
  const frequency_ladder plain(c.rotary_dim, {.base = c.base});
  yarn scaling = c.scaling;
  scaling.truncate = false;
  const yarn_range raw = scaling.correction_range(plain);
  EXPECT_NEAR(raw.low, c.raw_low, c.raw_tolerance);
  EXPECT_NEAR(raw.high, c.raw_high, c.raw_tolerance);
  scaling.truncate = true;
  const yarn_range cut = scaling.correction_range(plain);
  EXPECT_EQ(cut.low, c.low);
  EXPECT_EQ(cut.high, c.high);
  const frequency_ladder ladder = plain | scaling;
  EXPECT_NEAR(ladder.attention_factor(), c.attention_factor, 1e-10);
  for (index_t i = 0; i < ladder.size(); ++i) {
    const double at = static_cast<double>(i);
    EXPECT_EQ(ladder.inv_freq(i) == plain.inv_freq(i), at <= c.low) << i;
    EXPECT_EQ(ladder.inv_freq(i) == plain.inv_freq(i) / scaling.factor, at >= c.high) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Published, YarnOfModels,
                         testing::Values(model_case{"gpt-oss",
                                                    64,
                                                    150000,
                                                    {.factor = 32, .original_context = 4096},
                                                    8.092779115512402,
                                                    17.39802450158856,
                                                    1e-13,
                                                    8,
                                                    18,
                                                    1.3465735902799727},
                                         model_case{"Qwen2.5",
                                                    128,
                                                    1e6,
                                                    {.factor = 4, .original_context = 32768},
                                                    23.5959,
                                                    39.6509,
                                                    5e-5,
                                                    23,
                                                    40,
                                                    1.138629436111989},
                                         model_case{
                                             "DeepSeek-V3",
                                             64,
                                             1e4,
                                             {.factor = 40, .original_context = 4096, .mscale = 1, .mscale_all_dim = 1},
                                             10.4722,
                                             22.5134,
                                             5e-5,
                                             10,
                                             23,
                                             1},
                                         model_case{"Yarn-Llama-2-64k",
                                                    128,
                                                    1e4,
                                                    {.factor = 16, .original_context = 4096},
                                                    20.944,
                                                    45.027,
                                                    1e-3,
                                                    20,
                                                    46,
                                                    1.2772588722},
                                         model_case{"Yarn-Mistral-128k",
                                                    128,
                                                    1e4,
                                                    {.factor = 16, .original_context = 8192},
                                                    25.761,
                                                    49.843,
                                                    1e-3,
                                                    25,
                                                    50,
                                                    1.2772588722}),
                         [](const auto& tested) {
                           std::string name = tested.param.model;
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

// The reading that always cuts differs on gpt-oss for the pairs 9 to 17.
TEST(Yarn, TruncationMovesGptOss) {
  const frequency_ladder plain(64, {.base = 150000});
  const yarn_keys keys{.factor = 32, .original_max_position_embeddings = 4096, .truncate = false};
  const frequency_ladder honoured = plain | yarn_as(dialect::huggingface, keys);
  const frequency_ladder always = plain | yarn_as(dialect::llama_cpp, keys);
  EXPECT_EQ(honoured, plain | yarn_as(dialect::vllm, keys));
  for (index_t i = 0; i < 32; ++i) EXPECT_EQ(honoured.inv_freq(i) != always.inv_freq(i), i >= 9 && i <= 17) << i;
  const auto ramp = [&](const frequency_ladder& ladder, index_t i) {
    return (1 - ladder.inv_freq(i) / plain.inv_freq(i)) / (1 - 1.0 / 32);
  };
  EXPECT_NEAR(ramp(always, 17), 0.900, 1e-12);
  EXPECT_NEAR(ramp(honoured, 17), 0.957, 5e-4);
}

TEST(Yarn, MultipliesTheScoresBySquare) {
  const frequency_ladder ladder = frequency_ladder(64) | yarn{.factor = 4, .original_context = 4096};
  EXPECT_NEAR(ladder.attention_factor(), 0.1 * std::log(4.0) + 1, 1e-15);
  EXPECT_EQ(ladder.base(), 10000.0);
}

TEST(Yarn, ExtrapolationFactorZeroIsPositionInterpolation) {
  const frequency_ladder plain(128);
  const frequency_ladder ladder =
      plain | yarn{.factor = 3, .original_context = 4096, .extrapolation_factor = 0, .attention_factor = 1};
  EXPECT_EQ(ladder, plain | position_interpolation{.factor = 3});
}

TEST(Yarn, EqualEndsOfTheRamp) {
  const frequency_ladder plain(64);
  const yarn scaling{.factor = 4, .original_context = 4096, .beta_fast = 4, .beta_slow = 4, .truncate = false};
  const yarn_range range = scaling.correction_range(plain);
  EXPECT_EQ(range.low, range.high);
  const frequency_ladder ladder = plain | scaling;
  for (index_t i = 0; i < 32; ++i) {
    EXPECT_EQ(ladder.inv_freq(i), static_cast<double>(i) <= range.low ? plain.inv_freq(i) : plain.inv_freq(i) / 4) << i;
  }
}

// The ramp is 0.001 pairs wide then, in both readings: a pair that lies inside is half way.
TEST(Yarn, WidthOfARampWithEqualEnds) {
  const frequency_ladder plain(64);
  const double at = 15.9995;
  const double turns = 4096 / (2 * std::numbers::pi * std::pow(10000.0, 2 * at / 64));
  yarn scaling{.factor = 4, .original_context = 4096, .beta_fast = turns, .beta_slow = turns, .truncate = false};
  ASSERT_NEAR(scaling.correction_range(plain).low, at, 1e-12);
  for (yarn_ramp_width rule : {yarn_ramp_width::add_if_equal, yarn_ramp_width::at_least_0_001}) {
    scaling.ramp_width = rule;
    const double kept = ((plain | scaling).inv_freq(16) / plain.inv_freq(16) - 0.25) / 0.75;
    EXPECT_NEAR(kept, 0.5, 1e-8);
  }
}

// The upper end may lie beyond the last pair: its limit is d - 1, not d / 2 - 1.
TEST(Yarn, EndsOfTheRampAreLimited) {
  const frequency_ladder plain(64);
  yarn scaling{.factor = 4, .original_context = 1'000'000};
  EXPECT_EQ(scaling.correction_range(plain).low, 29);
  EXPECT_EQ(scaling.correction_range(plain).high, 42);
  const double last_kept = ((plain | scaling).inv_freq(31) / plain.inv_freq(31) - 0.25) / 0.75;
  EXPECT_NEAR(last_kept, 1 - 2.0 / 13, 1e-14);
  scaling.original_context = 1'000'000'000'000;
  EXPECT_EQ(scaling.correction_range(plain).high, 63);
  scaling.original_context = 128;
  EXPECT_EQ(scaling.correction_range(plain).low, 0);
}

// beta_fast below beta_slow: one reading lets the ramp run backwards, the other makes it a step.
TEST(Yarn, BackwardRamp) {
  const frequency_ladder plain(64);
  yarn scaling{.factor = 4, .original_context = 4096, .beta_fast = 1, .beta_slow = 32};
  const yarn_range range = scaling.correction_range(plain);
  ASSERT_EQ(range.low, 22);
  ASSERT_EQ(range.high, 11);
  const frequency_ladder backwards = plain | scaling;
  EXPECT_EQ(backwards.inv_freq(11), plain.inv_freq(11) / 4);
  EXPECT_EQ(backwards.inv_freq(22), plain.inv_freq(22));
  EXPECT_EQ(backwards.inv_freq(0), plain.inv_freq(0) / 4);
  scaling.ramp_width = yarn_ramp_width::at_least_0_001;
  const frequency_ladder step = plain | scaling;
  EXPECT_EQ(step.inv_freq(22), plain.inv_freq(22));
  EXPECT_EQ(step.inv_freq(23), plain.inv_freq(23) / 4);
  EXPECT_EQ(step.inv_freq(0), plain.inv_freq(0));
}

struct magnitude_case {
  const char* name;
  yarn scaling;
  double expected;
};

class YarnMagnitude : public testing::TestWithParam<magnitude_case> {};

TEST_P(YarnMagnitude, IsAsTheFieldsSay) {
  const frequency_ladder ladder = frequency_ladder(64) | GetParam().scaling;
  EXPECT_NEAR(ladder.attention_factor(), GetParam().expected, 1e-14);
}

const double g64 = 0.1 * std::log(64.0) + 1;
const double g40_707 = 0.0707 * std::log(40.0) + 1;

INSTANTIATE_TEST_SUITE_P(
    Fields, YarnMagnitude,
    testing::Values(
        magnitude_case{"inferred", {.factor = 64, .original_context = 4096}, g64},
        magnitude_case{"explicit_one", {.factor = 64, .original_context = 4096, .attention_factor = 1}, 1},
        magnitude_case{
            "explicit_beats_mscale",
            {.factor = 64, .original_context = 4096, .attention_factor = 1.5, .mscale = 1, .mscale_all_dim = 0.5},
            1.5},
        magnitude_case{
            "attn_factor_multiplies", {.factor = 64, .original_context = 4096, .attn_factor = 0.8}, 0.8 * g64},
        magnitude_case{"attn_factor_alone",
                       {.factor = 64, .original_context = 4096, .attn_factor = 0.8, .apply_yarn_scaling = false},
                       0.8},
        magnitude_case{"mscale_without_partner", {.factor = 64, .original_context = 4096, .mscale = 0.7}, g64},
        magnitude_case{
            "mscale_with_zero", {.factor = 64, .original_context = 4096, .mscale = 0.7, .mscale_all_dim = 0}, g64},
        magnitude_case{"mscale_each",
                       {.factor = 40, .original_context = 4096, .mscale = 0.707, .mscale_rule = yarn_mscale_rule::each},
                       g40_707},
        magnitude_case{
            "mscale_each_absent", {.factor = 64, .original_context = 4096, .mscale_rule = yarn_mscale_rule::each}, g64},
        magnitude_case{"mscale_each_zero",
                       {.factor = 64,
                        .original_context = 4096,
                        .mscale = 0,
                        .mscale_all_dim = 1,
                        .mscale_rule = yarn_mscale_rule::each},
                       1 / g64},
        magnitude_case{"below_one", {.factor = 0.5, .original_context = 4096}, 1},
        magnitude_case{"below_one_unguarded",
                       {.factor = 0.5, .original_context = 4096, .magnitude_below_one = true},
                       0.1 * std::log(0.5) + 1}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST(Yarn, HelpersForTheTemperature) {
  EXPECT_NEAR(yarn_magnitude(40), 1.3688879454113936, 1e-15);
  EXPECT_NEAR(yarn_magnitude(40, 0.707), 1.2608037774058554, 1e-15);
  EXPECT_EQ(yarn_magnitude(0.5), 1.0);
  EXPECT_NEAR(yarn_softmax_multiplier(40, 1), 1.8738542, 1e-7);
  EXPECT_NEAR(yarn_softmax_multiplier(40, 0.707), 1.5896261651208734, 1e-14);
  EXPECT_EQ(yarn_softmax_multiplier(40, 0), 1.0);
  for (const double& bad : not_positive()) POSENC_EXPECT_ERROR(yarn_magnitude(bad), errc::invalid_value, "factor: ");
  for (const double& bad : not_finite())
    POSENC_EXPECT_ERROR(yarn_magnitude(4, bad), errc::invalid_value, "mscale: is ");
  POSENC_EXPECT_ERROR(yarn_softmax_multiplier(4, -1), errc::invalid_value, "mscale: is -1");
}

struct parameter_case {
  const char* name;
  void (*set)(yarn&, const double&);
  bool zero_is_allowed;
};

class YarnParameter : public testing::TestWithParam<parameter_case> {};

TEST_P(YarnParameter, RefusesWhatIsNotANumberOfItsRange) {
  for (const double& bad : not_positive()) {
    if (detail::is_finite(bad) && bad == 0 && GetParam().zero_is_allowed) continue;
    yarn scaling{.factor = 4, .original_context = 4096};
    GetParam().set(scaling, bad);
    POSENC_EXPECT_ERROR(frequency_ladder(64) | scaling, errc::invalid_value, GetParam().name + std::string(": is "));
    POSENC_EXPECT_ERROR(scaling.correction_range(frequency_ladder(64)), errc::invalid_value, GetParam().name);
    const maybe_error as_value = check(frequency_ladder(64), scaling);
    ASSERT_TRUE(as_value);
    EXPECT_STREQ(as_value->argument(), GetParam().name);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, YarnParameter,
    testing::Values(parameter_case{"beta_fast", [](yarn& y, const double& x) { y.beta_fast = x; }, false},
                    parameter_case{"beta_slow", [](yarn& y, const double& x) { y.beta_slow = x; }, false},
                    parameter_case{"extrapolation_factor", [](yarn& y, const double& x) { y.extrapolation_factor = x; },
                                   true},
                    parameter_case{"attention_factor", [](yarn& y, const double& x) { y.attention_factor = x; }, false},
                    parameter_case{"attn_factor", [](yarn& y, const double& x) { y.attn_factor = x; }, false},
                    parameter_case{"mscale", [](yarn& y, const double& x) { y.mscale = x; }, true},
                    parameter_case{"mscale_all_dim", [](yarn& y, const double& x) { y.mscale_all_dim = x; }, true}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST(Yarn, OtherMistakes) {
  const yarn good{.factor = 4, .original_context = 4096};
  yarn both = good;
  both.attention_factor = 1;
  both.attn_factor = 0.5;
  POSENC_EXPECT_ERROR(frequency_ladder(64) | both, errc::mismatch, "attn_factor: is 0.5 beside attention_factor 1");
  yarn weight = good;
  weight.extrapolation_factor = 1.5;
  POSENC_EXPECT_ERROR(frequency_ladder(64) | weight, errc::invalid_value,
                      "extrapolation_factor: is 1.5; allowed: 0 to 1");
  yarn tiny = good;
  tiny.factor = 1e-5;
  tiny.magnitude_below_one = true;
  POSENC_EXPECT_ERROR(frequency_ladder(64) | tiny, errc::invalid_value, "makes the attention factor -0.15");
  for (double base : {1.0, 0.5}) {
    POSENC_EXPECT_ERROR(frequency_ladder(64, {.base = base}) | good, errc::invalid_value, "base: of the ladder is ");
  }
  const frequency_ladder own = frequency_ladder::from_inv_freq(frequency_ladder(64).inv_freq());
  POSENC_EXPECT_ERROR(own | good, errc::invalid_value, "base: of the ladder is 0");
  EXPECT_EQ(frequency_ladder::from_inv_freq(own.inv_freq(), 1, 10000) | good, frequency_ladder(64) | good);
}

// Each row of the table at yarn_as.
TEST(YarnAs, MissingLengthsAndFactors) {
  const yarn_keys lengths{.original_max_position_embeddings = 4096, .max_position_embeddings = 32768};
  EXPECT_EQ(yarn_as(dialect::huggingface, lengths).factor, 8.0);
  EXPECT_EQ(yarn_as(dialect::vllm, lengths).factor, 0.0);
  EXPECT_EQ(yarn_as(dialect::llama_cpp, lengths).factor, 1.0);
  POSENC_EXPECT_ERROR(frequency_ladder(64) | yarn_as(dialect::vllm, lengths), errc::invalid_value, "factor: not given");
  const yarn_keys no_original{.factor = 4, .max_position_embeddings = 32768};
  EXPECT_EQ(yarn_as(dialect::huggingface, no_original).original_context, 32768);
  EXPECT_EQ(yarn_as(dialect::vllm, no_original).original_context, 0);
  EXPECT_EQ(yarn_as(dialect::llama_cpp, no_original).original_context, 32768);
}

TEST(YarnAs, EachPeerReadsItsOwnKeys) {
  const yarn_keys all{.factor = 16,
                      .original_max_position_embeddings = 4096,
                      .beta_fast = 16,
                      .beta_slow = 2,
                      .truncate = false,
                      .attention_factor = 1.5,
                      .attn_factor = 0.8,
                      .mscale = 0.9,
                      .mscale_all_dim = 0.7,
                      .extrapolation_factor = 0.5,
                      .apply_yarn_scaling = false};
  const double g1 = yarn_magnitude(16);
  const frequency_ladder plain(64);

  const yarn hf = yarn_as(dialect::huggingface, all);
  EXPECT_FALSE(hf.truncate);
  EXPECT_EQ(hf.beta_fast, 16);
  EXPECT_EQ(hf.beta_slow, 2);
  EXPECT_EQ(hf.extrapolation_factor, 1);
  EXPECT_EQ((plain | hf).attention_factor(), 1.5);

  const yarn vllm = yarn_as(dialect::vllm, all);
  EXPECT_FALSE(vllm.truncate);
  EXPECT_EQ(vllm.extrapolation_factor, 0.5);
  EXPECT_EQ((plain | vllm).attention_factor(), 0.8);

  yarn_keys scaled = all;
  scaled.apply_yarn_scaling.reset();
  EXPECT_NEAR((plain | yarn_as(dialect::vllm, scaled)).attention_factor(), 0.8 * g1, 1e-15) << "mscale is not read";

  const yarn llama = yarn_as(dialect::llama_cpp, all);
  EXPECT_TRUE(llama.truncate);
  EXPECT_EQ(llama.ramp_width, yarn_ramp_width::at_least_0_001);
  EXPECT_EQ(llama.extrapolation_factor, 0.5);
  EXPECT_NEAR((plain | llama).attention_factor(), 0.8 * g1 / yarn_magnitude(16, 0.7), 1e-15);
}

TEST(YarnAs, ZeroBetas) {
  const yarn_keys zero{.factor = 4, .original_max_position_embeddings = 4096, .beta_fast = 0, .beta_slow = 0};
  EXPECT_EQ(yarn_as(dialect::huggingface, zero).beta_fast, 32);
  EXPECT_EQ(yarn_as(dialect::huggingface, zero).beta_slow, 1);
  POSENC_EXPECT_ERROR(frequency_ladder(64) | yarn_as(dialect::vllm, zero), errc::invalid_value, "beta_fast: is 0");
  POSENC_EXPECT_ERROR(frequency_ladder(64) | yarn_as(dialect::llama_cpp, zero), errc::invalid_value, "beta_fast: is 0");
}

TEST(YarnAs, DeepSeek) {
  yarn_keys keys{
      .factor = 40, .original_max_position_embeddings = 4096, .truncate = false, .mscale = 0.707, .deepseek = true};
  const frequency_ladder plain(64);
  EXPECT_NEAR((plain | yarn_as(dialect::huggingface, keys)).attention_factor(), 1.3688879454113936, 1e-14);
  EXPECT_NEAR((plain | yarn_as(dialect::vllm, keys)).attention_factor(), 1.2608037774058554, 1e-14);
  EXPECT_TRUE(yarn_as(dialect::vllm, keys).truncate);
  keys.mscale_all_dim = 0.707;
  for (dialect reading : {dialect::huggingface, dialect::vllm, dialect::llama_cpp}) {
    EXPECT_EQ((plain | yarn_as(reading, keys)).attention_factor(), 1.0);
  }
  keys.deepseek = false;
  EXPECT_NEAR((plain | yarn_as(dialect::llama_cpp, keys)).attention_factor(), 1.3688879454113936 / 1.2608037774058554,
              1e-14);
}

TEST(YarnAs, LlamaCppWithoutRampHasNoMagnitude) {
  yarn_keys keys{.factor = 4, .original_max_position_embeddings = 4096, .attn_factor = 1.25, .extrapolation_factor = 0};
  const frequency_ladder plain(64);
  const frequency_ladder ladder = plain | yarn_as(dialect::llama_cpp, keys);
  EXPECT_EQ(ladder, (plain | position_interpolation{.factor = 4}).with_attention_factor(1.25));
  keys.extrapolation_factor = -1;
  EXPECT_EQ(yarn_as(dialect::llama_cpp, keys).extrapolation_factor, 1);
  EXPECT_NEAR((plain | yarn_as(dialect::llama_cpp, keys)).attention_factor(), 1.25 * yarn_magnitude(4), 1e-15);
}

TEST(YarnAs, BadKeysReachTheErrorAndAreNotTakenForMissing) {
  const frequency_ladder plain(64);
  for (const double& bad : not_finite()) {
    for (dialect reading : {dialect::huggingface, dialect::vllm, dialect::llama_cpp}) {
      yarn_keys keys{.factor = 4, .original_max_position_embeddings = 4096};
      keys.beta_fast = bad;
      POSENC_EXPECT_ERROR(plain | yarn_as(reading, keys), errc::invalid_value, "beta_fast: is ");
      keys.beta_fast.reset();
      keys.factor = bad;
      POSENC_EXPECT_ERROR(plain | yarn_as(reading, keys), errc::invalid_value, "factor: is ");
    }
    yarn_keys keys{.factor = 4, .original_max_position_embeddings = 4096};
    keys.extrapolation_factor = bad;
    POSENC_EXPECT_ERROR(plain | yarn_as(dialect::llama_cpp, keys), errc::invalid_value, "extrapolation_factor: is ");
    POSENC_EXPECT_ERROR(plain | yarn_as(dialect::vllm, keys), errc::invalid_value, "extrapolation_factor: is ");
    keys.extrapolation_factor.reset();
    keys.attention_factor = bad;
    POSENC_EXPECT_ERROR(plain | yarn_as(dialect::huggingface, keys), errc::invalid_value, "attention_factor: is ");
    keys.attention_factor.reset();
    keys.mscale_all_dim = bad;
    POSENC_EXPECT_ERROR(plain | yarn_as(dialect::llama_cpp, keys), errc::invalid_value, "mscale");
  }
}

}  // namespace
