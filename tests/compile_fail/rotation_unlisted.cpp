// expect: has a rotation member .* but does not act on queries and keys: add posenc::on_queries_keys
// SPDX-License-Identifier: Apache-2.0
#include <posenc/posenc.hpp>

struct own {
#ifdef POSENC_SHOULD_FAIL
  using acts_on = posenc::places<>;
#else
  using acts_on = posenc::places<posenc::on_queries_keys>;
#endif
  posenc::index_t rotation_size(posenc::rotation_shape) const { return 1; }
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
