// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTING_REFERENCE_SCORES_HPP
#define POSENC_TESTING_REFERENCE_SCORES_HPP

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "../attention/mask/concepts.hpp"
#include "../core/dtype.hpp"
#include "../core/tensor_view.hpp"
#include "../core/tokens.hpp"
#include "../encoding/concepts.hpp"
#include "../encoding/score_keys.hpp"

/// The score of one query and one key, straight from its definition. Nothing here is shared with the kernel: no blocks,
/// no tiles, one pair at a time. Only hooks of encodings and masks are called, those of encodings in double.
namespace posenc::inline POSENC_ABI::testing::detail {

template <class T>
double as_double(const T& x) {
  return static_cast<double>(static_cast<compute_type<T>>(x));
}

/// What is known of the tokens of one side, read once.
class token_table {
 public:
  explicit token_table(const token_view& tokens)
      : tokens_(tokens), sequence_(static_cast<std::size_t>(tokens.count())) {
    for (index_t s = 0; s < tokens.sequences(); ++s)
      for (index_t t = tokens.sequence_begin(s); t < tokens.sequence_begin(s + 1); ++t)
        sequence_[static_cast<std::size_t>(t)] = s;
  }

  index_t count() const noexcept { return tokens_.count(); }
  index_t sequence(index_t t) const noexcept { return sequence_[static_cast<std::size_t>(t)]; }

  using position_array = std::array<double, max_position_axes>;
  position_array position(index_t batch, index_t t) const noexcept {
    position_array result{};
    for (index_t axis = 0; axis < tokens_.axes(); ++axis)
      result[static_cast<std::size_t>(axis)] = tokens_.position(axis, batch, t);
    return result;
  }
  position_span span(const position_array& position) const noexcept {
    return {position.data(), static_cast<std::size_t>(tokens_.axes())};
  }

  /// What a mask sees of a token; `position` must outlive it.
  token as_token(index_t batch, index_t head, index_t t, const position_array& position) const noexcept {
    token result;
    result.order = tokens_.order(batch, t);
    result.document = tokens_.document(batch, t);
    result.index = t;
    result.batch = batch;
    result.head = head;
    result.position = span(position);
    return result;
  }

 private:
  token_view tokens_;
  std::vector<index_t> sequence_;
};

/// Whether a query of a head sees a key: same sequence, same document, no padding, and the mask says so.
template <attention_mask M>
bool is_visible(const M& mask, const token_table& queries, const token_table& keys, index_t batch, index_t head,
                index_t q, index_t k) {
  if (queries.sequence(q) != keys.sequence(k)) return false;
  const auto q_position = queries.position(batch, q), k_position = keys.position(batch, k);
  const token query = queries.as_token(batch, head, q, q_position);
  const token key = keys.as_token(batch, head, k, k_position);
  return query.document == key.document && query.document != -1 && mask.visible(query, key);
}

/// The bias of one query and one key, in double. An encoding answers for a vector of keys; all lanes are this one.
template <encoding E>
double bias_of(const E& encoding, const token_table& queries, const token_table& keys, index_t batch, index_t head,
               index_t q, index_t k) {
  if constexpr (acts_on<E, on_scores>) {
    constexpr index_t lanes = simd::vec<double>::lanes;
    const auto q_position = queries.position(batch, q), k_position = keys.position(batch, k);
    double positions[max_position_axes * lanes];
    for (index_t axis = 0; axis < max_position_axes; ++axis)
      for (index_t lane = 0; lane < lanes; ++lane)
        positions[axis * lanes + lane] = k_position[static_cast<std::size_t>(axis)];
    const score_keys<double, false> all_equal(positions, lanes, q_position.data());
    const simd::vec<double> bias = encoding.bias(all_equal, head);
    double values[lanes];
    simd::store(values, bias);
    return values[0];
  } else {
    return 0;
  }
}

/// Rows of a tensor, rotated in double when they are first asked for. Rows that nobody sees are never read.
template <class T, encoding E>
class rotated_rows {
 public:
  rotated_rows(const tensor_view<const T>& x, const token_table& tokens, const E& encoding, rotation_shape shape,
               token_role role)
      : x_(x),
        tokens_(tokens),
        encoding_(encoding),
        shape_(shape),
        role_(role),
        rows_(static_cast<std::size_t>(x.batch() * x.heads() * x.tokens())) {}

  const std::vector<double>& row(index_t batch, index_t head, index_t kv_head, index_t t) {
    std::vector<double>& row = rows_[static_cast<std::size_t>((batch * x_.heads() + head) * x_.tokens() + t)];
    if (!row.empty()) return row;
    row.resize(static_cast<std::size_t>(x_.dim()));
    for (index_t d = 0; d < x_.dim(); ++d) row[static_cast<std::size_t>(d)] = as_double(x_(batch, head, t, d));
    if constexpr (acts_on<E, on_queries_keys>) {
      const auto position = tokens_.position(batch, t);
      std::vector<double> rotation(static_cast<std::size_t>(encoding_.rotation_size(shape_)));
      encoding_.prepare_rotation(shape_, tokens_.span(position), {role_, rotation_op::rotate}, rotation.data());
      encoding_.apply_rotation(shape_, rotation.data(), kv_head, row.data());
    }
    return row;
  }

 private:
  tensor_view<const T> x_;
  const token_table& tokens_;
  const E& encoding_;
  rotation_shape shape_;
  token_role role_;
  std::vector<std::vector<double>> rows_;
};

/// c tanh(x / c), and x itself for c = 0.
inline double softcapped(double x, double c) { return c > 0 ? c * std::tanh(x / c) : x; }

/// The scores of a call: rotate, q.k, scale, softcap, add biases.
template <class Q, class K, encoding E>
class reference_scores {
 public:
  reference_scores(const tensor_view<const Q>& q, const tensor_view<const K>& k, const token_pair& tokens,
                   const E& encoding, double scale, double softcap)
      : q_tokens_(tokens.q),
        k_tokens_(tokens.k),
        encoding_(encoding),
        q_rows_(q, q_tokens_, encoding, {q.dim(), k.heads()}, token_role::query),
        k_rows_(k, k_tokens_, encoding, {k.dim(), k.heads()}, token_role::key),
        group_(q.heads() / k.heads()),
        scale_(scale),
        softcap_(softcap) {}
  reference_scores(const reference_scores&) = delete;
  reference_scores& operator=(const reference_scores&) = delete;

  const token_table& q_tokens() const noexcept { return q_tokens_; }
  const token_table& k_tokens() const noexcept { return k_tokens_; }
  index_t kv_head(index_t head) const noexcept { return head / group_; }

  template <attention_mask M>
  bool visible(const M& mask, index_t batch, index_t head, index_t q, index_t k) const {
    return is_visible(mask, q_tokens_, k_tokens_, batch, head, q, k);
  }

  double score(index_t batch, index_t head, index_t q, index_t k) {
    const index_t kv = kv_head(head);
    const std::vector<double>& query = q_rows_.row(batch, head, kv, q);
    const std::vector<double>& key = k_rows_.row(batch, kv, kv, k);
    double dot = 0;
    for (std::size_t d = 0; d < query.size(); ++d) dot += query[d] * key[d];
    return softcapped(dot * scale_, softcap_) + bias_of(encoding_, q_tokens_, k_tokens_, batch, head, q, k);
  }

 private:
  token_table q_tokens_, k_tokens_;
  const E& encoding_;
  rotated_rows<Q, E> q_rows_;
  rotated_rows<K, E> k_rows_;
  index_t group_;
  double scale_, softcap_;
};

}  // namespace posenc::inline POSENC_ABI::testing::detail

#endif  // POSENC_TESTING_REFERENCE_SCORES_HPP
