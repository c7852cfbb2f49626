// SPDX-License-Identifier: Apache-2.0
// Mistakes that users met elsewhere. Every case also shows that its bound tells the mistake's values from the right ones.
#include <posenc/ladder/dialect.hpp>
#include <posenc/ladder/llama3.hpp>
#include <posenc/ladder/rotary_dim.hpp>

#include <set>

#include "ladder_support.hpp"
#include "support/expect_error.hpp"

namespace {

using namespace posenc;
using namespace ladder_test;

class UserReport : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    for (const json& c : cases_of("ladder_user_reports.json")) {
      if (c.at("id") == GetParam()) report = c;
    }
    ASSERT_FALSE(report.is_null());
  }

  const json& input(const char* name) const { return report.at("inputs").at(name); }

  // Within the report's bound of the expected value. Where the mistake's value is known, it must be told apart in at least
  // one place of `quantity` (a list may agree elsewhere).
  void expect(const char* quantity, const std::vector<double>& actual) {
    const std::vector<double> expected = list(report.at("expected").at(quantity));
    const double bound = report.at("tolerance").at("abs_f64");
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], bound) << quantity << " " << i;
    if (!report.at("wrong").contains(quantity)) return;
    const json& wrong = report.at("wrong").at(quantity);
    bool told_apart = false;
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const json& value = wrong.is_array() ? wrong.at(i) : wrong;
      told_apart = told_apart || !value.is_number() || std::abs(value.get<double>() - actual[i]) > bound;
    }
    EXPECT_TRUE(told_apart) << quantity << " cannot show the mistake";
  }

  static std::vector<double> list(const json& value) {
    return value.is_array() ? value.get<std::vector<double>>() : std::vector<double>{value.get<double>()};
  }

  static yarn_keys keys_of(const json& block) {
    yarn_keys keys{.original_max_position_embeddings = block.value("original_max_position_embeddings", index_t{4096})};
    const auto read = [&](const char* name, std::optional<double>& key) {
      if (block.contains(name) && !block.at(name).is_null()) key = block.at(name).get<double>();
    };
    read("factor", keys.factor);
    read("attention_factor", keys.attention_factor);
    read("mscale", keys.mscale);
    read("mscale_all_dim", keys.mscale_all_dim);
    read("beta_fast", keys.beta_fast);
    read("beta_slow", keys.beta_slow);
    if (block.contains("truncate")) keys.truncate = block.at("truncate").get<bool>();
    return keys;
  }

  json report;
};

class PartialRotaryReport : public UserReport {};
TEST_P(PartialRotaryReport, RotaryDim) {
  if (report.at("op") == "expect_error") {
    const json& configs = input("configs");
    for (std::size_t i = 0; i < configs.size(); ++i) {
      const index_t head_dim = configs[i].at("head_dim");
      const double factor = configs[i].at("partial_rotary_factor");
      const json& expected = report.at("expected").at("result")[i];
      if (expected.is_number()) {
        EXPECT_EQ(partial_rotary_dim(head_dim, factor), expected);
      } else {
        POSENC_EXPECT_ERROR(partial_rotary_dim(head_dim, factor), errc::invalid_shape, "partial_rotary_factor: is ");
      }
    }
    return;
  }
  const index_t rotary_dim = partial_rotary_dim(input("head_dim"), input("partial_rotary_factor"));
  EXPECT_EQ(rotary_dim, report.at("expected").at("rotary_dim"));
  EXPECT_NE(rotary_dim, report.at("wrong").at("rotary_dim"));
}
INSTANTIATE_TEST_SUITE_P(All, PartialRotaryReport, testing::Values("BR-024", "BR-025"));

class PlainLadderReport : public UserReport {};
TEST_P(PlainLadderReport, Frequencies) {
  const json& config = input("config");
  const json& source = config.contains("rope_parameters") ? config.at("rope_parameters") : config;
  const frequency_ladder ladder(config.at("head_dim"), {.base = source.at("rope_theta")});
  expect("inv_freq_1", {ladder.inv_freq(1)});
  if (report.at("expected").contains("inv_freq_63")) {
    expect("inv_freq_63", {ladder.inv_freq(63)});
    expect("theta", {ladder.base()});
  }
}
INSTANTIATE_TEST_SUITE_P(All, PlainLadderReport, testing::Values("BR-028", "BR-030"));

class YarnFactorReport : public UserReport {};
TEST_P(YarnFactorReport, AttentionFactor) {
  std::vector<double> factors;
  for (const json& block : input("blocks")) {
    const frequency_ladder ladder = frequency_ladder(64) | yarn_as(dialect::huggingface, keys_of(block));
    factors.push_back(ladder.attention_factor());
  }
  expect("attention_factor", factors);
}
INSTANTIATE_TEST_SUITE_P(All, YarnFactorReport, testing::Values("BR-039", "BR-041"));

class SoftmaxScaleReport : public UserReport {};
TEST_P(SoftmaxScaleReport, Multiplier) {
  const json& scaling = input("rope_scaling");
  const double multiplier = yarn_softmax_multiplier(scaling.at("factor"), scaling.at("mscale_all_dim"));
  expect("multiplier", {multiplier});
  expect("scale", {multiplier / std::sqrt(input("qk_head_dim").get<double>())});
}
INSTANTIATE_TEST_SUITE_P(All, SoftmaxScaleReport, testing::Values("BR-042"));

class YarnFrequencyReport : public UserReport {};
TEST_P(YarnFrequencyReport, RangeAndFrequencies) {
  const frequency_ladder plain(input("rotary_dim"), {.base = input("base")});
  const yarn scaling = yarn_as(dialect::huggingface, keys_of(input("scaling")));
  const yarn_range range = scaling.correction_range(plain);
  expect("low", {range.low});
  expect("high", {range.high});
  const frequency_ladder ladder = plain | scaling;
  std::vector<double> chosen;
  for (index_t pair : input("pairs")) chosen.push_back(ladder.inv_freq(pair));
  expect("inv_freq", chosen);
}
INSTANTIATE_TEST_SUITE_P(All, YarnFrequencyReport, testing::Values("BR-043", "BR-045", "BR-046"));

class NtkBaseReport : public UserReport {};
TEST_P(NtkBaseReport, Base) {
  const frequency_ladder plain(input("rotary_dim"), {.base = input("base")});
  std::vector<double> bases;
  for (double alpha : input("alphas")) bases.push_back((plain | ntk_as(dialect::vllm, {.alpha = alpha})).base());
  expect("base", bases);
}
INSTANTIATE_TEST_SUITE_P(All, NtkBaseReport, testing::Values("BR-052"));

class Llama3Report : public UserReport {};
TEST_P(Llama3Report, Frequencies) {
  const json& scaling = input("scaling");
  const frequency_ladder ladder = frequency_ladder(input("rotary_dim"), {.base = input("base")}) |
                                  llama3{.factor = scaling.at("factor"),
                                         .low_freq_factor = scaling.at("low_freq_factor"),
                                         .high_freq_factor = scaling.at("high_freq_factor"),
                                         .original_context = scaling.at("original_max_position_embeddings")};
  if (report.at("inputs").contains("pairs")) {
    std::vector<double> chosen;
    for (index_t pair : input("pairs")) chosen.push_back(ladder.inv_freq(pair));
    expect("inv_freq", chosen);
  } else {
    const double angle = input("position").get<double>() * ladder.inv_freq(input("pair").get<index_t>());
    expect("angle", {angle});
    expect("cos", {std::cos(angle)});
    expect("sin", {std::sin(angle)});
  }
}
INSTANTIATE_TEST_SUITE_P(All, Llama3Report, testing::Values("BR-053", "BR-055"));

// Every report of the file is used by some suite above.
TEST(UserReports, NoneIsLeftOut) {
  std::set<std::string> used;
  for (int s = 0; s < testing::UnitTest::GetInstance()->total_test_suite_count(); ++s) {
    const testing::TestSuite* suite = testing::UnitTest::GetInstance()->GetTestSuite(s);
    for (int t = 0; t < suite->total_test_count(); ++t) {
      const char* value = suite->GetTestInfo(t)->value_param();
      if (value != nullptr) used.insert(value);
    }
  }
  for (const json& c : cases_of("ladder_user_reports.json")) {
    const std::string id = c.at("id");
    bool found = false;
    for (const std::string& value : used) found = found || value.find(id) != std::string::npos;
    EXPECT_TRUE(found) << id;
  }
}

}  // namespace
