// expect: per_head takes encodings for posenc::attention; one that acts on inputs
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use() {
#ifdef POSENC_SHOULD_FAIL
  posenc::per_head(8, [](posenc::index_t) { return posenc::sinusoidal(64); });
#else
  posenc::per_head(8, [](posenc::index_t) { return posenc::alibi(8); });
#endif
}
