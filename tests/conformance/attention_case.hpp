// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTS_CONFORMANCE_ATTENTION_CASE_HPP
#define POSENC_TESTS_CONFORMANCE_ATTENTION_CASE_HPP

#include <posenc/attention/mask/any_mask.hpp>
#include <posenc/attention/mask/dense_mask.hpp>
#include <posenc/attention/options.hpp>
#include <posenc/core/token_builders.hpp>
#include <posenc/encoding/any_encoding.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "element_types.hpp"
#include "json_values.hpp"

namespace conformance {

/// What a case says of positions: what attention takes, and a table whose rows are added to q, k and v before.
struct case_encoding {
  posenc::any_encoding inside;
  std::optional<array> table = {};  ///< [position][width of all heads]
};

case_encoding encoding_from(const json& c, index_t heads, index_t kv_heads);

/// A stored mask: which keys are visible, [batch or 1][heads or 1][query][key] in any strides.
struct stored_mask {
  std::vector<std::uint8_t> data;
  std::array<index_t, 4> extents{}, strides{};
  index_t offset = 0;

  posenc::dense_mask<std::uint8_t> view() const { return {data.data() + offset, extents, strides}; }
  bool visible(index_t batch, index_t head, index_t query, index_t key) const {
    const index_t b = extents[0] == 1 ? 0 : batch, h = extents[1] == 1 ? 0 : head;
    const index_t at = offset + b * strides[0] + h * strides[1] + query * strides[2] + key * strides[3];
    return data[static_cast<std::size_t>(at)] != 0;
  }
};

/// One case of attention, read and checked.
struct attention_case {
  explicit attention_case(const json& c);

  index_t batch, heads, kv_heads, q_len, kv_len, head_dim, v_head_dim;
  std::optional<double> scale;
  double softcap = 0;
  std::vector<double> sinks;
  array q, k, v;  ///< [batch][head][token][dim]
  posenc::token_list q_tokens, k_tokens;
  case_encoding encoding;
  stored_mask visible;                   ///< everything taken together: documents, sequences and the rule
  stored_mask dense;                     ///< what `dense` in the rule means
  std::optional<posenc::any_mask> rule;  ///< made anew from the rule; views `dense`
  bool rule_is_dense = false;            ///< whether `dense` occurs in the rule

  attention_case(const attention_case&) = delete;
  attention_case& operator=(const attention_case&) = delete;

  bool ragged() const noexcept { return !q_tokens.cu_seqlens.empty(); }
  /// Whether a query of a head sees any key.
  bool sees_any(index_t b, index_t h, index_t i) const;
  /// Largest |v| of a key that some query sees, rows of the table added; 1 if none is seen.
  double largest_value() const;

  posenc::attention_options options() const {
    posenc::attention_options result;
    result.scale = scale;
    result.softcap = softcap;
    result.sinks = sinks;
    return result;
  }
};

}  // namespace conformance

#endif  // POSENC_TESTS_CONFORMANCE_ATTENTION_CASE_HPP
