// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <posenc/core/eigen_executor.hpp>
#include <posenc/core/executor.hpp>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "core/executor_support.hpp"

namespace {

using posenc::index_t;

TEST(SerialExecutor, RunsInOrderOnTheCallingThread) {
  posenc::serial_executor serial;
  std::vector<index_t> seen;
  std::set<std::thread::id> threads;
  serial.parallel_for(5, [&](index_t i) {
    seen.push_back(i);
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(seen, (std::vector<index_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(threads, std::set<std::thread::id>{std::this_thread::get_id()});
  EXPECT_EQ(posenc::detail::concurrency_of(serial), 1);
}

TEST(SerialExecutor, RunsEachOnce) { executor_test::expect_each_once(posenc::serial_executor{}); }

class EigenExecutor : public testing::TestWithParam<int> {};

TEST_P(EigenExecutor, RunsEachOnce) {
  Eigen::ThreadPool pool(GetParam());
  posenc::eigen_executor executor(pool);
  EXPECT_EQ(posenc::detail::concurrency_of(executor), GetParam());
  executor_test::expect_each_once(executor);
}

// Everything is done when the call returns, and effects are visible to the caller.
TEST_P(EigenExecutor, HasFinishedWhenItReturns) {
  Eigen::ThreadPool pool(GetParam());
  const posenc::eigen_executor executor(pool);
  for (int round = 0; round < 40; ++round) {
    std::vector<int> plain(23, 0);  // not atomic: each entry is one task's
    executor.parallel_for(23, [&](index_t i) { plain[static_cast<std::size_t>(i)] = round; });
    EXPECT_EQ(plain, std::vector<int>(23, round));
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, EigenExecutor, testing::Values(1, 2, 3, 7));

// Two tasks that wait for each other: they can only finish if they run at once.
TEST(EigenExecutorPair, UsesTheCallingThreadAndTheOthers) {
  Eigen::ThreadPool pool(2);
  const posenc::eigen_executor executor(pool);
  std::atomic<int> arrived{0};
  executor.parallel_for(2, [&](index_t) {
    ++arrived;
    while (arrived.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived.load(), 2);
}

// An engine may run several requests on one pool, each of which calls the library with that pool: then every thread of it
// is inside of parallel_for, and none is left to start what the others have scheduled. In a process of its own, which an
// alarm ends if it hangs.
void call_from_every_thread_of_a_pool() {
  Eigen::ThreadPool pool(2);
  const posenc::eigen_executor executor(pool);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> calls{0}, arrived{0};
    Eigen::Barrier done(2);
    for (int t = 0; t < 2; ++t)
      pool.Schedule([&] {
        ++arrived;
        while (arrived.load() < 2) std::this_thread::yield();
        executor.parallel_for(4, [&](index_t) { ++calls; });
        done.Notify();
      });
    done.Wait();
    if (calls.load() != 8) std::_Exit(1);
  }
  std::_Exit(0);
}

TEST(EigenExecutorDeathTest, CalledFromEveryThreadOfThePool) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        alarm(60);
        call_from_every_thread_of_a_pool();
      },
      testing::ExitedWithCode(0), "");
}

#if defined(__cpp_exceptions)
// What a task throws on the calling thread comes out when nobody runs a task any more.
TEST(EigenExecutorPair, AnExceptionWaitsForTheOthers) {
  Eigen::ThreadPool pool(2);
  const posenc::eigen_executor executor(pool);
  const auto caller = std::this_thread::get_id();
  for (int round = 0; round < 10; ++round) {
    std::atomic<int> inside{0};
    std::atomic<bool> thrown{false};
    const auto task = [&](index_t) {
      if (std::this_thread::get_id() == caller) {
        while (inside == 0) std::this_thread::yield();
        thrown = true;
        throw 1;
      }
      ++inside;
      while (!thrown) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the exception is on its way meanwhile
      --inside;
    };
    EXPECT_THROW(executor.parallel_for(100, task), int);
    EXPECT_EQ(inside.load(), 0);
  }
}
#endif

// ---- a user's own ----

struct without_concurrency {
  template <class F>
  void parallel_for(index_t n, F&& f) {
    for (index_t i = n; i > 0; --i) f(i - 1);  // any order
  }
};
struct with_concurrency : without_concurrency {
  int threads;
  explicit with_concurrency(int n) : threads(n) {}
  int concurrency() const { return threads; }
};
struct misspelt {
  template <class F>
  void parallelFor(index_t, F&&) {}
};

TEST(OwnExecutor, ParallelForIsAllThatIsNeeded) {
  static_assert(posenc::executor<without_concurrency>);
  static_assert(posenc::executor<with_concurrency>);
  static_assert(posenc::executor<posenc::serial_executor> && posenc::executor<const posenc::serial_executor>);
  static_assert(posenc::executor<const posenc::eigen_executor>);
  static_assert(!posenc::executor<misspelt>);
  static_assert(!posenc::executor<int>);
  without_concurrency own;
  EXPECT_EQ(posenc::detail::concurrency_of(own), 16);
  for (const int n : {5, 1, 0, -3}) {
    with_concurrency stated(n);
    EXPECT_EQ(posenc::detail::concurrency_of(stated), n > 1 ? n : 1) << "at least one";
  }
  executor_test::expect_each_once(own);
}

}  // namespace
