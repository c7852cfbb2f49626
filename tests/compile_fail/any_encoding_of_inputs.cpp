// expect: this encoding acts on inputs .sinusoidal and learned do.: call posenc::add_positions
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use() {
#ifdef POSENC_SHOULD_FAIL
  posenc::any_encoding chosen = posenc::sinusoidal(64);
  static_cast<void>(chosen);
#else
  posenc::any_encoding chosen = posenc::alibi(8);
  static_cast<void>(chosen);
#endif
}
