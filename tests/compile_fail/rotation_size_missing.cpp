// expect: acts_on lists on_queries_keys. needs the member `posenc::index_t rotation_size
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

struct own {
  using acts_on = posenc::places<posenc::on_queries_keys>;
#ifdef POSENC_SHOULD_FAIL
  posenc::index_t row_size(posenc::rotation_shape) const { return 1; }
#else
  posenc::index_t rotation_size(posenc::rotation_shape) const { return 1; }
#endif
  template <class Real>
  void prepare_rotation(posenc::rotation_shape, posenc::position_span, posenc::rotation_use, Real* row) const {
    row[0] = 1;
  }
  template <class Real>
  void apply_rotation(posenc::rotation_shape, const Real* row, posenc::index_t, Real* x) const {
    x[0] *= row[0];
  }
};

void use(posenc::tensor_view<const float> q, posenc::tensor_view<float> out) {
  posenc::attention(q, q, q, out, posenc::token_range(8), own{}, posenc::causal{});
}
