// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_CORE_EIGEN_EXECUTOR_HPP
#define POSENC_CORE_EIGEN_EXECUTOR_HPP

#include <unsupported/Eigen/CXX11/ThreadPool>

#include <atomic>

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
    std::atomic<index_t> next{0};
    const auto work = [&] {
      for (index_t i = next.fetch_add(1); i < n; i = next.fetch_add(1)) f(i);
    };
    const index_t helpers = (n < concurrency() ? n : concurrency()) - 1;
    Eigen::Barrier done(static_cast<unsigned>(helpers));
    for (index_t i = 0; i < helpers; ++i)
      pool_->Schedule([&] {
        work();
        done.Notify();
      });
    work();
    done.Wait();
  }

 private:
  Eigen::ThreadPoolInterface* pool_;
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_CORE_EIGEN_EXECUTOR_HPP
