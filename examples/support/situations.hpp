// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_EXAMPLES_SUPPORT_SITUATIONS_HPP
#define POSENC_EXAMPLES_SUPPORT_SITUATIONS_HPP

#include <posenc/core/eigen_executor.hpp>
#include <posenc/posenc.hpp>
#include <posenc/testing/reference.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "encodings.hpp"
#include "model.hpp"
#include "timing.hpp"

/// The three situations in which attention runs, and what they are compared with.
namespace tour {

/// The outputs of all heads, one row of `heads * head_dim` floats a token.
class outputs {
 public:
  explicit outputs(index_t tokens) : tokens_(tokens), values_(static_cast<std::size_t>(tokens * width)) {}

  static constexpr index_t width = heads * head_dim;
  index_t size() const noexcept { return tokens_; }
  const float* row(index_t token) const noexcept { return values_.data() + token * width; }
  posenc::tensor_view<float> view(index_t first, index_t count) {
    return posenc::view_thd(values_.data() + first * width, count, heads, head_dim);
  }
  posenc::tensor_view<float> view() { return view(0, tokens_); }

 private:
  index_t tokens_;
  std::vector<float> values_;
};

/// What all situations share.
struct stage {
  const tour::model& model;
  posenc::eigen_executor& executor;
  posenc::workspace& memory;

  /// Embeddings at their positions, projected.
  projections place(const entry& e, const Eigen::MatrixXf& embeddings, const posenc::token_view& tokens) const {
    Eigen::MatrixXf x = embeddings;
    e.add_positions(x, tokens);
    return model.project(x);
  }

  template <class Mask>
  void attend(const entry& e, const projections& x, const posenc::token_view& tokens, const Mask& mask,
              outputs& out) const {
    posenc::attention(x.q(), x.k(), x.v(), out.view(), tokens, e.encoding, mask, {.memory = &memory}, executor);
  }
};

/// Situation 1: the whole text at once.
inline outputs whole_text(const stage& s, const entry& e, const projections& x) {
  outputs out(x.size());
  s.attend(e, x, posenc::token_range(x.size()), posenc::causal{}, out);
  return out;
}

/// Situation 2: several documents packed into one row. Positions start again in each; no document sees another.
inline outputs packed_documents(const stage& s, const entry& e, const projections& x,
                                const posenc::token_list& packed) {
  outputs out(x.size());
  s.attend(e, x, packed, posenc::causal{}, out);
  return out;
}

/// What situation 2 must equal: each document in a call of its own.
inline outputs separate_documents(const stage& s, const entry& e, const Eigen::MatrixXf& embeddings,
                                  const std::vector<std::int64_t>& lengths) {
  outputs out(embeddings.cols());
  index_t first = 0;
  for (const index_t length : lengths) {
    const posenc::token_view tokens = posenc::token_range(length);
    const projections x = s.place(e, embeddings.middleCols(first, length), tokens);
    posenc::attention(x.q(), x.k(), x.v(), out.view(first, length), tokens, e.encoding, posenc::causal{},
                      {.memory = &s.memory}, s.executor);
    first += length;
  }
  return out;
}

struct decoding {
  outputs out;
  double attention_seconds = 0;  ///< of all tokens after the prompt: append and attention
};

/// Situation 3: the first `prompt` tokens go into a KV cache, all others follow one by one. Every token gets its position
/// when it comes.
inline decoding decode(const stage& s, const entry& e, const Eigen::MatrixXf& embeddings, index_t prompt) {
  decoding result{outputs(embeddings.cols())};
  const auto threads = static_cast<int>(s.executor.concurrency());
  posenc::kv_cache<float> cache({.kv_heads = kv_heads, .head_dim = head_dim});
  const auto step = [&](index_t count) {
    const index_t first = cache.length();
    const posenc::token_view tokens = posenc::token_range(count, static_cast<double>(first));
    const projections x = s.place(e, embeddings.middleCols(first, count), tokens);
    const double begin = work_seconds(threads);
    cache.append(x.k(), x.v(), tokens, e.encoding);
    posenc::attention(x.q(), cache, result.out.view(first, count), tokens, e.encoding, posenc::causal{},
                      {.memory = &s.memory}, s.executor);
    return work_seconds(threads) - begin;
  };
  step(prompt);
  while (cache.length() < embeddings.cols()) result.attention_seconds += step(1);
  return result;
}

/// The outputs of every `stride`-th query.
struct reference_rows {
  index_t stride = 1;
  std::vector<double> values;
  index_t count() const noexcept { return static_cast<index_t>(values.size()) / outputs::width; }
};

/// Causal attention in double precision, one score at a time, for one query in `stride`.
inline reference_rows reference(const entry& e, const projections& x, const posenc::token_list& tokens,
                                index_t stride) {
  const index_t count = (x.size() + stride - 1) / stride;
  posenc::token_list sampled;
  sampled.count = count;
  for (index_t t = 0; t < x.size(); t += stride) {
    sampled.positions.push_back(tokens.positions[static_cast<std::size_t>(t)]);
    if (!tokens.documents.empty()) sampled.documents.push_back(tokens.documents[static_cast<std::size_t>(t)]);
  }
  const auto all = x.q();
  const posenc::tensor_view<const float> q(all.data_handle(), {1, heads, count, head_dim},
                                           {all.stride(0), all.stride(1), stride * all.stride(2), 1});
  reference_rows result{stride, std::vector<double>(static_cast<std::size_t>(count * outputs::width))};
  posenc::testing::attention(q, x.k(), x.v(), posenc::view_thd(result.values.data(), count, heads, head_dim),
                             {sampled.view(), tokens.view()}, e.encoding, posenc::causal{});
  return result;
}

/// The largest |v|: deviations are told in this unit.
inline double largest_value(const projections& x) {
  double largest = 0;
  const auto v = x.v();
  for (index_t h = 0; h < kv_heads; ++h)
    for (index_t t = 0; t < x.size(); ++t)
      for (index_t d = 0; d < head_dim; ++d) largest = (std::max)(largest, std::fabs(double{v(0, h, t, d)}));
  return largest;
}

/// Largest deviation of one row, with NaN counting as endless.
template <class A, class B>
double row_difference(const A* a, const B* b) {
  double largest = 0;
  for (index_t i = 0; i < outputs::width; ++i) {
    const double d = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(d <= largest)) largest = d < 1e300 ? d : 1e300;
  }
  return largest;
}

/// Largest deviation of the tokens from `first` on.
inline double difference(const outputs& a, const outputs& b, index_t first = 0) {
  double largest = 0;
  for (index_t t = first; t < a.size(); ++t) largest = (std::max)(largest, row_difference(a.row(t), b.row(t)));
  return largest;
}

inline double difference(const outputs& a, const reference_rows& b, index_t first = 0) {
  double largest = 0;
  for (index_t r = 0; r < b.count(); ++r)
    if (r * b.stride >= first)
      largest = (std::max)(largest, row_difference(a.row(r * b.stride), b.values.data() + r * outputs::width));
  return largest;
}

}  // namespace tour

#endif  // POSENC_EXAMPLES_SUPPORT_SITUATIONS_HPP
