// SPDX-License-Identifier: Apache-2.0
// half and bfloat16, alone and in every mix with float.
#include "attention/differential_support.hpp"

namespace {

using attention_test::index_t;
using attention_test::one_of;
using attention_test::pick;
using attention_test::random_engine;
using attention_test::run_random_cases;
using attention_test::sizes;
using posenc::bfloat16;
using posenc::half;

template <class Q, class KV, class Out>
struct mix {
  using q = Q;
  using kv = KV;
  using out = Out;
};
using mixes = testing::Types<mix<half, half, half>, mix<bfloat16, bfloat16, bfloat16>, mix<float, half, float>,
                             mix<float, bfloat16, float>, mix<half, float, bfloat16>, mix<bfloat16, half, float>,
                             mix<half, bfloat16, half>, mix<bfloat16, float, half>>;

template <class Mix>
class Differential16Bit : public testing::Test {};
TYPED_TEST_SUITE(Differential16Bit, mixes);

TYPED_TEST(Differential16Bit, SmallShapes) {
  run_random_cases<typename TypeParam::q, typename TypeParam::kv, typename TypeParam::out>(
      21, 150, [](random_engine& random) {
        return sizes{.batch = pick(random, 1, 2),
                     .kv_heads = pick(random, 1, 2),
                     .group = one_of<index_t>(random, {1, 2, 3}),
                     .q_len = pick(random, 0, 12),
                     .kv_len = pick(random, 0, 70),
                     .head_dim = pick(random, 1, 40),
                     .value_dim = pick(random, 1, 40)};
      });
}

TYPED_TEST(Differential16Bit, EdgesOfTilesAndBlocks) {
  run_random_cases<typename TypeParam::q, typename TypeParam::kv, typename TypeParam::out>(
      22, 16, [](random_engine& random) {
        return sizes{.group = one_of<index_t>(random, {1, 2, 8}),
                     .q_len = one_of<index_t>(random, {1, 48, 96, 97}),
                     .kv_len = one_of<index_t>(random, {63, 64, 65, 129, 300}),
                     .head_dim = pick(random, 1, 130),
                     .value_dim = pick(random, 1, 130)};
      });
}

}  // namespace
