// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_EXAMPLES_SUPPORT_MODEL_HPP
#define POSENC_EXAMPLES_SUPPORT_MODEL_HPP

#include <posenc/posenc.hpp>

#include <cstdint>
#include <vector>

#include "random.hpp"

namespace tour {

using posenc::index_t;

/// Grouped-query attention: four query heads share a head of keys and values.
inline constexpr index_t heads = 8, kv_heads = 2, head_dim = 64;
inline constexpr index_t embedding_width = 256;

/// Queries, keys and values of some tokens as one fused projection: each row holds 8 heads of q, 2 of k and 2 of v.
class projections {
 public:
  explicit projections(index_t tokens) : tokens_(tokens), rows_(static_cast<std::size_t>(tokens * width)) {}

  static constexpr index_t width = (heads + 2 * kv_heads) * head_dim;
  index_t size() const noexcept { return tokens_; }
  float* row(index_t token) noexcept { return rows_.data() + token * width; }

  using view = posenc::tensor_view<const float>;
  view q(index_t first, index_t count) const { return part(first, count, 0, heads); }
  view k(index_t first, index_t count) const { return part(first, count, heads, kv_heads); }
  view v(index_t first, index_t count) const { return part(first, count, heads + kv_heads, kv_heads); }
  view q() const { return q(0, tokens_); }
  view k() const { return k(0, tokens_); }
  view v() const { return v(0, tokens_); }

 private:
  view part(index_t first, index_t count, index_t head, index_t number_of_heads) const {
    return posenc::view_fused(rows_.data() + first * width, 1, count, width, head * head_dim, number_of_heads,
                              head_dim);
  }

  index_t tokens_;
  std::vector<float> rows_;
};

/// What comes before attention in a transformer: a table of embeddings and a projection. The numbers are random but fixed.
class model {
 public:
  explicit model(std::uint64_t seed) : seed_(seed), weights_(projections::width, embedding_width) {
    random_stream random(seed, 1);
    // Elements of q, k and v come out with variance 256 * 0.5 * 0.5 / 64 = 1, and so do scores.
    for (float& w : weights_.reshaped()) w = random.bell() / 8;
  }

  /// One column a token.
  Eigen::MatrixXf embed(const std::vector<std::uint32_t>& tokens) const {
    Eigen::MatrixXf result(embedding_width, static_cast<index_t>(tokens.size()));
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      random_stream random(seed_, 1000 + tokens[t]);
      for (float& x : result.col(static_cast<index_t>(t))) x = random.bell();
    }
    return result;
  }

  /// Token by token, so that a token comes out the same wherever it stands.
  projections project(const Eigen::MatrixXf& embeddings) const {
    projections result(embeddings.cols());
    for (index_t t = 0; t < result.size(); ++t)
      Eigen::Map<Eigen::VectorXf>(result.row(t), projections::width).noalias() = weights_ * embeddings.col(t);
    return result;
  }

 private:
  std::uint64_t seed_;
  Eigen::MatrixXf weights_;
};

}  // namespace tour

#endif  // POSENC_EXAMPLES_SUPPORT_MODEL_HPP
