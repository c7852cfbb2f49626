// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTS_CORE_EXECUTOR_SUPPORT_HPP
#define POSENC_TESTS_CORE_EXECUTOR_SUPPORT_HPP

#include <gtest/gtest.h>
#include <posenc/core/executor.hpp>

#include <atomic>
#include <memory>
#include <utility>

namespace executor_test {

/// What every executor must do: f(0) ... f(n - 1), each once, also for no tasks and for fewer than it has threads.
template <class Executor>
void expect_each_once(Executor&& executor) {
  for (const posenc::index_t n : {0, 1, 2, 3, 8, 1000}) {
    const auto calls = std::make_unique<std::atomic<int>[]>(1000);
    for (int i = 0; i < 1000; ++i) calls[static_cast<std::size_t>(i)] = 0;
    std::atomic<int> outside{0};
    executor.parallel_for(n, [&](posenc::index_t i) {
      if (i < 0 || i >= n) {
        ++outside;
      } else {
        ++calls[static_cast<std::size_t>(i)];
      }
    });
    EXPECT_EQ(outside.load(), 0);
    for (posenc::index_t i = 0; i < 1000; ++i)
      EXPECT_EQ(calls[static_cast<std::size_t>(i)].load(), i < n ? 1 : 0) << i << " of " << n;
  }
}

}  // namespace executor_test

#endif  // POSENC_TESTS_CORE_EXECUTOR_SUPPORT_HPP
