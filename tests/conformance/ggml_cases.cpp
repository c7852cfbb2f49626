// SPDX-License-Identifier: Apache-2.0
// Vectors rotated by ggml.
#include <posenc/core/token_builders.hpp>
#include <posenc/encoding/rotate.hpp>
#include <posenc/ladder/yarn.hpp>

#include <cmath>
#include <string>
#include <vector>

#include "cases.hpp"
#include "element_types.hpp"
#include "ladders.hpp"
#include "rope_description.hpp"

namespace conformance {

namespace {

/// Which of the four position streams each pair reads in ggml's modes with sections.
std::vector<index_t> ggml_axes(const std::string& mode, const std::vector<index_t>& sections, index_t pairs) {
  if (sections.size() != 4) throw malformed_case("sections are not four");
  const index_t total = sections[0] + sections[1] + sections[2] + sections[3];
  if (total < 1) throw malformed_case("sections are empty");
  if (mode == "imrope") return posenc::imrope_sections(sections, pairs);
  const std::vector<index_t> once = posenc::mrope_sections(sections);
  std::vector<index_t> axes;
  for (index_t pair = 0; pair < pairs; ++pair) axes.push_back(once[static_cast<std::size_t>(pair % total)]);
  return axes;
}

/// Vision mode: every section begins its frequencies freq_base^(-2k / n_dims) anew, and all n_dims pairs of the head
/// turn.
rope_description ggml_vision(const json& c, index_t head_dim, index_t n_dims) {
  if (n_dims * 2 != head_dim) throw skip_case("vision mode with n_dims other than head_dim / 2 is not known");
  if (optional_number(c, "ext_factor").value_or(0) != 0 || has(c, "freq_factors"))
    throw skip_case("vision mode with a ramp or factors, which run over all sections, is not known");
  const std::vector<index_t> sections = whole_list(c, "sections");
  rope_description rope{posenc::frequency_ladder(2)};
  rope.options.frequency_axis = ggml_axes("mrope", sections, n_dims);
  // A section may have all pairs, twice as many as a plain ladder: a base squared gives as many.
  json parameters = c;
  parameters["freq_base"] = number(c, "freq_base") * number(c, "freq_base");
  const posenc::frequency_ladder one = ladder_of_ggml(parameters, 2 * n_dims);
  index_t total = 0;
  for (const index_t section : sections) total += section;
  std::vector<double> frequencies;
  for (index_t pair = 0, inside = 0; pair < n_dims; ++pair, ++inside) {
    index_t begin = 0;
    for (const index_t section : sections) {
      if (pair % total == begin) inside = 0;
      begin += section;
    }
    frequencies.push_back(one.inv_freq(inside));
  }
  rope.ladder = posenc::frequency_ladder::from_inv_freq(frequencies, one.attention_factor());
  return rope;
}

}  // namespace

void run_ggml(const json& c, case_report& report) {
  const std::string mode = text(c, "mode");
  const index_t head_dim = whole(c, "head_dim"), heads = whole(c, "heads"), count = whole(c, "tokens");
  const index_t n_dims = whole(c, "n_dims");
  const array input = numbers(c, "input", {count, heads, head_dim}),
              output = numbers(c, "output", {count, heads, head_dim});
  rope_description rope{posenc::frequency_ladder(2)};
  if (mode == "normal" || mode == "neox") {
    rope.ladder = ladder_of_ggml(c, n_dims);
    rope.options.pairing = mode == "neox" ? posenc::pairing::half : posenc::pairing::interleaved;
  } else if (mode == "mrope" || mode == "imrope") {
    rope.ladder = ladder_of_ggml(c, n_dims);
    rope.options.frequency_axis = ggml_axes(mode, whole_list(c, "sections"), n_dims / 2);
  } else if (mode == "vision") {
    rope = ggml_vision(c, head_dim, n_dims);
  } else {
    throw skip_case("mode " + mode + " is not known");
  }
  rope.options.offset = optional_whole(c, "n_offs").value_or(0);
  if (has(c, "corr_dims") && mode != "vision") {
    // The ends of the ramp are whole pairs there as well.
    const std::vector<double> ends = list(c, "corr_dims");
    const posenc::yarn_range range =
        posenc::yarn{.factor = 2,
                     .original_context = whole(c, "n_ctx_orig"),
                     .beta_fast = number(c, "beta_fast"),
                     .beta_slow = number(c, "beta_slow")}
            .correction_range(posenc::frequency_ladder(n_dims, {.base = number(c, "freq_base")}));
    report.require(ends.size() == 2 && range.low == ends[0] && range.high == ends[1],
                   "yarn's ramp has other ends than corr_dims");
  }

  posenc::token_list tokens;
  tokens.axes = rope.options.frequency_axis.empty() ? 1 : 4;
  tokens.count = count;
  const array positions = numbers(c, "positions");
  tokens.positions = positions.values;
  if (static_cast<index_t>(tokens.positions.size()) != tokens.axes * count ||
      positions.rank() != (tokens.axes > 1 ? 2 : 1))
    throw malformed_case("has other positions than tokens");
  tokens.order.assign(static_cast<std::size_t>(count), 0);

  const posenc::rope encoding = rope.make();
  const double largest = std::fmax(input.largest(), output.largest());
  const bool backward = bool_or(c, "backward", false);
  for_each_type([&]<class T>() {
    std::vector<T> data = elements<T>(input.values);
    const auto x = posenc::view_thd(data.data(), count, heads, head_dim);
    backward ? posenc::rotate_transposed(x, tokens.view(), encoding) : posenc::rotate(x, tokens.view(), encoding);
    for (index_t t = 0; t < count; ++t)
      for (index_t h = 0; h < heads; ++h)
        for (index_t d = 0; d < head_dim; ++d) {
          const double angle = rope.angle(d, [&](index_t axis) { return tokens.view().position(axis, 0, t); });
          report.compare(type_name<T>(), std::abs(wide(x(0, h, t, d)) - output.at(t, h, d)),
                         rotation_bound<T>(angle, largest));
        }
  });
}

}  // namespace conformance
