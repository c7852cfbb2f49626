// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTING_CACHE_PROPERTIES_HPP
#define POSENC_TESTING_CACHE_PROPERTIES_HPP

#include "../attention/cached_attention.hpp"
#include "../attention/kv_cache.hpp"
#include "property_inputs.hpp"

namespace posenc::inline POSENC_ABI::testing {

/// How far a decoding loop with a kv_cache is from the whole text at once under a causal mask: `first` tokens are
/// appended together (the prompt), then one after another, each followed by attention of its own query. The largest
/// deviation of outputs relative to the largest value, and of lse relative to 1 + |lse|. `kernel` computes the whole
/// text. T is the element type of the cache and of the inputs.
template <scalar T = double, class E, class Kernel = attention_kernel>
double cached_decode_against_prefill_error(const E& encoding, const property_options& options = {}, index_t prompt = 10,
                                           Kernel&& kernel = {}) {
  random_numbers random(options.seed);
  const index_t count = options.tokens, kv_heads = detail::kv_heads_for<E>(options);
  prompt = prompt < count ? prompt : count;
  const token_list tokens = detail::text_tokens(count, options.axes);
  detail::property_inputs<T> x(random, count, count, options.heads, kv_heads, options.head_dim);
  detail::place(encoding, x, tokens, tokens);
  const double unit = detail::largest_element(x.v);
  const auto whole = detail::run<T>(kernel, x.q.view(), x.k.view(), x.v.view(), tokens.view(), encoding, causal{});

  kv_cache<T> cache({.kv_heads = kv_heads, .head_dim = options.head_dim, .axes = options.axes});
  const auto& inside = detail::inside_attention(encoding);
  double largest = 0;
  for (index_t t = 0; t < count;) {
    const index_t n = t == 0 && prompt > 0 ? prompt : 1;
    const token_list some = detail::text_tokens(n, options.axes, static_cast<double>(t));
    cache.append(x.k.tokens(t, n), x.v.tokens(t, n), some.view(), inside);
    detail::property_result<T> step(n, options.heads, options.head_dim);
    attention_options call;
    call.lse = lse_view(step.lse.data(), 1, options.heads, n);
    posenc::attention(x.q.tokens(t, n), cache, step.out.view(), some.view(), inside, causal{}, call);
    detail::raise_to(largest, detail::deviation(step, 0, whole, t, n, unit));
    t += n;
  }
  return largest;
}

}  // namespace posenc::inline POSENC_ABI::testing

#endif  // POSENC_TESTING_CACHE_PROPERTIES_HPP
