// expect: this is not a mask: it needs the member `bool visible
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use(posenc::tensor_view<const float> q, posenc::tensor_view<float> out) {
#ifdef POSENC_SHOULD_FAIL
  posenc::attention(q, q, q, out, posenc::token_range(8), posenc::nope{}, true);
#else
  posenc::attention(q, q, q, out, posenc::token_range(8), posenc::nope{}, posenc::causal{});
#endif
}
