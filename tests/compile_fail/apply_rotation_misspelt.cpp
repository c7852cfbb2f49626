// expect: needs the member `template <class Real> void apply_rotation
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

struct own {
  using acts_on = posenc::places<posenc::on_queries_keys>;
  posenc::index_t rotation_size(posenc::rotation_shape) const { return 1; }
  template <class Real>
  void prepare_rotation(posenc::rotation_shape, posenc::position_span, posenc::rotation_use, Real* row) const {
    row[0] = 1;
  }
#ifdef POSENC_SHOULD_FAIL
  template <class Real>
  void apply_rotations(posenc::rotation_shape, const Real* row, posenc::index_t, Real* x) const {
    x[0] *= row[0];
  }
#else
  template <class Real>
  void apply_rotation(posenc::rotation_shape, const Real* row, posenc::index_t, Real* x) const {
    x[0] *= row[0];
  }
#endif
};

void use(posenc::tensor_view<const float> q, posenc::tensor_view<float> out) {
  posenc::attention(q, q, q, out, posenc::token_range(8), own{}, posenc::causal{});
}
