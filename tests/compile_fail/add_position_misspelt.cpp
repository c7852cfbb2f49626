// expect: acts_on lists on_inputs. needs the member `template <class Real> void add_position
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

struct own {
  using acts_on = posenc::places<posenc::on_inputs>;
#ifdef POSENC_SHOULD_FAIL
  template <class Real>
  void add(posenc::position_span position, std::span<Real> x) const {
    x[0] += static_cast<Real>(position[0]);
  }
#else
  template <class Real>
  void add_position(posenc::position_span position, std::span<Real> x) const {
    x[0] += static_cast<Real>(position[0]);
  }
#endif
};

void use(posenc::tensor_view<float> x) { posenc::add_positions(x, posenc::token_range(8), own{}); }
