// SPDX-License-Identifier: Apache-2.0
// Ladders against what other implementations compute in double, and against base^(-2i/d) with 60 digits elsewhere.
#include <posenc/ladder/dialect.hpp>
#include <posenc/ladder/frequency_factors.hpp>
#include <posenc/ladder/llama3.hpp>
#include <posenc/ladder/position_interpolation.hpp>
#include <posenc/ladder/rotary_dim.hpp>

#include <set>

#include "ladder_support.hpp"

namespace {

using namespace posenc;
using namespace ladder_test;

constexpr double bound = 1e-13;

template <class T>
std::optional<T> key(const json& object, const char* name) {
  if (!object.contains(name) || object.at(name).is_null()) return std::nullopt;
  return object.at(name).get<T>();
}

yarn_keys yarn_keys_of(const json& parameters, std::optional<index_t> max_position_embeddings) {
  yarn_keys keys;
  keys.factor = key<double>(parameters, "factor");
  keys.original_max_position_embeddings = key<index_t>(parameters, "original_max_position_embeddings");
  keys.max_position_embeddings = max_position_embeddings;
  keys.beta_fast = key<double>(parameters, "beta_fast");
  keys.beta_slow = key<double>(parameters, "beta_slow");
  keys.truncate = key<bool>(parameters, "truncate");
  keys.attention_factor = key<double>(parameters, "attention_factor");
  keys.attn_factor = key<double>(parameters, "attn_factor");
  keys.mscale = key<double>(parameters, "mscale");
  keys.mscale_all_dim = key<double>(parameters, "mscale_all_dim");
  keys.extrapolation_factor = key<double>(parameters, "extrapolation_factor");
  keys.apply_yarn_scaling = key<bool>(parameters, "apply_yarn_scaling");
  keys.deepseek = parameters.at("rope_type") == "deepseek_yarn";
  return keys;
}

// A ladder of transformers' or vLLM's parameters.
frequency_ladder ladder_of(const json& c) {
  const json& parameters = c.at("rope_parameters");
  const std::string type = parameters.at("rope_type");
  const dialect reading = c.at("peer") == "vllm" ? dialect::vllm : dialect::huggingface;
  const index_t rotary_dim = partial_rotary_dim(c.at("head_dim"), parameters.value("partial_rotary_factor", 1.0));
  EXPECT_EQ(rotary_dim, c.at("rotary_dim"));
  const frequency_ladder plain(rotary_dim, {.base = parameters.at("rope_theta")});
  if (type == "default") return plain;
  if (type == "linear") return plain | position_interpolation{.factor = parameters.at("factor")};
  if (type == "llama3") {
    return plain | llama3{.factor = parameters.at("factor"),
                          .low_freq_factor = parameters.at("low_freq_factor"),
                          .high_freq_factor = parameters.at("high_freq_factor"),
                          .original_context = parameters.at("original_max_position_embeddings")};
  }
  if (type == "ntk" || type == "dynamic") {
    ntk_keys keys;
    keys.factor = key<double>(parameters, "factor");
    keys.alpha = key<double>(parameters, "alpha");
    keys.mixed_b = key<double>(parameters, "mixed_b");
    return plain | ntk_as(dialect::vllm, keys);
  }
  EXPECT_TRUE(type == "yarn" || type == "deepseek_yarn") << type;
  return plain | yarn_as(reading, yarn_keys_of(parameters, key<index_t>(c, "max_position_embeddings")));
}

// A ladder of the arguments of the YaRN repository's classes.
frequency_ladder ladder_of_arguments(const json& arguments) {
  const frequency_ladder plain(arguments.at("dim"), {.base = arguments.at("base")});
  if (arguments.contains("alpha")) return plain | ntk_aware{.factor = arguments.at("alpha")};
  return plain | yarn{.factor = arguments.at("scale"),
                      .original_context = arguments.at("original_max_position_embeddings"),
                      .extrapolation_factor = arguments.at("extrapolation_factor"),
                      .attn_factor = arguments.at("attn_factor")};
}

TEST(Golden, FrequenciesAndAttentionFactors) {
  std::set<std::string> kinds;
  for (const json& c : cases_of("ladder_frequencies.json")) {
    if (!c.contains("inv_freq")) continue;
    SCOPED_TRACE(c.at("name").get<std::string>());
    const frequency_ladder ladder = c.contains("args") ? ladder_of_arguments(c.at("args")) : ladder_of(c);
    EXPECT_LE(largest_relative_deviation(ladder, c.at("inv_freq")), bound);
    const double attention_factor = c.at("attention_factor");
    EXPECT_NEAR(ladder.attention_factor(), attention_factor, bound * attention_factor);
    kinds.insert(ladder.provenance().empty() ? "plain" : ladder.provenance()[0].name.c_str());
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"llama3", "ntk_aware", "plain", "position_interpolation", "yarn"}));
}

// vLLM divides positions instead of frequencies and keeps one table a factor, one after another.
TEST(Golden, LinearAsATableOfDividedPositions) {
  int rows = 0;
  for (const json& c : cases_of("ladder_frequencies.json")) {
    if (c.contains("inv_freq")) continue;
    SCOPED_TRACE(c.at("name").get<std::string>());
    const frequency_ladder plain(c.at("rotary_dim"), {.base = c.at("rope_parameters").at("rope_theta")});
    for (std::size_t row = 0; row < c.at("rows").at("cache_index").size(); ++row) {
      const index_t index = c.at("rows").at("cache_index")[row];
      double factor = 0;
      index_t offset = -1;
      for (const auto& [text, first] : c.at("scaling_factor_to_offset").items()) {
        if (first.get<index_t>() <= index && first.get<index_t>() > offset) {
          offset = first;
          factor = std::stod(text);
        }
      }
      const frequency_ladder ladder = plain | position_interpolation{.factor = factor};
      const std::vector<double> expected = c.at("rows").at("cos_sin")[row];
      ASSERT_EQ(static_cast<index_t>(expected.size()), ladder.rotary_dim());
      for (index_t i = 0; i < ladder.size(); ++i) {
        const double angle = static_cast<double>(index - offset) * ladder.inv_freq(i);
        EXPECT_NEAR(std::cos(angle), expected[static_cast<std::size_t>(i)], 1e-13 + 1e-15 * angle);
        EXPECT_NEAR(std::sin(angle), expected[static_cast<std::size_t>(i + ladder.size())], 1e-13 + 1e-15 * angle);
      }
      ++rows;
    }
  }
  EXPECT_GT(rows, 4);
}

// ggml's parameters: the context-level reading on top of them is yarn_as(dialect::llama_cpp, ...).
frequency_ladder ladder_of_ggml(const json& c) {
  frequency_ladder ladder(c.at("n_dims"), {.base = c.at("freq_base")});
  if (!c.at("freq_factors").is_null()) ladder = ladder | frequency_factors{c.at("freq_factors")};
  const double factor = 1 / c.at("freq_scale").get<double>();
  yarn scaling{.factor = factor,
               .original_context = c.at("n_ctx_orig"),
               .beta_fast = c.at("beta_fast"),
               .beta_slow = c.at("beta_slow"),
               .ramp_width = yarn_ramp_width::at_least_0_001,
               .extrapolation_factor = c.at("ext_factor"),
               .attn_factor = c.at("attn_factor"),
               .magnitude_below_one = true};
  scaling.apply_yarn_scaling = scaling.extrapolation_factor != 0;
  if (!c.at("corr_dims").is_null()) {
    const yarn_range range = scaling.correction_range(ladder);
    EXPECT_EQ(range.low, c.at("corr_dims")[0]);
    EXPECT_EQ(range.high, c.at("corr_dims")[1]);
  }
  return ladder | stacked(scaling);
}

TEST(Golden, RotationsOfGgml) {
  int checked = 0;
  for (const json& c : cases_of("ladder_ggml.json")) {
    SCOPED_TRACE(c.at("name").get<std::string>());
    const frequency_ladder ladder = ladder_of_ggml(c);
    const bool interleaved = c.at("mode") == "normal";
    for (std::size_t token = 0; token < c.at("positions").size(); ++token) {
      for (std::size_t head = 0; head < c.at("input")[token].size(); ++head) {
        const std::vector<double> x = c.at("input")[token][head];
        const std::vector<double> y = c.at("output")[token][head];
        double scale = 0;
        for (double v : x) scale = std::abs(v) > scale ? std::abs(v) : scale;
        for (double v : y) scale = std::abs(v) > scale ? std::abs(v) : scale;
        for (index_t i = 0; i < ladder.size(); ++i) {
          const auto first = static_cast<std::size_t>(interleaved ? 2 * i : i);
          const auto second = static_cast<std::size_t>(interleaved ? 2 * i + 1 : i + ladder.size());
          const double angle = c.at("positions")[token].get<double>() * ladder.inv_freq(i);
          const double cosine = ladder.attention_factor() * std::cos(angle);
          const double sine = ladder.attention_factor() * std::sin(angle);
          const double tolerance = (1e-13 + 1e-15 * std::abs(angle)) * scale;
          EXPECT_NEAR(x[first] * cosine - x[second] * sine, y[first], tolerance) << i;
          EXPECT_NEAR(x[second] * cosine + x[first] * sine, y[second], tolerance) << i;
          ++checked;
        }
      }
    }
  }
  EXPECT_GT(checked, 500);
}

}  // namespace
