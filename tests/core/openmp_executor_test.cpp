// SPDX-License-Identifier: Apache-2.0
// Compiled with -fopenmp, as a program of its own.
#include <gtest/gtest.h>
#include <posenc/core/openmp_executor.hpp>

#include <vector>

#include "core/executor_support.hpp"

namespace {

using posenc::index_t;

TEST(OpenmpExecutor, RunsEachOnce) {
  for (const int threads : {0, 1, 2, 5}) executor_test::expect_each_once(posenc::openmp_executor{threads});
}

TEST(OpenmpExecutor, Concurrency) {
  static_assert(posenc::executor<const posenc::openmp_executor>);
  posenc::openmp_executor own_choice, five{5};
  EXPECT_EQ(posenc::detail::concurrency_of(five), 5);
  EXPECT_EQ(posenc::detail::concurrency_of(own_choice), omp_get_max_threads());
}

TEST(OpenmpExecutor, HasFinishedWhenItReturns) {
  const posenc::openmp_executor executor{3};
  for (int round = 0; round < 50; ++round) {
    std::vector<int> plain(23, 0);
    executor.parallel_for(23, [&](index_t i) { plain[static_cast<std::size_t>(i)] = round; });
    EXPECT_EQ(plain, std::vector<int>(23, round));
  }
}

}  // namespace
