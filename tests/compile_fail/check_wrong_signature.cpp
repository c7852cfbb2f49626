// expect: member check must be callable as `posenc::maybe_error check.const posenc::encoding_use&. const`
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

struct own {
  using acts_on = posenc::places<posenc::on_scores>;
#ifdef POSENC_SHOULD_FAIL
  posenc::maybe_error check(int) const noexcept { return {}; }
#else
  posenc::maybe_error check(const posenc::encoding_use&) const noexcept { return {}; }
#endif
  template <class Keys>
  auto bias(const Keys& keys, posenc::index_t) const {
    return keys.distance();
  }
};

void use(posenc::tensor_view<const float> q, posenc::tensor_view<float> out) {
  posenc::attention(q, q, q, out, posenc::token_range(8), own{}, posenc::causal{});
}
