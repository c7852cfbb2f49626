// SPDX-License-Identifier: Apache-2.0
// Rotary positions in place, on buffers as an engine has them: [batch, tokens, heads, head_dim], and fused QKV rows.
#include <posenc/posenc.hpp>

#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>
#include <vector>

namespace pe = posenc;

int main() {
  constexpr pe::index_t batch = 2, tokens = 16, heads = 8, kv_heads = 2, head_dim = 64;
  const pe::rope rope(pe::frequency_ladder(head_dim, {.base = 10000}), {.pairing = pe::pairing::half});

  // Two buffers [B, T, H, D]. Every token of the example holds the same vectors, so that only positions tell them apart.
  std::vector<float> q(batch * tokens * heads * head_dim), k(batch * tokens * kv_heads * head_dim);
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = std::cos(static_cast<float>(i % head_dim));
  for (std::size_t i = 0; i < k.size(); ++i) k[i] = std::sin(static_cast<float>(i % head_dim) + 0.5f);
  const auto q_view = pe::view_bthd(q.data(), batch, tokens, heads, head_dim);
  const auto k_view = pe::view_bthd(k.data(), batch, tokens, kv_heads, head_dim);
  pe::rotate_qk(q_view, k_view, pe::token_range(tokens), rope);  // one table for both

  std::puts("[B, T, H, D]: scores depend on the distance alone");
  for (const auto& [query, key] : {std::pair{2, 0}, {9, 7}, {15, 13}, {15, 0}}) {
    const float* const a = q_view.row(0, 0, query);
    const double score = std::inner_product(a, a + head_dim, k_view.row(0, 0, key), 0.0);
    std::printf("  query at %2d, key at %2d, distance %2d: %.4f\n", query, key, query - key, score);
  }

  // One fused projection: each row holds 8 heads of q, 2 of k and 2 of v; v is left alone.
  constexpr pe::index_t width = (heads + 2 * kv_heads) * head_dim;
  std::vector<float> qkv(batch * tokens * width, 1.0f);
  const auto fused_q = pe::view_fused(qkv.data(), batch, tokens, width, 0, heads, head_dim);
  const auto fused_k = pe::view_fused(qkv.data(), batch, tokens, width, heads * head_dim, kv_heads, head_dim);
  const auto chunk = pe::token_range(tokens, 1000);  // a later chunk of a text: positions 1000, 1001, ...

  std::puts("fused QKV: q and k turn where they lie, v stays");
  const auto show = [&](const char* what) {
    std::printf("  %-8s k[0] = %8.5f   v[0] = %g\n", what, static_cast<double>(fused_k(1, 1, 15, 0)),
                static_cast<double>(qkv.back()));
  };
  show("before:");
  pe::rotate_qk(fused_q, fused_k, chunk, rope);
  show("turned:");
  pe::unrotate(fused_k, chunk, rope);
  show("back:");
}
