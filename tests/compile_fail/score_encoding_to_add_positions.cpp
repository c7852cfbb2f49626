// expect: add_positions takes an encoding that acts on inputs .sinusoidal, learned.; this one is passed to posenc::attention
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use(posenc::tensor_view<float> x) {
#ifdef POSENC_SHOULD_FAIL
  posenc::add_positions(x, posenc::token_range(8), posenc::alibi(8));
#else
  posenc::add_positions(x, posenc::token_range(8), posenc::sinusoidal(64));
#endif
}
