// SPDX-License-Identifier: Apache-2.0
#include "attention_case.hpp"

#include <posenc/attention/mask/mask_algebra.hpp>
#include <posenc/attention/mask/masks.hpp>
#include <posenc/encoding/alibi.hpp>
#include <posenc/encoding/combine.hpp>
#include <posenc/encoding/nope.hpp>
#include <posenc/encoding/per_head.hpp>
#include <posenc/encoding/query_temperature.hpp>
#include <posenc/encoding/t5_bucket.hpp>

#include <cmath>
#include <functional>
#include <utility>

#include "rope_description.hpp"

namespace conformance {

namespace {

using namespace posenc;

// ---- encodings ----

any_encoding inside_from(const json& e, index_t heads, index_t kv_heads);

any_encoding alibi_from(const json& e) {
  alibi_options options;
  options.is_signed = bool_or(e, "signed", false);
  options.axis = optional_whole(e, "axis").value_or(0);
  const std::vector<double> slopes = list(e, "slopes");
  return alibi(std::span<const double>(slopes), options);
}

any_encoding t5_from(const json& e) {
  t5_bucket_options options;
  options.num_buckets = whole(e, "num_buckets");
  options.max_distance = whole(e, "max_distance");
  options.bidirectional = bool_or(e, "bidirectional", true);
  options.axis = optional_whole(e, "axis").value_or(0);
  const array table = numbers(e, "table");
  if (table.rank() != 2 || table.extent(0) != options.num_buckets)
    throw malformed_case("table of t5 is not [num_buckets][heads]");
  return t5_bucket(table.values.data(), table.extent(1), options);
}

any_encoding rope_encoding_from(const json& e) {
  return rope_from(e).visit([](const auto& encoding) { return any_encoding(encoding); });
}

any_encoding per_kv_head_from(const json& e, index_t heads, index_t kv_heads) {
  const json& encodings = field(e, "encodings");
  if (!encodings.is_array() || static_cast<index_t>(encodings.size()) != kv_heads)
    throw malformed_case("per_kv_head does not have one encoding for each kv head");
  bool rotations = true;
  for (const json& one : encodings) {
    const std::string type = text(one, "type");
    rotations = rotations && (type == "rope" || type == "none");
  }
  const auto of = [&](index_t head) -> const json& { return encodings[static_cast<std::size_t>(head)]; };
  if (rotations)
    return per_head(kv_heads, [&](index_t h) {
      return of(h).at("type") == "rope" ? rope_encoding_from(of(h)) : any_encoding(nope{});
    });
  if (heads != kv_heads) throw skip_case("biases by kv head under grouped queries are not expressible");
  return per_head(kv_heads, [&](index_t h) { return inside_from(of(h), heads, kv_heads); });
}

any_encoding combine_from(const json& e, index_t heads, index_t kv_heads) {
  any_encoding result = nope{};
  bool any = false;
  for (const json& part : field(e, "parts")) {
    any_encoding one = inside_from(part, heads, kv_heads);
    result = any ? any_encoding(combine(result, one)) : one;
    any = true;
  }
  if (!any) throw malformed_case("combine has no parts");
  return result;
}

any_encoding inside_from(const json& e, index_t heads, index_t kv_heads) {
  const std::string type = text(e, "type");
  if (type == "none") return nope{};
  if (type == "rope") return rope_encoding_from(e);
  if (type == "alibi") return alibi_from(e);
  if (type == "t5") return t5_from(e);
  if (type == "combine") return combine_from(e, heads, kv_heads);
  if (type == "per_kv_head") return per_kv_head_from(e, heads, kv_heads);
  if (type == "shaw") throw skip_case("Shaw's relative positions are not there yet");
  throw skip_case("encoding type " + type + " is not known");
}

// ---- masks ----

/// Calls add(one) for each of a list of rules.
any_mask joined(const json& rules, const std::function<any_mask(const json&)>& one, bool all) {
  if (!rules.is_array() || rules.empty()) throw malformed_case("mask_rule has an empty list");
  any_mask result = one(rules[0]);
  for (std::size_t i = 1; i < rules.size(); ++i) {
    any_mask next = one(rules[i]);
    result = all ? any_mask(result & next) : any_mask(result | next);
  }
  return result;
}

any_mask mask_from(const json& rule, const stored_mask& dense, bool& is_dense) {
  if (!rule.is_object() || rule.size() != 1) throw malformed_case("mask_rule is not an object with one key");
  const std::string kind = rule.begin().key();
  const json& value = rule.begin().value();
  const auto one = [&](const json& inner) { return mask_from(inner, dense, is_dense); };
  if (kind == "all" || kind == "documents") return bidirectional{};
  if (kind == "causal") return causal{};
  if (kind == "window") return sliding_window{.left = number(value, "left"), .right = number(value, "right")};
  if (kind == "prefix") return prefix{.length = number(value, "n")};
  if (kind == "chunk") return chunk{.size = number(value, "c")};
  if (kind == "and") return joined(value, one, true);
  if (kind == "or") return joined(value, one, false);
  if (kind == "not") return !one(value);
  if (kind == "dense") {
    is_dense = true;
    return dense.view();
  }
  throw skip_case("mask rule " + kind + " is not known");
}

stored_mask contiguous(const array& bits, const std::array<index_t, 4>& extents) {
  stored_mask result;
  for (const double x : bits.values) result.data.push_back(x != 0 ? 1 : 0);
  result.extents = extents;
  result.strides = {extents[1] * extents[2] * extents[3], extents[2] * extents[3], extents[3], 1};
  return result;
}

stored_mask strided(const json& c) {
  stored_mask result;
  const std::vector<index_t> extents = whole_list(c, "extents"), strides = whole_list(c, "strides");
  if (extents.size() != 4 || strides.size() != 4)
    throw malformed_case("dense_mask does not have four extents and strides");
  index_t first = result.offset = whole(c, "offset"), last = first;
  bool empty = false;
  for (std::size_t i = 0; i < 4; ++i) {
    result.extents[i] = extents[i];
    result.strides[i] = strides[i];
    empty = empty || extents[i] == 0;
    (strides[i] < 0 ? first : last) += (extents[i] - 1) * strides[i];
  }
  for (const double x : list(c, "data")) result.data.push_back(x != 0 ? 1 : 0);
  if (!empty && (first < 0 || last >= static_cast<index_t>(result.data.size())))
    throw malformed_case("dense_mask reaches beyond its data");
  return result;
}

// ---- tokens ----

token_list tokens_from(const json& c, const std::string& side, index_t batch, index_t count) {
  token_list tokens;
  tokens.batch = batch;
  tokens.count = count;
  const std::string positions_name = side + "_positions", order_name = side + "_order",
                    document_name = side + "_documents";
  const std::string bounds_name = "cu_seqlens_" + side;
  const array positions = numbers(c, positions_name.c_str());
  tokens.axes = positions.rank() == 3 ? positions.extent(0) : 1;
  tokens.positions = positions.values;
  const auto expected = static_cast<std::size_t>(tokens.axes * batch * count);
  if (tokens.positions.size() != expected) throw malformed_case(positions_name + " does not have one for each token");
  if (has(c, order_name.c_str())) {
    tokens.order = numbers(c, order_name.c_str(), {batch, count}).values;
  } else if (tokens.axes > 1) {
    throw malformed_case("has several position axes and no " + order_name);
  }
  if (has(c, document_name.c_str()))
    for (const double x : numbers(c, document_name.c_str(), {batch, count}).values)
      tokens.documents.push_back(static_cast<std::int64_t>(whole(json(x))));
  if (has(c, bounds_name.c_str()))
    for (const index_t bound : whole_list(c, bounds_name.c_str())) tokens.cu_seqlens.push_back(bound);
  return tokens;
}

}  // namespace

case_encoding encoding_from(const json& c, index_t heads, index_t kv_heads) {
  const json& e = field(c, "encoding");
  const std::string type = text(e, "type");
  case_encoding result{nope{}};
  if (type == "sinusoidal_absolute" || type == "learned_absolute") {
    result.table = numbers(e, "table");
    if (result.table->rank() != 2) throw malformed_case("table is not [position][width]");
  } else {
    result.inside = inside_from(e, heads, kv_heads);
  }
  if (has(c, "query_temperature")) {
    const json& t = c.at("query_temperature");
    const query_temperature temperature{
        .coefficient = number(t, "coefficient"), .length = number(t, "length"), .shift = number(t, "shift")};
    result.inside = combine(temperature, result.inside);
  }
  return result;
}

attention_case::attention_case(const json& c)
    : batch(whole(c, "batch")),
      heads(whole(c, "heads")),
      kv_heads(whole(c, "kv_heads")),
      q_len(whole(c, "q_len")),
      kv_len(whole(c, "kv_len")),
      head_dim(whole(c, "head_dim")),
      v_head_dim(whole(c, "v_head_dim")),
      scale(optional_number(c, "scale")),
      softcap(optional_number(c, "softcap").value_or(0)),
      q(numbers(c, "q", {batch, heads, q_len, head_dim})),
      k(numbers(c, "k", {batch, kv_heads, kv_len, head_dim})),
      v(numbers(c, "v", {batch, kv_heads, kv_len, v_head_dim})),
      q_tokens(tokens_from(c, "q", batch, q_len)),
      k_tokens(tokens_from(c, "k", batch, kv_len)),
      encoding(encoding_from(c, heads, kv_heads)) {
  if (has(c, "d_output")) throw skip_case("gradients are not there yet");
  if (has(c, "sinks")) sinks = list(c, "sinks");
  if (has(c, "mask_per_head")) {
    visible = contiguous(numbers(c, "mask_per_head", {batch, heads, q_len, kv_len}), {batch, heads, q_len, kv_len});
  } else {
    visible = contiguous(numbers(c, "mask", {batch, q_len, kv_len}), {batch, 1, q_len, kv_len});
  }
  dense = has(c, "dense_mask") ? strided(c.at("dense_mask")) : visible;
  rule = mask_from(field(c, "mask_rule"), dense, rule_is_dense);
  if (encoding.table && (encoding.table->extent(1) != heads * head_dim || heads != kv_heads || head_dim != v_head_dim))
    throw malformed_case("table is not as wide as all heads together");
}

bool attention_case::sees_any(index_t b, index_t h, index_t i) const {
  for (index_t j = 0; j < kv_len; ++j)
    if (visible.visible(b, h, i, j)) return true;
  return false;
}

double attention_case::largest_value() const {
  double largest = 0;
  bool any = false;
  for (index_t b = 0; b < batch; ++b)
    for (index_t j = 0; j < kv_len; ++j) {
      bool seen = false;
      for (index_t h = 0; h < heads && !seen; ++h)
        for (index_t i = 0; i < q_len && !seen; ++i) seen = visible.visible(b, h, i, j);
      if (!seen) continue;
      any = true;
      const auto row = static_cast<index_t>(encoding.table ? k_tokens.view().position(0, b, j) : 0);
      for (index_t h = 0; h < kv_heads; ++h)
        for (index_t d = 0; d < v_head_dim; ++d) {
          const double added = encoding.table ? encoding.table->at(row, h * head_dim + d) : 0;
          largest = std::fmax(largest, std::abs(v.at(b, h, j, d) + added));
        }
    }
  return any ? largest : 1;
}

}  // namespace conformance
