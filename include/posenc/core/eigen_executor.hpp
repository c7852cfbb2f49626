// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_CORE_EIGEN_EXECUTOR_HPP
#define POSENC_CORE_EIGEN_EXECUTOR_HPP

#include <unsupported/Eigen/CXX11/ThreadPool>

#include <atomic>
#include <memory>

#include "executor.hpp"

namespace posenc::inline POSENC_ABI {

/// Runs on an Eigen thread pool, which the caller owns, and on the calling thread as one more worker. It may be called from
/// the pool's own threads. What a task throws on the calling thread comes out when all others have ended; on a thread of the
/// pool it ends the program.
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
    // Whoever comes takes the next number. The call ends when none is left and nobody is inside of f any more, whether or
    // not the pool has started every helper by then: its threads may all be busy, waiting here themselves. Helpers that
    // come later find nothing to do, and nothing but `progress`, which they own a share of. The same if f throws.
    struct progress {
      std::atomic<index_t> next{0}, inside{0};
    };
    struct guard {
      progress& at;
      index_t n;
      ~guard() {
        at.next = n;
        for (index_t others = at.inside; others != 0; others = at.inside) at.inside.wait(others);
      }
    };
    const auto shared = std::make_shared<progress>();
    const index_t helpers = (n < concurrency() ? n : concurrency()) - 1;
    const guard wait{*shared, n};
    for (index_t helper = 0; helper < helpers; ++helper)
      pool_->Schedule([shared, n, task = &f] {
        shared->inside.fetch_add(1);
        for (index_t i = shared->next.fetch_add(1); i < n; i = shared->next.fetch_add(1)) (*task)(i);
        shared->inside.fetch_sub(1);
        shared->inside.notify_all();
      });
    for (index_t i = shared->next.fetch_add(1); i < n; i = shared->next.fetch_add(1)) f(i);
  }

 private:
  Eigen::ThreadPoolInterface* pool_;
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_CORE_EIGEN_EXECUTOR_HPP
