// SPDX-License-Identifier: Apache-2.0
// Keys in two places (two caches, two machines): attention over each, then one result. Sinks count once, in the merge.
#include <posenc/posenc.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace pe = posenc;

int main() {
  constexpr pe::index_t queries = 4, keys = 1000, here = 600, heads = 8, kv_heads = 2, head_dim = 64;
  // Buffers [tokens, heads, head_dim].
  const auto numbers = [](pe::index_t tokens, pe::index_t number_of_heads, float phase) {
    std::vector<float> x(static_cast<std::size_t>(tokens * number_of_heads * head_dim));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(phase + 0.41f * static_cast<float>(i));
    return x;
  };
  const auto q = numbers(queries, heads, 0), k = numbers(keys, kv_heads, 1), v = numbers(keys, kv_heads, 2);
  const auto q_view = pe::view_thd(q.data(), queries, heads, head_dim);
  const auto k_view = pe::view_thd(k.data(), keys, kv_heads, head_dim);
  const auto v_view = pe::view_thd(v.data(), keys, kv_heads, head_dim);
  const pe::rope rope{pe::frequency_ladder(head_dim)};
  const auto last = pe::token_range(queries, keys - queries);  // the queries are the last tokens of the text
  const std::vector<float> sinks = {0.5f, -1, 2, 0, 1, -0.5f, 3, 0.25f};

  // Over the keys [first, first + count): out and lse, without sinks.
  struct result {
    std::vector<float> out = std::vector<float>(queries * heads * head_dim), lse = std::vector<float>(heads * queries);
    auto view() { return pe::view_thd(out.data(), queries, heads, head_dim); }
  };
  const auto attend = [&](pe::index_t first, pe::index_t count) {
    result part;
    pe::attention(q_view, k_view.tokens(first, count), v_view.tokens(first, count), part.view(),
                  {last, pe::token_range(count, first)}, rope, pe::causal{},
                  {.lse = pe::lse_view(part.lse.data(), 1, heads, queries)});
    return part;
  };
  result a = attend(0, here), b = attend(here, keys - here), whole;
  const std::vector<pe::attention_part<float>> parts = {{a.view(), a.lse.data()}, {b.view(), b.lse.data()}};
  result merged;
  pe::merge(parts, merged.view(), {.sinks = sinks, .lse = pe::lse_view(merged.lse.data(), 1, heads, queries)});

  pe::attention(q_view, k_view, v_view, whole.view(), {last, pe::token_range(keys)}, rope, pe::causal{},
                {.sinks = sinks, .lse = pe::lse_view(whole.lse.data(), 1, heads, queries)});
  const auto apart = [](const std::vector<float>& x, const std::vector<float>& y) {
    float largest = 0;
    for (std::size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::fabs(x[i] - y[i]));
    return largest;
  };
  const float out = apart(merged.out, whole.out), lse = apart(merged.lse, whole.lse);
  std::printf("%td + %td keys: merged - whole = %.2g, of the lse %.2g\n", here, keys - here, static_cast<double>(out),
              static_cast<double>(lse));
  return out < 1e-5f && lse < 1e-5f ? 0 : 1;
}
