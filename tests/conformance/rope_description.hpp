// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTS_CONFORMANCE_ROPE_DESCRIPTION_HPP
#define POSENC_TESTS_CONFORMANCE_ROPE_DESCRIPTION_HPP

#include <posenc/encoding/frequency_axis.hpp>
#include <posenc/encoding/rope.hpp>
#include <posenc/encoding/rotate.hpp>
#include <posenc/encoding/xpos.hpp>

#include <cmath>
#include <vector>

#include "element_types.hpp"
#include "json_values.hpp"

namespace conformance {

/// A rope in plain numbers: what the library's object is made of, and what the bounds need to know.
struct rope_description {
  posenc::frequency_ladder ladder;
  posenc::rope_options options = {};
  double xpos_base = 0;  ///< scale_base of xPos; 0: plain RoPE

  posenc::rope make() const { return posenc::rope(ladder, options); }
  posenc::xpos make_xpos() const {
    return posenc::xpos(ladder, {.pairing = options.pairing, .offset = options.offset, .scale_base = xpos_base});
  }

  /// f(encoding), which is a rope or an xpos.
  template <class F>
  auto visit(F&& f) const {
    return xpos_base > 0 ? f(make_xpos()) : f(make());
  }

  /// The angle by which dimension d of a head turns at a position with one number an axis; 0 for those that do not.
  template <class Position>
  double angle(index_t d, const Position& position) const {
    const index_t inside = d - options.offset;
    if (inside < 0 || inside >= ladder.rotary_dim()) return 0;
    const index_t pair = options.pairing == posenc::pairing::half ? inside % ladder.size() : inside / 2;
    const index_t axis = options.frequency_axis.empty() ? 0 : options.frequency_axis[static_cast<std::size_t>(pair)];
    return position(axis) * ladder.inv_freq(pair);
  }
};

/// Of an `encoding` of type rope.
inline rope_description rope_from(const json& encoding) {
  const std::vector<double> inv_freq = list(encoding, "inv_freq");
  const double base = optional_number(encoding, "rope_theta").value_or(0);
  rope_description result{posenc::frequency_ladder::from_inv_freq(
      inv_freq, optional_number(encoding, "attention_factor").value_or(1), base)};
  const std::string style = encoding.contains("style") ? text(encoding, "style") : "half";
  if (style != "half" && style != "interleaved") throw skip_case("rope style " + style + " is not known");
  result.options.pairing = style == "half" ? posenc::pairing::half : posenc::pairing::interleaved;
  result.options.offset = optional_whole(encoding, "offset").value_or(0);
  if (has(encoding, "frequency_axis")) {
    result.options.frequency_axis = whole_list(encoding, "frequency_axis");
  } else if (has(encoding, "mrope_section")) {
    const std::vector<index_t> sections = whole_list(encoding, "mrope_section");
    result.options.frequency_axis = bool_or(encoding, "mrope_interleaved", false) ? posenc::mrope_interleaved(sections)
                                                                                  : posenc::mrope_sections(sections);
  }
  if (optional_whole(encoding, "rotary_dim").value_or(result.ladder.rotary_dim()) != result.ladder.rotary_dim())
    throw malformed_case("rotary_dim is not twice the number of frequencies");
  if (has(encoding, "xpos_scale")) {
    result.xpos_base = number(encoding, "xpos_scale_base");
    const std::vector<double> zeta = list(encoding, "xpos_scale");
    const posenc::xpos made = result.make_xpos();
    if (zeta.size() != inv_freq.size() || !result.options.frequency_axis.empty())
      throw malformed_case("xpos_scale is not one number a pair of one axis");
    for (std::size_t i = 0; i < zeta.size(); ++i)
      if (!(std::abs(made.zeta(static_cast<index_t>(i)) - zeta[i]) <= 1e-14))
        throw skip_case("xPos with other factors than (2i / d + 0.4) / 1.4 is not known");
  }
  return result;
}

/// A * cos and A * sin of every pair at one position on all axes, as rotating unit vectors shows them.
template <class T>
struct cos_sin {
  std::vector<double> cos, sin;

  cos_sin(const rope_description& rope, double position) {
    const index_t pairs = rope.ladder.size(), dim = rope.options.offset + rope.ladder.rotary_dim();
    const bool half = rope.options.pairing == posenc::pairing::half;
    const auto first = [&](index_t pair) { return rope.options.offset + (half ? pair : 2 * pair); };
    std::vector<T> x(static_cast<std::size_t>(dim), T(0));
    for (index_t i = 0; i < pairs; ++i) x[static_cast<std::size_t>(first(i))] = T(1);
    index_t axes = 1;
    for (const index_t axis : rope.options.frequency_axis) axes = axis + 1 > axes ? axis + 1 : axes;
    const std::vector<double> positions(static_cast<std::size_t>(axes), position);
    const double order = 0;
    posenc::rotate(posenc::view_bhtd(x.data(), 1, 1, 1, dim),
                   posenc::token_positions(positions.data(), 1, 1, axes).with_order(&order), rope.make());
    for (index_t i = 0; i < pairs; ++i) {
      cos.push_back(wide(x[static_cast<std::size_t>(first(i))]));
      sin.push_back(wide(x[static_cast<std::size_t>(first(i) + (half ? pairs : 1))]));
    }
  }
};

/// Compares cosines and sines, both multiplied by the attention factor, in every element type.
inline void compare_cos_sin(const rope_description& rope, double position, const std::vector<double>& cos,
                            const std::vector<double>& sin, case_report& report) {
  const auto pairs = static_cast<std::size_t>(rope.ladder.size());
  if (cos.size() < pairs || sin.size() < pairs) throw malformed_case("has fewer cosines or sines than frequencies");
  double largest = 0;
  for (const auto* row : {&cos, &sin})
    for (const double x : *row) largest = std::abs(x) > largest ? std::abs(x) : largest;
  for_each_type([&]<class T>() {
    const cos_sin<T> actual(rope, position);
    for (std::size_t i = 0; i < pairs; ++i) {
      const double bound = rotation_bound<T>(position * rope.ladder.inv_freq(static_cast<index_t>(i)), largest);
      report.compare(type_name<T>(), std::abs(actual.cos[i] - cos[i]), bound);
      report.compare(type_name<T>(), std::abs(actual.sin[i] - sin[i]), bound);
    }
  });
}

}  // namespace conformance

#endif  // POSENC_TESTS_CONFORMANCE_ROPE_DESCRIPTION_HPP
