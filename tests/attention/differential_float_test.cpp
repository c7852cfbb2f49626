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

TEST(DifferentialFloat, SmallShapes) {
  run_random_cases<float, float, float>(1, 2500, [](random_engine& random) {
    return sizes{.batch = pick(random, 1, 3),
                 .kv_heads = pick(random, 1, 3),
                 .group = one_of<index_t>(random, {1, 1, 2, 3, 4, 8}),
                 .q_len = pick(random, 0, 12),
                 .kv_len = pick(random, 0, 20),
                 .head_dim = pick(random, 1, 20),
                 .value_dim = pick(random, 1, 20)};
  });
}

TEST(DifferentialFloat, EdgesOfTilesAndBlocks) {
  run_random_cases<float, float, float>(2, 300, [](random_engine& random) {
    return sizes{.batch = 1,
                 .kv_heads = pick(random, 1, 2),
                 .group = one_of<index_t>(random, {1, 1, 2, 3}),
                 .q_len = one_of<index_t>(random, {1, 2, 31, 32, 33, 48, 95, 96, 97}),
                 .kv_len = one_of<index_t>(random, {0, 1, 63, 64, 65, 129}),
                 .head_dim = pick(random, 1, 40),
                 .value_dim = pick(random, 1, 40)};
  });
}

TEST(DifferentialFloat, HeadDims) {
  run_random_cases<float, float, float>(3, 260, [dim = index_t{0}](random_engine& random) mutable {
    dim = dim % 130 + 1;
    return sizes{.kv_heads = 1,
                 .group = pick(random, 1, 2),
                 .q_len = pick(random, 1, 9),
                 .kv_len = pick(random, 1, 70),
                 .head_dim = dim,
                 .value_dim = chance(random, 2) ? dim : pick(random, 1, 130)};
  });
}

TEST(DifferentialFloat, ManyHeadsOnOneKvHead) {
  run_random_cases<float, float, float>(4, 60, [](random_engine& random) {
    return sizes{.batch = pick(random, 1, 2),
                 .kv_heads = 1,
                 .group = one_of<index_t>(random, {71, 71, 16, 33, 97}),
                 .q_len = pick(random, 1, 4),
                 .kv_len = pick(random, 1, 140),
                 .head_dim = pick(random, 1, 12),
                 .value_dim = pick(random, 1, 12)};
  });
}

TEST(DifferentialFloat, LargerShapes) {
  run_random_cases<float, float, float>(5, 24, [](random_engine& random) {
    return sizes{.batch = pick(random, 1, 2),
                 .kv_heads = pick(random, 1, 2),
                 .group = one_of<index_t>(random, {1, 2, 4}),
                 .q_len = one_of<index_t>(random, {96, 97, 200}),
                 .kv_len = one_of<index_t>(random, {200, 257, 300}),
                 .head_dim = pick(random, 1, 24),
                 .value_dim = pick(random, 1, 24)};
  });
}

// Few rows against many keys: the keys are split into ranges that are merged.
TEST(DifferentialFloat, SplitKeys) {
  run_random_cases<float, float, float>(6, 24, [](random_engine& random) {
    return sizes{.batch = 1,
                 .kv_heads = pick(random, 1, 2),
                 .group = one_of<index_t>(random, {1, 3, 8}),
                 .q_len = pick(random, 1, 2),
                 .kv_len = pick(random, 2000, 4400),
                 .head_dim = pick(random, 1, 16),
                 .value_dim = pick(random, 1, 16)};
  });
}

}  // namespace
