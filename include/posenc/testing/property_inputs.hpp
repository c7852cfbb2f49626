// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTING_PROPERTY_INPUTS_HPP
#define POSENC_TESTING_PROPERTY_INPUTS_HPP

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "../attention/attention.hpp"
#include "../attention/mask/masks.hpp"
#include "../core/finite.hpp"
#include "../core/token_builders.hpp"
#include "../encoding/add_positions.hpp"
#include "../encoding/nope.hpp"
#include "random_tensor.hpp"

namespace posenc::inline POSENC_ABI::testing {

/// What the property checks run on.
struct property_options {
  index_t heads = 4;      ///< query heads
  index_t kv_heads = 2;   ///< a divisor of heads; encodings that act on inputs get as many as query heads
  index_t head_dim = 32;  ///< encodings that act on inputs must be heads * head_dim wide
  index_t axes = 1;       ///< position axes of the tokens
  index_t tokens = 80;    ///< of the longest text; more than one block of keys by default
  index_t samples = 64;   ///< for checks that draw positions
  /// Positions that are drawn are whole numbers from 0 up to here: the last one of a learned table, say.
  index_t max_position = 1000;
  std::uint64_t seed = 1;
};

/// posenc::attention as a function object. Checks take any kernel in its place: a callable with the arguments
/// (q, k, v, out, tokens, encoding, mask, options) that attention has, lse included.
struct attention_kernel {
  template <class... Arguments>
  void operator()(Arguments&&... arguments) const {
    posenc::attention(std::forward<Arguments>(arguments)...);
  }
};

namespace detail {

/// q, k and v of one row of tokens. Outputs and lse are compute numbers, so that nothing but the kernel rounds.
template <scalar T>
struct property_inputs {
  using real = compute_type<T>;
  owned_tensor<T> q, k, v;

  property_inputs(random_numbers& random, index_t q_tokens, index_t k_tokens, index_t heads, index_t kv_heads,
                  index_t head_dim)
      : q(random_tensor<T>(random, q_tokens, heads, head_dim)),
        k(random_tensor<T>(random, k_tokens, kv_heads, head_dim)),
        v(random_tensor<T>(random, k_tokens, kv_heads, head_dim)) {}
};

template <class E>
index_t kv_heads_for(const property_options& options) {
  return acts_on<E, on_inputs> ? options.heads : options.kv_heads;
}

/// Positions that a text has: the same number on every axis, from `first` on; the order is that number too.
inline token_list text_tokens(index_t count, index_t axes, double first = 0) {
  token_list tokens;
  tokens.axes = axes;
  tokens.count = count;
  for (index_t axis = 0; axis < axes; ++axis)
    for (index_t t = 0; t < count; ++t) tokens.positions.push_back(first + static_cast<double>(t));
  for (index_t t = 0; t < count; ++t) tokens.order.push_back(first + static_cast<double>(t));
  return tokens;
}

/// Adds an encoding of inputs to embeddings that are their own queries, keys and values (identity projections); others
/// act inside attention.
template <class E, scalar T>
void place(const E& encoding, owned_tensor<T>& x, const token_list& tokens) {
  if constexpr (acts_on<E, on_inputs>) {
    add_positions(x.embeddings(), tokens.view(), encoding);
  } else {
    static_cast<void>(encoding);
    static_cast<void>(x);
    static_cast<void>(tokens);
  }
}
template <class E, scalar T>
void place(const E& encoding, property_inputs<T>& x, const token_list& q_tokens, const token_list& k_tokens) {
  place(encoding, x.q, q_tokens);
  place(encoding, x.k, k_tokens);
  place(encoding, x.v, k_tokens);
}

/// What attention gets of an encoding: all of it, or nothing if it was added to the inputs.
template <class E>
const auto& inside_attention(const E& encoding) {
  if constexpr (acts_on<E, on_inputs>) {
    static constexpr nope nothing{};
    static_cast<void>(encoding);
    return nothing;
  } else {
    return encoding;
  }
}

/// Outputs [tokens][heads][dim] and lse [heads][tokens] of one call.
template <scalar T>
struct property_result {
  owned_tensor<compute_type<T>> out;
  std::vector<compute_type<T>> lse;

  property_result(index_t tokens, index_t heads, index_t dim)
      : out(tokens, heads, dim), lse(static_cast<std::size_t>(heads * tokens)) {}
};

/// One call of the kernel for the views of some tokens.
template <scalar T, class Kernel, class E, class M>
property_result<T> run(Kernel& kernel, const tensor_view<const T>& q, const tensor_view<const T>& k,
                       const tensor_view<const T>& v, const token_pair& tokens, const E& encoding, const M& mask,
                       attention_options options = {}) {
  property_result<T> result(q.tokens(), q.heads(), v.dim());
  options.lse = lse_view(result.lse.data(), 1, q.heads(), q.tokens());
  kernel(q, k, v, result.out.view(), tokens, inside_attention(encoding), mask, options);
  return result;
}

/// Takes the larger one, and keeps NaN: a NaN in a result must not pass for a small deviation.
inline void raise_to(double& largest, const double& value) {
  if (posenc::detail::is_nan(largest)) return;
  if (posenc::detail::is_nan(value) || value > largest) largest = value;
}

/// |a - b|; equal infinities do not differ, and NaN differs from everything, itself included.
inline double difference(const double& a, const double& b) {
  if (posenc::detail::is_finite(a) && posenc::detail::is_finite(b)) return std::abs(a - b);
  const bool same = !posenc::detail::is_nan(a) && std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
  return same ? 0 : (std::numeric_limits<double>::max)();
}

template <scalar T>
double largest_element(const owned_tensor<T>& x) {
  double largest = 0;
  const tensor_view<const T> view = x.view();
  for (index_t t = 0; t < view.tokens(); ++t)
    for (index_t h = 0; h < view.heads(); ++h)
      for (index_t d = 0; d < view.dim(); ++d) raise_to(largest, std::abs(x(h, t, d)));
  return largest > 0 ? largest : 1;
}

/// Largest deviation of `count` tokens of a from b, from their tokens a_first and b_first on: of outputs relative to
/// `unit`, of lse relative to 1 + |lse|.
template <scalar T>
double deviation(const property_result<T>& a, index_t a_first, const property_result<T>& b, index_t b_first,
                 index_t count, double unit) {
  double largest = 0;
  const auto a_view = a.out.view(), b_view = b.out.view();
  for (index_t h = 0; h < a_view.heads(); ++h)
    for (index_t t = 0; t < count; ++t) {
      for (index_t d = 0; d < a_view.dim(); ++d)
        raise_to(largest, difference(a.out(h, a_first + t, d), b.out(h, b_first + t, d)) / unit);
      const auto a_lse = static_cast<double>(a.lse[static_cast<std::size_t>(h * a_view.tokens() + a_first + t)]);
      const auto b_lse = static_cast<double>(b.lse[static_cast<std::size_t>(h * b_view.tokens() + b_first + t)]);
      const double size = posenc::detail::is_finite(b_lse) ? 1 + std::abs(b_lse) : 1;
      raise_to(largest, difference(a_lse, b_lse) / size);
    }
  return largest;
}

}  // namespace detail

}  // namespace posenc::inline POSENC_ABI::testing

#endif  // POSENC_TESTING_PROPERTY_INPUTS_HPP
