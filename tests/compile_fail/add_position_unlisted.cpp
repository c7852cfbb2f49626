// expect: has a member add_position but does not act on inputs: add posenc::on_inputs
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

struct own {
#ifdef POSENC_SHOULD_FAIL
  using acts_on = posenc::places<>;
#else
  using acts_on = posenc::places<posenc::on_inputs>;
#endif
  template <class Real>
  void add_position(posenc::position_span position, std::span<Real> x) const {
    x[0] += static_cast<Real>(position[0]);
  }
};

void use(posenc::tensor_view<float> x) { posenc::add_positions(x, posenc::token_range(8), own{}); }
