// SPDX-License-Identifier: Apache-2.0
// Generating with a KV cache, for two users at once whose prompts differ in length.
#include <posenc/posenc.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace pe = posenc;

int main() {
  constexpr pe::index_t users = 2, heads = 8, kv_heads = 2, head_dim = 64;
  // Stands for a model's projections of some tokens: [tokens, heads, head_dim].
  const auto project = [](pe::index_t tokens, pe::index_t number_of_heads, float phase) {
    std::vector<float> x(static_cast<std::size_t>(tokens * number_of_heads * head_dim));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(phase + 0.61f * static_cast<float>(i));
    return x;
  };

  const pe::rope rope{pe::frequency_ladder(head_dim)};
  pe::kv_cache<float> cache({.kv_heads = kv_heads, .head_dim = head_dim, .sequences = users});

  // The prompts. Keys are rotated once, when they are appended.
  const pe::index_t prompt[users] = {20, 7};
  for (pe::index_t user = 0; user < users; ++user) {
    const auto k = project(prompt[user], kv_heads, 1), v = project(prompt[user], kv_heads, 2);
    cache.append(user, pe::view_thd(k.data(), prompt[user], kv_heads, head_dim),
                 pe::view_thd(v.data(), prompt[user], kv_heads, head_dim), pe::token_range(prompt[user]), rope);
  }

  pe::workspace memory;  // grows at first; then attention allocates nothing
  for (int step = 0; step < 4; ++step) {
    // One new token a user. Its position is the number of tokens before it, not 0.
    const auto phase = static_cast<float>(10 * step);
    const auto q = project(users, heads, phase), k = project(users, kv_heads, phase + 1);
    const auto v = project(users, kv_heads, phase + 2);
    std::vector<std::int64_t> positions;
    for (pe::index_t user = 0; user < users; ++user) {
      positions.push_back(cache.length(user));
      cache.append(user, pe::view_bthd(k.data(), users, 1, kv_heads, head_dim).batch(user, 1),
                   pe::view_bthd(v.data(), users, 1, kv_heads, head_dim).batch(user, 1),
                   pe::token_range(1, positions.back()), rope);
    }
    // All users in one call: row u of the batch reads sequence u of the cache.
    std::vector<float> out(q.size());
    pe::attention(pe::view_bthd(q.data(), users, 1, heads, head_dim), cache,
                  pe::view_bthd(out.data(), users, 1, heads, head_dim), pe::token_positions(positions.data(), 1, users),
                  rope, pe::causal{}, {.memory = &memory});
    std::printf("step %d: user 0 at position %td gets %8.5f, user 1 at position %td gets %8.5f\n", step,
                cache.length(0) - 1, static_cast<double>(out[0]), cache.length(1) - 1,
                static_cast<double>(out[heads * head_dim]));
  }
}
