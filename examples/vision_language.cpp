// SPDX-License-Identifier: Apache-2.0
// A prompt of text, an image and text in a model with M-RoPE (Qwen2-VL's sections), in two pieces over a KV cache, and then
// text, token by token. An image takes fewer positions than tokens, so both are counted.
#include <posenc/posenc.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace pe = posenc;

int main() {
  constexpr pe::index_t heads = 4, kv_heads = 2, head_dim = 128, rows = 6, columns = 8;
  constexpr pe::index_t before = 12, after = 9, steps = 5, total = before + rows * columns + after + steps;
  // Stands for the projections of all tokens: [tokens, heads, head_dim].
  const auto numbers = [](pe::index_t number_of_heads, float phase) {
    std::vector<float> x(static_cast<std::size_t>(total * number_of_heads * head_dim));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(phase + 0.53f * static_cast<float>(i));
    return x;
  };
  const auto q = numbers(heads, 0), k = numbers(kv_heads, 1), v = numbers(kv_heads, 2);
  std::vector<float> out(q.size()), whole(q.size());
  const auto many = [](auto& x) { return pe::view_thd(x.data(), total, heads, head_dim); };
  const auto few = [](auto& x) { return pe::view_thd(x.data(), total, kv_heads, head_dim); };

  const pe::rope rope(pe::frequency_ladder(head_dim, {.base = 1e6}),
                      {.frequency_axis = pe::mrope_sections({16, 24, 24})});
  pe::kv_cache<float> cache({.kv_heads = kv_heads, .head_dim = head_dim, .axes = 3});
  const auto add = [&](const pe::token_list& tokens) {
    const pe::index_t first = cache.length();
    cache.append(few(k).tokens(first, tokens.count), few(v).tokens(first, tokens.count), tokens, rope);
    pe::attention(many(q).tokens(first, tokens.count), cache, many(out).tokens(first, tokens.count), tokens, rope,
                  pe::causal{});
    return tokens.next_position();
  };

  double next = add(pe::mrope_builder{}.text(before).grid(1, rows, columns).build());
  next = add(pe::mrope_builder({.next_position = next, .past = cache.length()}).text(after).build());
  std::printf("the prompt: %td tokens, the next stands at position %g\n", cache.length(), next);
  for (pe::index_t step = 0; step < steps; ++step)
    next = add(pe::mrope_builder({.next_position = next, .past = cache.length()}).text(1).build());

  // The same in one call.
  const pe::token_list all = pe::mrope_builder{}.text(before).grid(1, rows, columns).text(after + steps).build();
  pe::attention(many(q), few(k), few(v), many(whole), all, rope, pe::causal{});
  float difference = 0;
  for (std::size_t i = 0; i < out.size(); ++i) difference = std::max(difference, std::fabs(out[i] - whole[i]));
  std::printf("%td tokens in pieces - at once = %.2g\n", cache.length(), static_cast<double>(difference));
  return difference < 1e-5f ? 0 : 1;
}
