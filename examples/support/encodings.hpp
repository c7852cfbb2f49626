// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_EXAMPLES_SUPPORT_ENCODINGS_HPP
#define POSENC_EXAMPLES_SUPPORT_ENCODINGS_HPP

#include <posenc/posenc.hpp>
#include <posenc/testing/properties.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "model.hpp"
#include "random.hpp"

namespace tour {

/// An encoding as the tour needs it.
struct entry {
  std::string name;
  std::string place;                                                               ///< where position enters
  std::function<void(Eigen::MatrixXf&, const posenc::token_view&)> add_positions;  ///< to embeddings; most add nothing
  posenc::any_encoding encoding;                                                   ///< for attention
  std::function<double(index_t last_position)> relative_position_error;
  bool is_relative = true;    ///< scores depend on distances alone
  bool has_positions = true;  ///< false for NoPE
  index_t longest_text = 0;   ///< 0: no limit
};

template <class Encoding>
entry make_entry(std::string name, std::string place, const Encoding& encoding) {
  constexpr bool on_inputs = posenc::acts_on<Encoding, posenc::on_inputs>;
  entry result{.name = std::move(name),
               .place = std::move(place),
               .add_positions = {},
               .encoding = posenc::nope{},
               .relative_position_error = {},
               .is_relative = !on_inputs};
  result.add_positions = [encoding](Eigen::MatrixXf& x, const posenc::token_view& tokens) {
    if constexpr (on_inputs) posenc::add_positions(x, tokens, encoding);
  };
  if constexpr (!on_inputs) result.encoding = encoding;
  const auto checked = [&] {
    // One instantiation serves all encodings of attention.
    if constexpr (on_inputs)
      return encoding;
    else
      return posenc::any_encoding(encoding);
  }();
  result.relative_position_error = [checked](index_t last_position) {
    posenc::testing::property_options options{.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim};
    if constexpr (on_inputs) options.head_dim = embedding_width / heads;
    options.max_position = last_position;
    return posenc::testing::relative_position_error<float>(checked, options);
  };
  return result;
}

/// Tables that training would have filled.
struct learned_tables {
  using table = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  table positions;   ///< [rows, embedding_width]
  table t5_buckets;  ///< [32, heads]

  learned_tables(index_t rows, std::uint64_t seed) : positions(rows, embedding_width), t5_buckets(32, heads) {
    random_stream random(seed, 2);
    for (float& x : positions.reshaped()) x = random.bell() / 2;
    for (float& x : t5_buckets.reshaped()) x = 2 * random.bell();
  }
};

/// Every encoding of the library, and some that are made of several.
inline std::vector<entry> all_encodings(const learned_tables& tables) {
  using namespace posenc;
  const frequency_ladder ladder(head_dim, {.base = 10000});
  const frequency_ladder half_a_head(head_dim / 2, {.base = 10000});
  const frequency_ladder stretched = ladder | yarn{.factor = 4, .original_context = 2048};
  const t5_bucket buckets(tables.t5_buckets, {.bidirectional = true});

  std::vector<entry> result = {
      make_entry("sinusoidal", "inputs", sinusoidal(embedding_width)),
      make_entry("learned", "inputs", learned_positions(tables.positions)),
      make_entry("rope, half pairs", "q, k", rope(ladder)),
      make_entry("rope, interleaved", "q, k", rope(ladder, {.pairing = pairing::interleaved})),
      make_entry("rope, half of the head", "q, k", rope(half_a_head)),
      make_entry("rope | yarn 4x", "q, k", rope(stretched)),
      make_entry("alibi", "scores", alibi(heads)),
      make_entry("t5 buckets", "scores", buckets),
      make_entry("combine(rope, alibi)", "q, k, scores", combine(rope(ladder), alibi(heads))),
      make_entry("nope", "nowhere", nope{}),
  };
  result[1].longest_text = tables.positions.rows();
  result.back().has_positions = false;
  return result;
}

}  // namespace tour

#endif  // POSENC_EXAMPLES_SUPPORT_ENCODINGS_HPP
