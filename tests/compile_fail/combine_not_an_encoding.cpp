// expect: this is not an encoding: it needs `using acts_on
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use() {
#ifdef POSENC_SHOULD_FAIL
  posenc::combine(posenc::alibi(8), posenc::causal{});
#else
  posenc::combine(posenc::alibi(8), posenc::nope{});
#endif
}
