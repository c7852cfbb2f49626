// expect: this is a function, declared where a variable was meant: write braces
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use(float* data, posenc::index_t dim) {
  const auto q = posenc::view_bhtd(data, 1, 1, 4, 2);
#ifdef POSENC_SHOULD_FAIL
  const posenc::rope encoding(posenc::frequency_ladder(dim));
#else
  const posenc::rope encoding{posenc::frequency_ladder(dim)};
#endif
  posenc::attention(q, q, q, q, posenc::token_range(4), encoding, posenc::causal{});
}
