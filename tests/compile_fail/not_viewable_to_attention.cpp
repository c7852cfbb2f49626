// expect: this argument has no tensor view
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use(std::vector<float>& q, posenc::tensor_view<float> out) {
#ifdef POSENC_SHOULD_FAIL
  posenc::attention(q, q, q, out, posenc::token_range(8), posenc::nope{}, posenc::causal{});
#else
  const auto view = posenc::view_bhtd(q.data(), 1, 1, 8, 64);
  posenc::attention(view, view, view, out, posenc::token_range(8), posenc::nope{}, posenc::causal{});
#endif
}
