// SPDX-License-Identifier: Apache-2.0
// Serving requests from one paged cache: they come and go, share the system prompt, and wait while there is no room.
#include <posenc/posenc.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

namespace pe = posenc;

int main() {
  constexpr pe::index_t heads = 8, kv_heads = 2, head_dim = 64, prompt = 150;
  const pe::rope rope{pe::frequency_ladder(head_dim)};
  // 10 blocks of 64 tokens for all: sequence 0 is the system prompt, 1 to 4 are requests.
  pe::kv_cache<pe::half> cache({.kv_heads = kv_heads, .head_dim = head_dim, .sequences = 5, .max_blocks = 10});
  // Stands for a model's projections of the next token of n sequences, or of n tokens: [n, heads, head_dim].
  const auto project = [](pe::index_t n, pe::index_t of_heads, float phase) {
    std::vector<float> x(static_cast<std::size_t>(n * of_heads * head_dim));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(phase + 0.61f * static_cast<float>(i));
    return x;
  };
  const auto k0 = project(prompt, kv_heads, 1), v0 = project(prompt, kv_heads, 2);
  cache.append(0, pe::view_thd(k0.data(), prompt, kv_heads, head_dim),
               pe::view_thd(v0.data(), prompt, kv_heads, head_dim), pe::token_range(prompt), rope);
  // A request shares the prompt's whole blocks; it needs a copy of the last one, and what its own tokens fill.
  const auto needs = [](pe::index_t tokens) { return (prompt % 64 + tokens + 63) / 64; };
  std::vector<pe::index_t> waiting = {90, 30, 200, 60, 120, 40};  // tokens to generate
  std::vector<pe::index_t> active, idle = {4, 3, 2, 1};
  pe::index_t wanted[5] = {}, room = cache.free_blocks();
  pe::workspace memory;
  while (!active.empty() || !waiting.empty()) {
    while (!waiting.empty() && !idle.empty() && needs(waiting.back()) <= room) {
      cache.fork(0, idle.back());
      room -= needs(waiting.back());
      wanted[idle.back()] = prompt + waiting.back();
      active.push_back(idle.back());
      idle.pop_back();
      waiting.pop_back();
    }
    // One token of every request, whatever their lengths: one append and one call of attention.
    const auto n = static_cast<pe::index_t>(active.size());
    const auto q = project(n, heads, 3), k = project(n, kv_heads, 4), v = project(n, kv_heads, 5);
    std::vector<float> out(q.size());
    std::vector<double> positions;
    for (const pe::index_t slot : active) positions.push_back(static_cast<double>(cache.length(slot)));
    const auto tokens = pe::token_positions(positions.data(), 1, n);
    const auto rows = [n](auto& x, pe::index_t of) { return pe::view_bthd(x.data(), n, 1, of, head_dim); };
    cache.append(active, rows(k, kv_heads), rows(v, kv_heads), tokens, rope);
    pe::attention(rows(q, heads), cache.select(active), rows(out, heads), tokens, rope, pe::causal{},
                  {.memory = &memory});
    std::erase_if(active, [&](pe::index_t slot) {
      if (cache.length(slot) < wanted[slot]) return false;
      std::printf("%td tokens are done; %td blocks are in use\n", wanted[slot] - prompt, cache.used_blocks());
      room += needs(wanted[slot] - prompt);
      cache.clear(slot), idle.push_back(slot);
      return true;
    });
  }
}
