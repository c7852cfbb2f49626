// expect: has a member bias but does not act on scores: add posenc::on_scores to its acts_on
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

struct own {
#ifdef POSENC_SHOULD_FAIL
  using acts_on = posenc::places<>;
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
