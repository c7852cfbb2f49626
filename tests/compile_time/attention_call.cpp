// SPDX-License-Identifier: Apache-2.0
// What .ci/compile-time measures beside the umbrella header: one attention call in float.
#include <posenc/posenc.hpp>

void call(const float* q, const float* k, const float* v, float* out, posenc::index_t tokens) {
  const posenc::rope encoding(posenc::frequency_ladder(128));
  posenc::attention(posenc::view_bhtd(q, 1, 32, tokens, 128), posenc::view_bhtd(k, 1, 8, tokens, 128),
                    posenc::view_bhtd(v, 1, 8, tokens, 128), posenc::view_bhtd(out, 1, 32, tokens, 128),
                    posenc::token_range(tokens), encoding, posenc::causal{});
}
