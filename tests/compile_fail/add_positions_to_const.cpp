// expect: add_positions writes to a const buffer
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use(posenc::tensor_view<const float> x, posenc::tensor_view<float> out) {
#ifdef POSENC_SHOULD_FAIL
  posenc::add_positions(x, posenc::token_range(8), posenc::sinusoidal(64));
#else
  posenc::add_positions(x, out, posenc::token_range(8), posenc::sinusoidal(64));
#endif
}
