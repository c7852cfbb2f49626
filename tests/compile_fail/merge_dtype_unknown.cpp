// expect: parts must be of float or double, and out must have elements of type float, double, Eigen::half
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use(const std::vector<posenc::attention_part<float>>& parts, std::uint16_t* out) {
#ifdef POSENC_SHOULD_FAIL
  posenc::merge(parts, posenc::view_bhtd(out, 1, 1, 8, 64));
#else
  posenc::merge(parts, posenc::view_bhtd(posenc::as_half(out), 1, 1, 8, 64));
#endif
}
