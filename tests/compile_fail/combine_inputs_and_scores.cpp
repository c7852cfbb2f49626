// expect: combine takes encodings that act on inputs .for posenc::add_positions. or encodings for posenc::attention, not both
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use() {
#ifdef POSENC_SHOULD_FAIL
  posenc::combine(posenc::sinusoidal(64), posenc::alibi(8));
#else
  posenc::combine(posenc::nope{}, posenc::alibi(8));
#endif
}
