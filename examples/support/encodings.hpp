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
  std::function<void(Eigen::MatrixXf&, const posenc::token_view&)> add_positions;  ///< to embeddings
  posenc::any_encoding encoding;                                                   ///< for attention
  std::function<double(index_t last_position)> relative_position_error;
  bool is_relative = true;    ///< scores depend on distances alone
  bool has_positions = true;  ///< false for NoPE
  index_t longest_text = 0;   ///< 0: no limit
};

template <class Encoding>
std::function<double(index_t)> relative_error_of(const Encoding& encoding, index_t width_of_head) {
  return [encoding, width_of_head](index_t last_position) {
    posenc::testing::property_options options{.heads = heads, .kv_heads = kv_heads, .head_dim = width_of_head};
    options.max_position = last_position;
    return posenc::testing::relative_position_error<float>(encoding, options);
  };
}

/// An encoding that acts inside attention.
inline entry in_attention(std::string name, std::string place, const posenc::any_encoding& encoding) {
  return {.name = std::move(name),
          .place = std::move(place),
          .add_positions = [](Eigen::MatrixXf&, const posenc::token_view&) {},
          .encoding = encoding,
          .relative_position_error = relative_error_of(encoding, head_dim)};
}

/// An encoding that is added to the inputs; attention then knows nothing of positions.
template <class Encoding>
entry on_inputs(std::string name, const Encoding& encoding) {
  return {.name = std::move(name),
          .place = "inputs",
          .add_positions = [encoding](Eigen::MatrixXf& x,
                                      const posenc::token_view& tokens) { posenc::add_positions(x, tokens, encoding); },
          .encoding = posenc::nope{},
          .relative_position_error = relative_error_of(encoding, embedding_width / heads),
          .is_relative = false};
}

/// Tables that training would have filled.
struct learned_tables {
  using table = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  table positions;   ///< [rows, embedding_width]
  table t5_buckets;  ///< [32, heads]

  learned_tables(index_t rows, std::uint64_t seed) : positions(rows, embedding_width), t5_buckets(32, heads) {
    random_stream random(seed, 2);
    for (float& x : positions.reshaped()) x = random.bell();
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
      on_inputs("sinusoidal", sinusoidal(embedding_width)),
      on_inputs("learned", learned_positions(tables.positions)),
      in_attention("rope, half pairs", "q, k", rope(ladder)),
      in_attention("rope, interleaved", "q, k", rope(ladder, {.pairing = pairing::interleaved})),
      in_attention("rope, half of the head", "q, k", rope(half_a_head)),
      in_attention("rope | yarn 4x", "q, k", rope(stretched)),
      in_attention("alibi", "scores", alibi(heads)),
      in_attention("t5 buckets", "scores", buckets),
      in_attention("combine(rope, alibi)", "q, k, scores", combine(rope(ladder), alibi(heads))),
      in_attention("nope", "nowhere", nope{}),
  };
  result[1].longest_text = tables.positions.rows();
  result.back().has_positions = false;
  return result;
}

}  // namespace tour

#endif  // POSENC_EXAMPLES_SUPPORT_ENCODINGS_HPP
