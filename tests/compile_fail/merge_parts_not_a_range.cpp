// expect: merge takes its parts as a contiguous range .*of posenc::attention_part<float>
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use(const posenc::attention_part<float>& part, posenc::tensor_view<float> out) {
#ifdef POSENC_SHOULD_FAIL
  posenc::merge(part, out);
#else
  posenc::merge(std::vector<posenc::attention_part<float>>{part}, out);
#endif
}
