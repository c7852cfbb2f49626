// SPDX-License-Identifier: Apache-2.0
// Queries and keys rotated by Hugging Face and vLLM, of text and of images.
#include <posenc/core/token_builders.hpp>
#include <posenc/encoding/axial_rope.hpp>
#include <posenc/encoding/frequency_axis.hpp>
#include <posenc/encoding/rotate.hpp>
#include <posenc/ladder/rotary_dim.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "cases.hpp"
#include "element_types.hpp"
#include "ladders.hpp"
#include "rope_description.hpp"

namespace conformance {

namespace {

/// Where batch, head, token and dim lie in a list, told by a layout such as "[batch][token][head][dim]".
std::array<index_t, 4> axes_from(const std::string& layout) {
  std::array<index_t, 4> place{-1, -1, -1, -1};
  index_t axis = 0;
  for (std::size_t open = layout.find('['); open != std::string::npos; open = layout.find('[', open + 1), ++axis) {
    const std::string word = layout.substr(open + 1, layout.find(']', open) - open - 1);
    std::size_t what = 4;
    if (word == "batch" || word == "1") what = 0;
    if (word == "head") what = 1;
    if (word == "token" || word.rfind("patch", 0) == 0) what = 2;
    if (word == "dim") what = 3;
    if (what == 4 || place[what] != -1) throw skip_case("layout " + layout + " is not known");
    place[what] = axis;
  }
  if (place[1] == -1 || place[2] == -1 || place[3] != axis - 1) throw skip_case("layout " + layout + " is not known");
  return place;
}

/// A list of numbers seen as [batch, heads, tokens, dim].
struct placed_array {
  array x;
  std::array<index_t, 4> extents{1, 1, 1, 1}, strides{0, 0, 0, 1};

  placed_array(const json& c, const char* name, const std::array<index_t, 4>& place) : x(numbers(c, name)) {
    for (std::size_t what = 0; what < 4; ++what) {
      if (place[what] < 0) continue;
      if (place[what] >= x.rank()) throw malformed_case(std::string(name) + " does not have the extents of its layout");
      extents[what] = x.extent(place[what]);
      index_t stride = 1;
      for (index_t axis = place[what] + 1; axis < x.rank(); ++axis) stride *= x.extent(axis);
      strides[what] = stride;
    }
  }

  template <class T>
  posenc::tensor_view<T> view(std::vector<T>& data) const {
    return {data.data(), extents, strides};
  }
  double at(index_t b, index_t h, index_t t, index_t d) const {
    return x.values[static_cast<std::size_t>(b * strides[0] + h * strides[1] + t * strides[2] + d * strides[3])];
  }
};

/// q and k with what they become.
struct rotated_pair {
  placed_array q, k, q_out, k_out;

  rotated_pair(const json& c, const std::array<index_t, 4>& place)
      : q(c, "q", place), k(c, "k", place), q_out(c, "q_out", place), k_out(c, "k_out", place) {
    if (q.extents != q_out.extents || k.extents != k_out.extents)
      throw malformed_case("q_out or k_out has other extents than q or k");
  }
};

/// Rotates q and k, together in place and apart out of place, and compares. `read(d)` says which dimension of the
/// result the peer writes to d.
template <class Read>
void compare_rotated(const rotated_pair& x, const rope_description& rope, const posenc::token_list& tokens, Read&& read,
                     case_report& report) {
  const posenc::rope encoding = rope.make();
  const posenc::token_view view = tokens.view();
  for_each_type([&]<class T>() {
    std::vector<T> q = elements<T>(x.q.x.values), k = elements<T>(x.k.x.values);
    std::vector<T> q_from = q, k_from = k, q_out(q.size(), T(0)), k_out(k.size(), T(0));
    posenc::rotate_qk(x.q.view(q), x.k.view(k), view, encoding);
    posenc::rotate(x.q.view(q_from), x.q.view(q_out), view, encoding, {.role = posenc::token_role::query});
    posenc::rotate(x.k.view(k_from), x.k.view(k_out), view, encoding);
    const auto compare = [&](std::vector<T>& actual, std::vector<T>& other, const placed_array& in,
                             const placed_array& out) {
      const double largest = std::fmax(in.x.largest(), out.x.largest());
      const auto one = in.view(actual), two = in.view(other);
      for (index_t b = 0; b < one.batch(); ++b)
        for (index_t t = 0; t < one.tokens(); ++t)
          for (index_t d = 0; d < one.dim(); ++d) {
            const index_t from = read(d);
            const double angle = rope.angle(from, [&](index_t axis) { return view.position(axis, b, t); });
            for (index_t h = 0; h < one.heads(); ++h) {
              report.require(wide(one(b, h, t, from)) == wide(two(b, h, t, from)),
                             "rotating differs in place and out of place");
              report.compare(type_name<T>(), std::abs(wide(one(b, h, t, from)) - out.at(b, h, t, d)),
                             rotation_bound<T>(angle, largest));
            }
          }
    };
    compare(q, q_out, x.q, x.q_out);
    compare(k, k_out, x.k, x.k_out);
  });
}

/// Positions [token], [batch][token], or with several axes [axis][token] or [axis][batch][token].
posenc::token_list tokens_from(const json& c, const rotated_pair& x, index_t axes) {
  const array positions = numbers(c, c.contains("position_ids") ? "position_ids" : "positions");
  posenc::token_list tokens;
  tokens.axes = axes;
  tokens.count = x.q.extents[2];
  tokens.positions = positions.values;
  tokens.batch = static_cast<index_t>(tokens.positions.size()) / std::max<index_t>(axes * tokens.count, 1);
  if (tokens.count == 0 || static_cast<index_t>(tokens.positions.size()) != axes * tokens.batch * tokens.count ||
      positions.extent(positions.rank() - 1) != tokens.count)
    throw malformed_case("has other positions than tokens");
  if (axes > 1) tokens.order.assign(static_cast<std::size_t>(tokens.batch * tokens.count), 0);
  return tokens;
}

/// How a peer pairs dimensions. Hugging Face's functions are known by the model that they are of.
struct peer_layout {
  bool interleaved = false;
  bool result_in_halves = false;  ///< pairs come out as [all first members, all second members]
};

peer_layout layout_of(const json& c) {
  if (c.contains("is_neox_style")) return {!bool_or(c, "is_neox_style", true), false};
  const std::string file = c.value("file", "") + " " + c.value("implementation", "");
  const std::string function = c.value("function", "");
  if (file.find("vllm") != std::string::npos) return {};
  if (function.find("apply_rotary_pos_emb_interleave") != std::string::npos) return {true, true};
  if (file.find("gptj") != std::string::npos) return {true, false};
  for (const char* half : {"llama/", "gpt_neox", "gpt_oss", "qwen2_vl", "qwen2_5_vl", "qwen3_vl"})
    if (file.find(half) != std::string::npos) return {};
  throw skip_case("function " + function + " of " + file + " is not known");
}

/// Which axis each pair reads, from the sections of M-RoPE.
std::vector<index_t> frequency_axis_of(const json& c, index_t pairs) {
  if (has(c, "frequency_axis")) return whole_list(c, "frequency_axis");
  if (has(c, "mrope_dim")) {  // one entry a dimension: both halves are alike
    std::vector<index_t> axes = whole_list(c, "mrope_dim");
    if (static_cast<index_t>(axes.size()) < pairs) throw malformed_case("mrope_dim is shorter than the pairs");
    axes.resize(static_cast<std::size_t>(pairs));
    return axes;
  }
  const json parameters = c.value("rope_parameters", json::object());
  const json& holder = has(parameters, "mrope_section") ? parameters : c;
  if (!has(holder, "mrope_section")) return {};
  const std::vector<index_t> sections = whole_list(holder, "mrope_section");
  return bool_or(holder, "mrope_interleaved", false) ? posenc::mrope_interleaved(sections)
                                                     : posenc::mrope_sections(sections);
}

/// Frequencies that the case gives, or made from its parameters. Both, where it has both: then they must agree.
posenc::frequency_ladder ladder_of(const json& c, case_report& report) {
  const json parameters = c.value("rope_parameters", json::object());
  const bool made = has(c, "rope_parameters") || has(c, "rope_theta");
  if (!has(c, "inv_freq") && !made) throw malformed_case("has neither inv_freq nor rope_parameters");
  const auto make = [&] {
    json p = parameters;
    if (!has(p, "rope_theta") && has(c, "rope_theta")) p["rope_theta"] = c.at("rope_theta");
    return ladder_from(p, ladder_use_of(c));
  };
  if (!has(c, "inv_freq")) return make();
  const double factor = optional_number(c, "attention_factor").value_or(1);
  const auto given = posenc::frequency_ladder::from_inv_freq(list(c, "inv_freq"), factor);
  try {
    const posenc::frequency_ladder ladder = make();
    report.require(ladder.size() == given.size(), "the ladder has " + std::to_string(ladder.size()) + " frequencies");
    for (index_t i = 0; i < ladder.size() && i < given.size(); ++i)
      report.compare("ladder", std::abs(ladder.inv_freq(i) - given.inv_freq(i)), ladder_bound * given.inv_freq(i));
    report.compare("ladder", std::abs(ladder.attention_factor() - factor), ladder_bound * factor);
  } catch (const skip_case& e) {
    report.note(std::string(e.what()) + "; rotated with the frequencies that the case holds");
  }
  return given;
}

}  // namespace

void run_rope_apply(const json& c, case_report& report) {
  const peer_layout layout = layout_of(c);
  rope_description rope{ladder_of(c, report)};
  rope.options.pairing = layout.interleaved ? posenc::pairing::interleaved : posenc::pairing::half;
  rope.options.frequency_axis = frequency_axis_of(c, rope.ladder.size());
  const index_t axes = rope.options.frequency_axis.empty()
                           ? 1
                           : std::max<index_t>(3, 1 + *std::max_element(rope.options.frequency_axis.begin(),
                                                                        rope.options.frequency_axis.end()));
  const rotated_pair x(c, axes_from(text(c, "layout")));
  const posenc::token_list tokens = tokens_from(c, x, axes);
  const index_t pairs = rope.ladder.size();
  compare_rotated(
      x, rope, tokens,
      [&](index_t d) {
        if (!layout.result_in_halves || d >= 2 * pairs) return d;
        return d < pairs ? 2 * d : 2 * (d - pairs) + 1;
      },
      report);

  // The cosines and sines of the peer, [batch][token][pairs], often once more for the second members of the pairs.
  if (!has(c, "cos") || axes > 1) return;
  const array cos = numbers(c, "cos"), sin = numbers(c, "sin");
  if (cos.rank() != 3 || cos.extents != sin.extents || cos.extent(2) % pairs != 0)
    throw malformed_case("cos and sin are not [batch][token][pairs]");
  for (index_t b = 0; b < cos.extent(0); ++b)
    for (index_t t = 0; t < cos.extent(1); ++t)
      for (index_t part = 0; part < cos.extent(2); part += pairs) {
        const auto first = (b * cos.extent(1) + t) * cos.extent(2) + part, last = first + pairs;
        compare_cos_sin(rope, tokens.view().position(0, b, t), {cos.values.begin() + first, cos.values.begin() + last},
                        {sin.values.begin() + first, sin.values.begin() + last}, report);
      }
}

void run_vision(const json& c, case_report& report) {
  const std::string implementation = text(c, "implementation");
  const index_t head_dim = whole(c, "head_dim");
  const posenc::ladder_options options{.base = number(c, "rope_theta")};
  const rotated_pair x(c, axes_from(text(c, "layout")));
  const index_t count = x.q.extents[2];
  posenc::token_list tokens;
  tokens.axes = 2;
  std::vector<double> row, column;
  const auto made = [&] {
    if (implementation.find("qwen") != std::string::npos) {
      const array hw = numbers(c, "position_ids_hw", {count, 2});
      for (index_t t = 0; t < count; ++t) {
        row.push_back(hw.at(t, 0));
        column.push_back(hw.at(t, 1));
      }
      return posenc::qwen_vision_rope(head_dim, options);
    }
    if (implementation.find("pixtral") != std::string::npos) {
      const index_t across = whole(c, "image_size") / whole(c, "patch_size");
      for (const index_t id : whole_list(c, "position_ids")) {
        row.push_back(static_cast<double>(id / across));
        column.push_back(static_cast<double>(id % across));
      }
      return posenc::pixtral_vision_rope(head_dim, options);
    }
    if (implementation.find("llama4") != std::string::npos) {
      const index_t across = whole(c, "image_size") / whole(c, "patch_size");
      tokens = posenc::patch_tokens((count - 1) / across, across, {.first = 1, .class_token = true});
      return posenc::llama4_vision_rope(head_dim, options);
    }
    throw skip_case("implementation " + implementation + " is not known");
  }();
  if (!row.empty()) {
    tokens.count = static_cast<index_t>(row.size());
    tokens.positions = row;
    tokens.positions.insert(tokens.positions.end(), column.begin(), column.end());
    tokens.order.assign(row.size(), 0);
  }
  if (tokens.count != count) throw malformed_case("has other positions than tokens");
  const rope_description rope{made.ladder(), made.options()};
  if (has(c, "inv_freq")) {
    const std::vector<double> own = list(c, "inv_freq");
    for (std::size_t i = 0; i < own.size(); ++i)
      report.compare("ladder", std::abs(rope.ladder.inv_freq(static_cast<index_t>(i)) - own[i]), ladder_bound * own[i]);
  }
  compare_rotated(x, rope, tokens, [](index_t d) { return d; }, report);
}

}  // namespace conformance
