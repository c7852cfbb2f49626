// SPDX-License-Identifier: Apache-2.0
// Serving requests from one paged cache: they come with prompts of different lengths and go, share the system prompt, and
// wait while there is no room.
#include <posenc/posenc.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

namespace pe = posenc;

int main() {
  constexpr pe::index_t heads = 8, kv_heads = 2, head_dim = 64, shared = 150;  // tokens of the system prompt
  const pe::rope rope{pe::frequency_ladder(head_dim)};
  // 10 blocks of 64 tokens for all: sequence 0 is the system prompt, 1 to 4 are requests.
  pe::kv_cache<pe::half> cache({.kv_heads = kv_heads, .head_dim = head_dim, .sequences = 5, .max_blocks = 10});
  // Stands for a model's projections of n tokens, of one sequence or of several: [n, heads, head_dim].
  const auto project = [](pe::index_t n, pe::index_t of_heads, float phase) {
    std::vector<float> x(static_cast<std::size_t>(n * of_heads * head_dim));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(phase + 0.61f * static_cast<float>(i));
    return x;
  };
  const auto k0 = project(shared, kv_heads, 1), v0 = project(shared, kv_heads, 2);
  cache.append(0, pe::view_thd(k0.data(), shared, kv_heads, head_dim),
               pe::view_thd(v0.data(), shared, kv_heads, head_dim), pe::token_range(shared), rope);
  struct request {
    pe::index_t prompt, answer;  // tokens of its own, and to generate
    // It shares the system prompt's whole blocks, and needs a copy of the last one and what its own tokens fill.
    pe::index_t blocks() const { return (shared % 64 + prompt + answer + 63) / 64; }
  };
  std::vector<request> waiting = {{12, 78}, {5, 25}, {70, 130}, {9, 51}, {33, 87}, {2, 38}};
  std::vector<pe::index_t> active, idle = {4, 3, 2, 1};
  request served[5] = {};
  pe::index_t room = cache.free_blocks();
  pe::workspace memory;
  while (!active.empty() || !waiting.empty()) {
    // Who comes: their prompts are appended and read in one call, one after another in the same rows.
    std::vector<pe::index_t> fresh, lengths, cached;
    while (!waiting.empty() && !idle.empty() && waiting.back().blocks() <= room) {
      fresh.push_back(idle.back());
      served[idle.back()] = waiting.back();
      lengths.push_back(waiting.back().prompt);
      cached.push_back(shared);
      room -= waiting.back().blocks();
      cache.fork(0, idle.back());
      idle.pop_back();
      waiting.pop_back();
    }
    if (!fresh.empty()) {
      const pe::token_list tokens = pe::ragged_sequences(pe::cu_seqlens_of(lengths), cached);
      const pe::index_t n = tokens.count;
      const auto q = project(n, heads, 6), k = project(n, kv_heads, 7), v = project(n, kv_heads, 8);
      std::vector<float> out(q.size());
      cache.append(fresh, pe::view_thd(k.data(), n, kv_heads, head_dim), pe::view_thd(v.data(), n, kv_heads, head_dim),
                   tokens, rope);
      pe::attention(pe::view_thd(q.data(), n, heads, head_dim), cache.select(fresh),
                    pe::view_thd(out.data(), n, heads, head_dim), tokens, rope, pe::causal{}, {.memory = &memory});
      active.insert(active.end(), fresh.begin(), fresh.end());
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
      const request& one = served[slot];
      if (cache.length(slot) < shared + one.prompt + one.answer) return false;
      std::printf("%td tokens after %td are done; %td blocks are in use\n", one.answer, shared + one.prompt,
                  cache.used_blocks());
      room += one.blocks();
      cache.clear(slot), idle.push_back(slot);
      return true;
    });
  }
}
