// expect: out is const: merge writes to it
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use(const std::vector<posenc::attention_part<float>>& parts, posenc::tensor_view<float> out) {
#ifdef POSENC_SHOULD_FAIL
  posenc::merge(parts, posenc::tensor_view<const float>(out));
#else
  posenc::merge(parts, out);
#endif
}
