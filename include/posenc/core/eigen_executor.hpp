// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_CORE_EIGEN_EXECUTOR_HPP
#define POSENC_CORE_EIGEN_EXECUTOR_HPP

#include <unsupported/Eigen/CXX11/ThreadPool>

#include <atomic>
#include <memory>

#include "executor.hpp"

namespace posenc::inline POSENC_ABI {

/// Runs on an Eigen thread pool, which the caller owns, and on the calling thread as one more worker.
class eigen_executor {
 public:
  explicit eigen_executor(Eigen::ThreadPoolInterface& pool) noexcept : pool_(&pool) {}

  index_t concurrency() const { return pool_->NumThreads(); }

  template <class F>
  void parallel_for(index_t n, F&& f) const {
    if (n <= 1 || concurrency() <= 1) {
      for (index_t i = 0; i < n; ++i) f(i);
      return;
    }
    // Whoever comes takes the next number. The call ends when all have been worked off, whether or not the pool has started
    // every helper by then: its threads may all be busy, waiting here themselves. Helpers that come later find nothing to
    // do, and nothing but `progress`, which they own a share of.
    struct progress {
      std::atomic<index_t> next{0}, finished{0};
    };
    const auto shared = std::make_shared<progress>();
    const auto work = [n, task = &f](progress& at) {
      for (index_t i = at.next.fetch_add(1); i < n; i = at.next.fetch_add(1)) {
        (*task)(i);
        if (at.finished.fetch_add(1) + 1 == n) at.finished.notify_all();
      }
    };
    const index_t helpers = (n < concurrency() ? n : concurrency()) - 1;
    for (index_t i = 0; i < helpers; ++i) pool_->Schedule([shared, work] { work(*shared); });
    work(*shared);
    for (index_t done = shared->finished.load(); done < n; done = shared->finished.load()) shared->finished.wait(done);
  }

 private:
  Eigen::ThreadPoolInterface* pool_;
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_CORE_EIGEN_EXECUTOR_HPP
