// SPDX-License-Identifier: Apache-2.0
// Ladders as Hugging Face, vLLM and the YaRN repository make them, and rows of their tables of cosines and sines.
#include <posenc/ladder/rotary_dim.hpp>

#include <cmath>
#include <string>
#include <vector>

#include "cases.hpp"
#include "element_types.hpp"
#include "ladders.hpp"
#include "rope_description.hpp"

namespace conformance {

namespace {

void compare_ladder(const posenc::frequency_ladder& ladder, const json& c, case_report& report) {
  const std::vector<double> expected = list(c, "inv_freq");
  report.require(static_cast<index_t>(expected.size()) == ladder.size(),
                 "the ladder has " + std::to_string(ladder.size()) + " frequencies");
  if (static_cast<index_t>(expected.size()) != ladder.size()) return;
  for (std::size_t i = 0; i < expected.size(); ++i)
    report.compare("double", std::abs(ladder.inv_freq()[i] - expected[i]), ladder_bound * std::abs(expected[i]));
  if (!has(c, "inv_freq_f32")) return;
  // What the peer returns in float32, for people to read.
  const std::vector<double> rounded = list(c, "inv_freq_f32");
  double largest = 0;
  for (std::size_t i = 0; i < rounded.size() && i < expected.size(); ++i)
    if (rounded[i] != 0) largest = std::fmax(largest, std::abs(ladder.inv_freq()[i] / rounded[i] - 1));
  char text[64];
  std::snprintf(text, sizeof text, "the peer's float32: %.1e", largest);
  report.note(text);
}

void compare_factor(const posenc::frequency_ladder& ladder, const json& c, case_report& report) {
  for (const char* name : {"attention_factor", "mscale"})
    if (has(c, name))
      report.compare("factor", std::abs(ladder.attention_factor() - number(c, name)), ladder_bound * number(c, name));
}

/// vLLM's rows: cosines, then sines. A linear scaling divides positions there, and a list of factors makes one table
/// after the other, so the row says which factor it has.
void compare_cache_rows(const json& c, case_report& report) {
  if (!has(c, "rows")) return;
  const json& rows = c.at("rows");
  const std::vector<index_t> index = whole_list(rows, rows.contains("cache_index") ? "cache_index" : "positions");
  const array cos_sin = numbers(rows, "cos_sin");
  for (std::size_t row = 0; row < index.size(); ++row) {
    json parameters = field(c, "rope_parameters");
    index_t offset = 0;
    if (has(c, "scaling_factor_to_offset")) {
      offset = -1;
      for (const auto& [factor, first] : c.at("scaling_factor_to_offset").items())
        if (whole(first) <= index[row] && whole(first) > offset) {
          offset = whole(first);
          parameters["factor"] = std::stod(factor);
        }
      if (offset < 0) throw malformed_case("a row lies before every table");
    }
    const posenc::frequency_ladder ladder = ladder_from(parameters, ladder_use_of(c));
    const std::vector<double> both(cos_sin.values.begin() + static_cast<index_t>(row) * cos_sin.extent(1),
                                   cos_sin.values.begin() + static_cast<index_t>(row + 1) * cos_sin.extent(1));
    const index_t pairs = cos_sin.extent(1) / 2;
    const std::vector<double> cos(both.begin(), both.begin() + pairs), sin(both.begin() + pairs, both.end());
    compare_cos_sin({ladder}, static_cast<double>(index[row] - offset), cos, sin, report);
  }
}

/// The YaRN repository's rows.
void compare_position_rows(const posenc::frequency_ladder& ladder, const json& c, case_report& report) {
  if (!has(c, "row_positions")) return;
  const std::vector<double> positions = list(c, "row_positions");
  const array cos = numbers(c, "cos_rows"), sin = numbers(c, "sin_rows");
  for (std::size_t row = 0; row < positions.size(); ++row) {
    const auto begin = static_cast<index_t>(row) * cos.extent(1), end = begin + cos.extent(1);
    compare_cos_sin({ladder}, positions[row], {cos.values.begin() + begin, cos.values.begin() + end},
                    {sin.values.begin() + begin, sin.values.begin() + end}, report);
  }
}

}  // namespace

void run_frequencies(const json& c, case_report& report) {
  if (c.contains("args")) {
    const posenc::frequency_ladder ladder = ladder_of_yarn_repository(c);
    compare_ladder(ladder, c, report);
    compare_factor(ladder, c, report);
    compare_position_rows(ladder, c, report);
    return;
  }
  json parameters = field(c, "rope_parameters");
  // vLLM's linear scaling divides positions: its frequencies are those of the plain ladder.
  const bool divides_positions = c.contains("class") && parameters.value("rope_type", "") == "linear";
  if (divides_positions) parameters["rope_type"] = "default";
  const posenc::frequency_ladder ladder = ladder_from(parameters, ladder_use_of(c));
  report.require(ladder.rotary_dim() == optional_whole(c, "rotary_dim").value_or(ladder.rotary_dim()),
                 "the rotary width is " + std::to_string(ladder.rotary_dim()));
  compare_ladder(ladder, c, report);
  compare_factor(ladder, c, report);
  compare_cache_rows(c, report);
}

}  // namespace conformance
