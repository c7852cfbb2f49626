// expect: this is not an encoding: it needs `using acts_on = posenc::places<...>;`
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

struct own {
#ifdef POSENC_SHOULD_FAIL
// acts_on is missing
#else
  using acts_on = posenc::places<posenc::on_scores>;
#endif
  template <class Keys>
  auto bias(const Keys& keys, posenc::index_t) const {
    return keys.distance();
  }
};

void use(posenc::tensor_view<const float> q, posenc::tensor_view<float> out) {
  posenc::attention(q, q, q, out, posenc::token_range(8), own{}, posenc::causal{});
}
