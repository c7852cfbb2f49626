// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTING_REFERENCE_HPP
#define POSENC_TESTING_REFERENCE_HPP

#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#include "../attention/checks.hpp"
#include "../attention/options.hpp"
#include "../core/as_view.hpp"
#include "../core/eigen.hpp"
#include "../core/minus_infinity.hpp"
#include "../encoding/diagnostics.hpp"
#include "head_matrices.hpp"
#include "reference_scores.hpp"

/// Attention in double precision by its definition, and what goes on inside: weights, scores, biases. It is slow, short
/// and independent of the kernel, so that either can be tested against it: the library's own, or another one, on a CPU
/// or a GPU. Needs no SIMD flags. Arguments, order of operations and errors are those of posenc::attention; elements
/// may be of any type in any mix, and everything is computed in double.
///
/// With `using namespace posenc`, GoogleTest's names must be written `::testing::`.
namespace posenc::inline POSENC_ABI::testing {

namespace detail {

template <class... X>
consteval bool check_all_viewable() {
  return (posenc::detail::check_viewable<X>() && ...);
}

template <class T>
tensor_view<const T> read_only(const tensor_view<T>& x) {
  return x;
}
template <class T>
tensor_view<const T> read_only(const tensor_view<const T>& x) {
  return x;
}

/// What the functions below check: that q, k and their tokens go together. `rest` is checked with it.
template <class Q, class K, class E, class M>
maybe_error check_sides(const tensor_view<Q>& q, const tensor_view<K>& k, const token_pair& tokens, const E& encoding,
                        const M& mask, const attention_options& options) {
  if (maybe_error e = posenc::detail::check_tokens(tokens.q, q.batch(), q.tokens(), "tokens.q")) return e;
  if (maybe_error e = posenc::detail::check_tokens(tokens.k, k.batch(), k.tokens(), "tokens.k")) return e;
  if (maybe_error e = posenc::detail::check_token_pair(tokens)) return e;
  if (maybe_error e = posenc::detail::check_encoding(encoding, {q.heads(), k.heads(), q.dim(), &tokens.q, &tokens.k}))
    return e;
  if (maybe_error e = posenc::detail::check_mask(mask, {q.batch(), q.heads(), q.tokens(), k.tokens()})) return e;
  return posenc::detail::check_options(options, q.batch(), q.heads(), q.tokens());
}

/// The same without values: q and k must go together.
template <class Q, class K>
maybe_error check_queries_keys(const tensor_view<Q>& q, const tensor_view<K>& k) {
  if (maybe_error e = posenc::detail::check_layout(q, "q", false)) return e;
  if (maybe_error e = posenc::detail::check_layout(k, "k", false)) return e;
  if (q.dim() < 1) return make_error(errc::invalid_shape, "q", "has head_dim %td; allowed: 1 and more", q.dim());
  if (q.heads() < 1) return make_error(errc::invalid_shape, "q", "has %td heads; allowed: 1 and more", q.heads());
  if (k.heads() < 1) return make_error(errc::invalid_shape, "k", "has %td heads; allowed: 1 and more", k.heads());
  if (q.heads() % k.heads() != 0)
    return make_error(errc::invalid_shape, "q", "has %td heads; allowed: a multiple of the %td heads of k", q.heads(),
                      k.heads());
  if (maybe_error e = posenc::detail::check_extent(k, "k", 0, q.batch(), "q")) return e;
  return posenc::detail::check_extent(k, "k", 3, q.dim(), "q");
}

/// The keys that one query sees, with their weights, and the natural logarithm of the denominator.
struct softmax_row {
  std::vector<index_t> keys;
  std::vector<double> weights;
  double lse = 0;
};

/// Turns scores into weights. A sink takes part in the denominator. Nothing seen: no weights, and lse is the sink or
/// -infinity; a padding query has -infinity in any case.
inline void softmax(softmax_row& row, bool padding, const head_numbers& sinks, index_t head) {
  const bool has_sink = sinks.size() > 0 && !padding;
  if (row.keys.empty()) {
    if (has_sink) {
      row.lse = sinks[head];
    } else {
      posenc::detail::set_minus_infinity(row.lse);
    }
    return;
  }
  double top = row.weights[0];
  for (const double score : row.weights) top = score > top ? score : top;
  if (has_sink) top = sinks[head] > top ? sinks[head] : top;
  double sum = has_sink ? std::exp(sinks[head] - top) : 0;
  for (double& weight : row.weights) {
    weight = std::exp(weight - top);
    sum += weight;
  }
  for (double& weight : row.weights) weight /= sum;
  row.lse = top + std::log(sum);
}

/// Calls f(batch, head, query, row) for every query.
template <class Q, class K, class E, class M, class F>
void for_each_row(const tensor_view<const Q>& q, const tensor_view<const K>& k, const token_pair& tokens,
                  const E& encoding, const M& mask, const attention_options& options, F&& f) {
  reference_scores<Q, K, E> scores(q, k, tokens, encoding, posenc::detail::scale_of(options, q.dim()), options.softcap);
  for (index_t b = 0; b < q.batch(); ++b)
    for (index_t h = 0; h < q.heads(); ++h)
      for (index_t i = 0; i < q.tokens(); ++i) {
        softmax_row row;
        for (index_t j = 0; j < k.tokens(); ++j) {
          if (!scores.visible(mask, b, h, i, j)) continue;
          row.keys.push_back(j);
          row.weights.push_back(scores.score(b, h, i, j));
        }
        softmax(row, tokens.q.document(b, i) == -1, options.sinks, h);
        if (options.lse) options.lse.set(b, h, i, row.lse);
        f(b, h, i, row);
      }
}

}  // namespace detail

/// What posenc::attention computes, in double, by its definition. `out` and options.lse are best double; other types
/// are rounded at the end. Errors: those of posenc::attention. Allocates.
template <class Q, class K, class V, class Out, class E, class M>
void attention(const Q& q, const K& k, const V& v, Out&& out, const token_pair& tokens, const E& encoding,
               const M& mask, const attention_options& options = {}) {
  if constexpr (detail::check_all_viewable<const Q, const K, const V, std::remove_reference_t<Out>>()) {
    if constexpr (posenc::detail::check_attention_encoding<E>() && posenc::detail::check_is_mask<M>()) {
      const auto q_view = detail::read_only(as_view(q));
      const auto k_view = detail::read_only(as_view(k));
      const auto v_view = detail::read_only(as_view(v));
      const auto out_view = as_view(out);
      raise_if(posenc::detail::check_shapes(q_view, k_view, v_view, out_view));
      raise_if(detail::check_sides(q_view, k_view, tokens, encoding, mask, options));

      using number = typename std::remove_cvref_t<decltype(out_view)>::value_type;
      std::vector<double> result(static_cast<std::size_t>(v_view.dim()));
      // `out` may be q: rows are written when all have been read.
      std::vector<double> all;
      detail::for_each_row(q_view, k_view, tokens, encoding, mask, options,
                           [&](index_t b, index_t h, index_t, const detail::softmax_row& row) {
                             const index_t kv_head = h / (q_view.heads() / k_view.heads());
                             result.assign(result.size(), 0.0);
                             for (std::size_t n = 0; n < row.keys.size(); ++n)
                               for (std::size_t d = 0; d < result.size(); ++d)
                                 result[d] += row.weights[n] * detail::as_double(v_view(b, kv_head, row.keys[n],
                                                                                        static_cast<index_t>(d)));
                             all.insert(all.end(), result.begin(), result.end());
                           });
      std::size_t at = 0;
      for (index_t b = 0; b < out_view.batch(); ++b)
        for (index_t h = 0; h < out_view.heads(); ++h)
          for (index_t i = 0; i < out_view.tokens(); ++i)
            for (index_t d = 0; d < out_view.dim(); ++d)
              out_view(b, h, i, d) = static_cast<number>(static_cast<compute_type<number>>(all[at++]));
    }
  }
}

/// The attention map: how much each query looks at each key, [batch, heads, queries, keys]. Keys that a query does not
/// see have 0. A row adds up to 1, to less with a sink, and to 0 if the query sees nothing.
template <class Q, class K, class E, class M>
head_matrices attention_weights(const Q& q, const K& k, const token_pair& tokens, const E& encoding, const M& mask,
                                const attention_options& options = {}) {
  head_matrices result;
  if constexpr (detail::check_all_viewable<const Q, const K>()) {
    if constexpr (posenc::detail::check_attention_encoding<E>() && posenc::detail::check_is_mask<M>()) {
      const auto q_view = detail::read_only(as_view(q));
      const auto k_view = detail::read_only(as_view(k));
      raise_if(detail::check_queries_keys(q_view, k_view));
      raise_if(detail::check_sides(q_view, k_view, tokens, encoding, mask, options));
      result = head_matrices(q_view.batch(), q_view.heads(), q_view.tokens(), k_view.tokens());
      detail::for_each_row(q_view, k_view, tokens, encoding, mask, options,
                           [&](index_t b, index_t h, index_t i, const detail::softmax_row& row) {
                             for (std::size_t n = 0; n < row.keys.size(); ++n)
                               result(b, h, i, row.keys[n]) = row.weights[n];
                           });
    }
  }
  return result;
}

/// Scores, and which of them count.
struct masked_scores {
  head_matrices scores;                ///< -infinity where a query does not see a key
  std::vector<unsigned char> visible;  ///< 1 where it does, [batch][heads][queries][keys]

  bool is_visible(index_t batch, index_t head, index_t query, index_t key) const noexcept {
    const index_t row = (batch * scores.heads() + head) * scores.queries() + query;
    return visible[static_cast<std::size_t>(row * scores.keys() + key)] != 0;
  }
};

/// What the softmax sees: q.k after rotation, scale and softcap, plus the biases. Scores of keys that a query does not
/// see are not computed. options.sinks and options.lse play no part.
template <class Q, class K, class E, class M>
masked_scores score_matrix(const Q& q, const K& k, const token_pair& tokens, const E& encoding, const M& mask,
                           const attention_options& options = {}) {
  masked_scores result;
  if constexpr (detail::check_all_viewable<const Q, const K>()) {
    if constexpr (posenc::detail::check_attention_encoding<E>() && posenc::detail::check_is_mask<M>()) {
      const auto q_view = detail::read_only(as_view(q));
      const auto k_view = detail::read_only(as_view(k));
      raise_if(detail::check_queries_keys(q_view, k_view));
      raise_if(detail::check_sides(q_view, k_view, tokens, encoding, mask, options));
      double unseen;
      posenc::detail::set_minus_infinity(unseen);
      result.scores = head_matrices(q_view.batch(), q_view.heads(), q_view.tokens(), k_view.tokens(), unseen);
      using q_type = typename std::remove_cvref_t<decltype(q_view)>::value_type;
      using k_type = typename std::remove_cvref_t<decltype(k_view)>::value_type;
      detail::reference_scores<q_type, k_type, E> scores(
          q_view, k_view, tokens, encoding, posenc::detail::scale_of(options, q_view.dim()), options.softcap);
      for (index_t b = 0; b < q_view.batch(); ++b)
        for (index_t h = 0; h < q_view.heads(); ++h)
          for (index_t i = 0; i < q_view.tokens(); ++i)
            for (index_t j = 0; j < k_view.tokens(); ++j) {
              const bool seen = scores.visible(mask, b, h, i, j);
              result.visible.push_back(seen ? 1 : 0);
              if (seen) result.scores(b, h, i, j) = scores.score(b, h, i, j);
            }
    }
  }
  return result;
}

/// What an encoding adds to the scores of `heads` query heads, [batch, heads, queries, keys]; 0 if it adds nothing. The
/// batch is that of the tokens: 1 where all rows share them. Masks and documents play no part.
/// Errors: those of the tokens and of the encoding.
template <class E>
head_matrices bias_matrix(const E& encoding, const token_pair& tokens, index_t heads) {
  head_matrices result;
  if constexpr (posenc::detail::check_attention_encoding<E>()) {
    if (heads < 1) raise(make_error(errc::invalid_shape, "heads", "is %td; allowed: 1 and more", heads));
    const index_t batch = tokens.q.batch() > tokens.k.batch() ? tokens.q.batch() : tokens.k.batch();
    raise_if(posenc::detail::check_tokens(tokens.q, batch, tokens.q.count(), "tokens.q"));
    raise_if(posenc::detail::check_tokens(tokens.k, batch, tokens.k.count(), "tokens.k"));
    raise_if(posenc::detail::check_token_pair(tokens));
    result = head_matrices(batch, heads, tokens.q.count(), tokens.k.count());
    // Rotations of the same encoding play no part: the head is as wide as they could ask for.
    constexpr index_t wide = index_t{1} << 40;
    raise_if(posenc::detail::check_encoding(encoding, {heads, 0, wide, &tokens.q, &tokens.k}));
    if constexpr (acts_on<E, on_scores>) {
      const detail::token_table queries(tokens.q), keys(tokens.k);
      for (index_t b = 0; b < batch; ++b)
        for (index_t h = 0; h < heads; ++h)
          for (index_t i = 0; i < tokens.q.count(); ++i)
            for (index_t j = 0; j < tokens.k.count(); ++j)
              result(b, h, i, j) = detail::bias_of(encoding, queries, keys, b, h, i, j);
    }
  }
  return result;
}

/// `attention` above as a function object, for tests that take a kernel.
struct reference_kernel {
  template <class... Arguments>
  void operator()(Arguments&&... arguments) const {
    testing::attention(std::forward<Arguments>(arguments)...);
  }
};

}  // namespace posenc::inline POSENC_ABI::testing

#endif  // POSENC_TESTING_REFERENCE_HPP
