// SPDX-License-Identifier: Apache-2.0
#include "attention/differential_support.hpp"

namespace {

using attention_test::chance;
using attention_test::index_t;
using attention_test::one_of;
using attention_test::pick;
using attention_test::random_engine;
using attention_test::run_random_cases;
using attention_test::sizes;

TEST(DifferentialDouble, SmallShapes) {
  run_random_cases<double, double, double>(11, 1500, [](random_engine& random) {
    return sizes{.batch = pick(random, 1, 3),
                 .kv_heads = pick(random, 1, 3),
                 .group = one_of<index_t>(random, {1, 2, 3}),
                 .q_len = pick(random, 0, 12),
                 .kv_len = pick(random, 0, 20),
                 .head_dim = pick(random, 1, 20),
                 .value_dim = pick(random, 1, 20)};
  });
}

TEST(DifferentialDouble, EdgesOfTilesAndBlocks) {
  run_random_cases<double, double, double>(12, 150, [](random_engine& random) {
    return sizes{.kv_heads = pick(random, 1, 2),
                 .group = one_of<index_t>(random, {1, 2, 4, 71}),
                 .q_len = one_of<index_t>(random, {1, 2, 48, 95, 96, 97}),
                 .kv_len = one_of<index_t>(random, {0, 1, 63, 64, 65, 129}),
                 .head_dim = pick(random, 1, 20),
                 .value_dim = pick(random, 1, 20)};
  });
}

TEST(DifferentialDouble, HeadDims) {
  run_random_cases<double, double, double>(13, 130, [dim = index_t{0}](random_engine& random) mutable {
    dim = dim % 130 + 1;
    return sizes{.group = pick(random, 1, 2),
                 .q_len = pick(random, 1, 9),
                 .kv_len = pick(random, 1, 70),
                 .head_dim = dim,
                 .value_dim = chance(random, 2) ? dim : pick(random, 1, 130)};
  });
}

TEST(DifferentialDouble, SplitKeys) {
  run_random_cases<double, double, double>(14, 12, [](random_engine& random) {
    return sizes{.kv_heads = pick(random, 1, 2),
                 .group = one_of<index_t>(random, {1, 3}),
                 .q_len = pick(random, 1, 2),
                 .kv_len = pick(random, 2000, 4400),
                 .head_dim = pick(random, 1, 16),
                 .value_dim = pick(random, 1, 16)};
  });
}

}  // namespace
