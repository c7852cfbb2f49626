// expect: a table of learned positions has elements of type float, double
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use(const int* integers, const float* floats) {
#ifdef POSENC_SHOULD_FAIL
  posenc::learned_positions encoding(posenc::view_bhtd(integers, 1, 1, 8, 64));
  static_cast<void>(encoding);
#else
  posenc::learned_positions encoding(posenc::view_bhtd(floats, 1, 1, 8, 64));
  static_cast<void>(encoding);
#endif
}
