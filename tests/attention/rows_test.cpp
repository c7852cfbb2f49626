// SPDX-License-Identifier: Apache-2.0
// Few queries read keys and values in rows where they lie; many have them packed. Both must say the same.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/mask/masks.hpp>
#include <posenc/encoding/rope.hpp>
#include <posenc/encoding/rotated.hpp>
#include <posenc/ladder/frequency_ladder.hpp>

#include "attention/attention_support.hpp"

namespace {

using attention_test::index_t;
using attention_test::make_buffer;

template <class T>
class Rows : public testing::Test {};
using types = testing::Types<float, double, posenc::half, posenc::bfloat16>;
TYPED_TEST_SUITE(Rows, types);

TYPED_TEST(Rows, FewQueriesAreAsManyAre) {
  using T = TypeParam;
  attention_test::random_engine random(1);
  for (const index_t dim : {2, 22, 64}) {
    const auto encoding = posenc::rotated_keys(posenc::rope(posenc::frequency_ladder(dim)));
    constexpr index_t many = 130, keys = 2200;  // more than one range of blocks, the last block not full
    const auto q = attention_test::random_buffer<T>(random, 1, 4, many, dim);
    auto k = attention_test::random_buffer<T>(random, 1, 2, keys, dim),
         v = attention_test::random_buffer<T>(random, 1, 2, keys, dim + 3);
    // Nobody sees the last key.
    for (index_t h = 0; h < 2; ++h) {
      for (index_t d = 0; d < dim; ++d) attention_test::poison(k.view(0, h, keys - 1, d), random);
      for (index_t d = 0; d < dim + 3; ++d) attention_test::poison(v.view(0, h, keys - 1, d), random);
    }
    const auto packed = make_buffer<T>(1, 4, many, dim + 3);
    const double first = keys - 1 - many;
    const posenc::token_view of_keys = posenc::token_range(keys);
    posenc::attention(q.view, k.view, v.view, packed.view, {posenc::token_range(many, first), of_keys}, encoding,
                      posenc::causal{});
    for (const index_t few : {1, 2, 3, 7}) {
      const auto out = make_buffer<T>(1, 4, few, dim + 3);
      const posenc::tensor_view<const T> some(q.view.data_handle(), {1, 4, few, dim}, {0, q.view.stride(1), dim, 1});
      posenc::attention(some, k.view, v.view, out.view, {posenc::token_range(few, first), of_keys}, encoding,
                        posenc::causal{});
      out.for_each([&](index_t b, index_t h, index_t t, index_t d) {
        const double bound = sizeof(T) == 2 ? 2e-2 : sizeof(T) == 4 ? 8e-6 : 1e-12;
        EXPECT_NEAR(attention_test::to_double(out.view(b, h, t, d)), attention_test::to_double(packed.view(b, h, t, d)),
                    bound)
            << few << " queries, head_dim " << dim;
      });
    }
  }
}

}  // namespace
