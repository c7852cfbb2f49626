// expect: q, k, v and out mix float, half and bfloat16 freely, but double goes with double only
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use(posenc::tensor_view<const float> q, posenc::tensor_view<const double> k, posenc::tensor_view<float> out) {
#ifdef POSENC_SHOULD_FAIL
  posenc::attention(q, k, k, out, posenc::token_range(8), posenc::nope{}, posenc::causal{});
#else
  posenc::attention(k, k, k, posenc::tensor_view<double>{}, posenc::token_range(8), posenc::nope{}, posenc::causal{});
  static_cast<void>(q), static_cast<void>(out);
#endif
}
