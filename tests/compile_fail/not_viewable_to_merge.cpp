// expect: this argument has no tensor view
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use(const std::vector<posenc::attention_part<float>>& parts, std::vector<float>& out) {
#ifdef POSENC_SHOULD_FAIL
  posenc::merge(parts, out);
#else
  posenc::merge(parts, posenc::view_bhtd(out.data(), 1, 1, 8, 64));
#endif
}
