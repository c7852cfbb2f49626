// SPDX-License-Identifier: Apache-2.0
// Decoding over a cache of one's own: plain rows [tokens, kv_heads, head_dim], whose keys are stored rotated.
#include <posenc/posenc.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace pe = posenc;

int main() {
  constexpr pe::index_t longest = 100, heads = 8, kv_heads = 2, head_dim = 64;
  // Stands for a model's projections of all tokens: [tokens, heads, head_dim].
  const auto project = [](pe::index_t number_of_heads, float phase) {
    std::vector<float> x(static_cast<std::size_t>(longest * number_of_heads * head_dim));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(phase + 0.61f * static_cast<float>(i));
    return x;
  };
  const auto q = project(heads, 0), k = project(kv_heads, 1), v = project(kv_heads, 2);

  const pe::rope rope{pe::frequency_ladder(head_dim)};
  std::vector<float> keys(k.size()), values(v.size());  // the cache
  std::vector<float> out(q.size());
  pe::workspace memory;
  for (pe::index_t t = 0; t < longest; ++t) {
    // The new key is turned on its way into the cache, and never again.
    const pe::token_view now = pe::token_range(1, t);
    const pe::index_t row = t * kv_heads * head_dim, q_row = t * heads * head_dim;
    pe::rotate(pe::view_thd(k.data() + row, 1, kv_heads, head_dim),
               pe::view_thd(keys.data() + row, 1, kv_heads, head_dim), now, rope);
    std::copy_n(v.data() + row, kv_heads * head_dim, values.data() + row);

    // rotated_keys: attention turns the query only.
    pe::attention(
        pe::view_thd(q.data() + q_row, 1, heads, head_dim), pe::view_thd(keys.data(), t + 1, kv_heads, head_dim),
        pe::view_thd(values.data(), t + 1, kv_heads, head_dim), pe::view_thd(out.data() + q_row, 1, heads, head_dim),
        {now, pe::token_range(t + 1)}, pe::rotated_keys(rope), pe::causal{}, {.memory = &memory});
  }

  // The same text at once, without a cache.
  std::vector<float> whole(q.size());
  pe::attention(pe::view_thd(q.data(), longest, heads, head_dim), pe::view_thd(k.data(), longest, kv_heads, head_dim),
                pe::view_thd(v.data(), longest, kv_heads, head_dim),
                pe::view_thd(whole.data(), longest, heads, head_dim), pe::token_range(longest), rope, pe::causal{});
  double difference = 0;
  for (std::size_t i = 0; i < out.size(); ++i)
    difference = std::max(difference, std::fabs(static_cast<double>(out[i]) - static_cast<double>(whole[i])));
  std::printf("%td tokens one by one - the same tokens at once = %.2g\n", longest, difference);
}
