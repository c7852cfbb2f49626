// expect: parts of float are merged into float, half or bfloat16, parts of double into double
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use(const std::vector<posenc::attention_part<float>>& parts, posenc::tensor_view<float> out,
         posenc::tensor_view<double> wide) {
#ifdef POSENC_SHOULD_FAIL
  posenc::merge(parts, wide);
#else
  posenc::merge(parts, out);
  static_cast<void>(wide);
#endif
}
