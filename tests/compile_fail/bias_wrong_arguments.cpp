// expect: needs the member `template <class Keys> auto bias.const Keys& keys, posenc::index_t head. const`
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

struct own {
  using acts_on = posenc::places<posenc::on_scores>;
#ifdef POSENC_SHOULD_FAIL
  template <class Keys>
  auto bias(const Keys& keys) const {
    return keys.distance();
  }
#else
  template <class Keys>
  auto bias(const Keys& keys, posenc::index_t) const {
    return keys.distance();
  }
#endif
};

void use(posenc::tensor_view<const float> q, posenc::tensor_view<float> out) {
  posenc::attention(q, q, q, out, posenc::token_range(8), own{}, posenc::causal{});
}
