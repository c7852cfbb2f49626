// expect: this is not an encoding: it needs `using acts_on
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use(posenc::tensor_view<const float> q, posenc::tensor_view<float> out) {
#ifdef POSENC_SHOULD_FAIL
  posenc::attention(q, q, q, out, posenc::token_range(8), 8, posenc::causal{});
#else
  posenc::attention(q, q, q, out, posenc::token_range(8), posenc::alibi(8), posenc::causal{});
#endif
}
