// expect: must have elements of type float, double, Eigen::half or Eigen::bfloat16 .*posenc::as_half
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use(const std::uint16_t* k, posenc::tensor_view<const float> q, posenc::tensor_view<float> out) {
#ifdef POSENC_SHOULD_FAIL
  const auto kv = posenc::view_bhtd(k, 1, 1, 8, 64);
  posenc::attention(q, kv, kv, out, posenc::token_range(8), posenc::nope{}, posenc::causal{});
#else
  const auto kv = posenc::view_bhtd(posenc::as_half(k), 1, 1, 8, 64);
  posenc::attention(q, kv, kv, out, posenc::token_range(8), posenc::nope{}, posenc::causal{});
#endif
}
