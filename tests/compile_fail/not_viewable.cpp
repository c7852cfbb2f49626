// expect: this argument has no tensor view: pass a posenc::tensor_view, an Eigen matrix or map
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

void use() {
#ifdef POSENC_SHOULD_FAIL
  static_cast<void>(posenc::as_view(8));
#else
  float x[8] = {};
  static_cast<void>(posenc::as_view(posenc::view_bhtd(x, 1, 1, 2, 4)));
#endif
}
