// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_CORE_OPENMP_EXECUTOR_HPP
#define POSENC_CORE_OPENMP_EXECUTOR_HPP

#if !defined(_OPENMP)
#error "posenc/core/openmp_executor.hpp needs OpenMP: compile with -fopenmp, or use another executor"
#endif

#include <omp.h>

#include "executor.hpp"

namespace posenc::inline POSENC_ABI {

/// Runs on OpenMP's threads. `threads` is how many; 0 means OpenMP's own choice.
struct openmp_executor {
  int threads = 0;

  index_t concurrency() const { return threads > 0 ? threads : omp_get_max_threads(); }

  template <class F>
  void parallel_for(index_t n, F&& f) const {
    const int count = static_cast<int>(concurrency());
#pragma omp parallel for schedule(dynamic, 1) num_threads(count)
    for (index_t i = 0; i < n; ++i) f(i);
  }
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_CORE_OPENMP_EXECUTOR_HPP
