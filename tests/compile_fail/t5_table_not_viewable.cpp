// expect: this argument has no tensor view
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use(const std::vector<float>& table) {
#ifdef POSENC_SHOULD_FAIL
  posenc::t5_bucket encoding(table);
  static_cast<void>(encoding);
#else
  posenc::t5_bucket encoding(table.data(), 8);
  static_cast<void>(encoding);
#endif
}
