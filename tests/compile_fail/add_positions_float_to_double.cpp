// expect: x and out mix float, half and bfloat16 freely, but double goes with double only
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use(posenc::tensor_view<const float> x, posenc::tensor_view<double> doubles, posenc::tensor_view<float> floats) {
#ifdef POSENC_SHOULD_FAIL
  posenc::add_positions(x, doubles, posenc::token_range(8), posenc::sinusoidal(64));
#else
  posenc::add_positions(x, floats, posenc::token_range(8), posenc::sinusoidal(64));
#endif
}
