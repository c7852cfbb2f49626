// expect: k and v must have the same element type
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use(posenc::tensor_view<const float> q, posenc::tensor_view<const posenc::half> k,
         posenc::tensor_view<float> out) {
#ifdef POSENC_SHOULD_FAIL
  posenc::attention(q, k, q, out, posenc::token_range(8), posenc::nope{}, posenc::causal{});
#else
  posenc::attention(q, k, k, out, posenc::token_range(8), posenc::nope{}, posenc::causal{});
#endif
}
