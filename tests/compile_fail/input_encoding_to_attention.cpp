// expect: acts on inputs .sinusoidal and learned do.: call posenc::add_positions on the embeddings and pass posenc::nope
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use(posenc::tensor_view<const float> q, posenc::tensor_view<float> out) {
#ifdef POSENC_SHOULD_FAIL
  posenc::attention(q, q, q, out, posenc::token_range(8), posenc::sinusoidal(64), posenc::causal{});
#else
  posenc::attention(q, q, q, out, posenc::token_range(8), posenc::nope{}, posenc::causal{});
#endif
}
