// SPDX-License-Identifier: Apache-2.0
// A packed training batch: documents of different lengths in one row. Positions start again in each, and no document sees
// another one.
#include <posenc/posenc.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <vector>

namespace pe = posenc;

int main() {
  constexpr pe::index_t heads = 8, kv_heads = 2, head_dim = 64;
  const std::vector<int> lengths = {120, 37, 300, 55};
  const pe::index_t total = std::accumulate(lengths.begin(), lengths.end(), pe::index_t{0});

  // Buffers [tokens, heads, head_dim], and views of some of their tokens.
  const auto numbers = [](pe::index_t count, float phase) {
    std::vector<float> x(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(phase + 0.37f * static_cast<float>(i));
    return x;
  };
  auto q = numbers(total * heads * head_dim, 0), out = q, alone = q;
  auto k = numbers(total * kv_heads * head_dim, 1), v = numbers(total * kv_heads * head_dim, 2);
  const auto many = [&](auto& x, pe::index_t first, pe::index_t count) {
    return pe::view_thd(x.data() + first * heads * head_dim, count, heads, head_dim);
  };
  const auto few = [&](auto& x, pe::index_t first, pe::index_t count) {
    return pe::view_thd(x.data() + first * kv_heads * head_dim, count, kv_heads, head_dim);
  };

  const pe::rope rope{pe::frequency_ladder(head_dim)};
  const pe::token_list packed = pe::packed_documents(lengths);  // position, order and document of each token
  pe::attention(many(q, 0, total), few(k, 0, total), few(v, 0, total), many(out, 0, total), packed, rope, pe::causal{});

  // What each document gives in a call of its own.
  pe::index_t first = 0;
  for (const int n : lengths) {
    pe::attention(many(q, first, n), few(k, first, n), few(v, first, n), many(alone, first, n), pe::token_range(n),
                  rope, pe::causal{});
    float difference = 0;
    for (auto i = first * heads * head_dim; i < (first + n) * heads * head_dim; ++i)
      difference = std::max(difference, std::fabs(out.data()[i] - alone.data()[i]));
    std::printf("document of %3d tokens, from %3td on: packed - alone = %.2g\n", n, first,
                static_cast<double>(difference));
    first += n;
  }
}
