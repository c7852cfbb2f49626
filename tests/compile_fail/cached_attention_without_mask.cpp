// expect: attention needs a mask behind the encoding: posenc::causal.., posenc::bidirectional.. or another
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use(float* data) {
  const auto q = posenc::view_bhtd(data, 1, 1, 4, 2);
  const posenc::kv_cache<float> cache({.kv_heads = 1, .head_dim = 2});
#ifdef POSENC_SHOULD_FAIL
  posenc::attention(q, cache, q, posenc::token_range(4), posenc::nope{});
#else
  posenc::attention(q, cache, q, posenc::token_range(4), posenc::nope{}, posenc::causal{});
#endif
}
