// expect: this is not a mask: it needs the member `posenc::visibility classify
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

struct own_mask {
  bool visible(const posenc::token& q, const posenc::token& k) const { return k.order <= q.order; }
#ifdef POSENC_SHOULD_FAIL
// classify is missing
#else
  posenc::visibility classify(const posenc::token_block&, const posenc::token_block&) const {
    return posenc::visibility::some;
  }
#endif
};

void use(posenc::tensor_view<const float> q, posenc::tensor_view<float> out) {
  posenc::attention(q, q, q, out, posenc::token_range(8), posenc::nope{}, own_mask{});
}
