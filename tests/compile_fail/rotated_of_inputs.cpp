// expect: this encoding acts on inputs .sinusoidal and learned do.: call posenc::add_positions
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use() {
#ifdef POSENC_SHOULD_FAIL
  posenc::rotated(posenc::sinusoidal(64));
#else
  posenc::rotated(posenc::alibi(8));
#endif
}
