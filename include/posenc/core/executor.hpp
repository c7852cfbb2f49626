// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_CORE_EXECUTOR_HPP
#define POSENC_CORE_EXECUTOR_HPP

#include <concepts>
#include <type_traits>

#include "platform.hpp"

namespace posenc::inline POSENC_ABI {

namespace detail {
struct any_task {
  void operator()(index_t) const {}
};
}  // namespace detail

/// An object that runs f(0), f(1), ..., f(n - 1), in any order and on any threads, and returns when all are done.
/// It may also have `concurrency()`: how many of them run at once. Each costs scratch memory; without it, 16 are assumed
/// (to ask the machine would take a header that costs more to compile than all of this one's users).
/// Results never depend on the executor. The library's own tasks do not throw.
template <class X>
concept executor = requires(X& x, index_t n, detail::any_task f) { x.parallel_for(n, f); };

/// Runs everything on the calling thread; the default.
struct serial_executor {
  static constexpr index_t concurrency() noexcept { return 1; }

  template <class F>
  void parallel_for(index_t n, F&& f) const {
    for (index_t i = 0; i < n; ++i) f(i);
  }
};

namespace detail {
template <executor X>
index_t concurrency_of(X& x) {
  if constexpr (requires {
                  { x.concurrency() } -> std::convertible_to<index_t>;
                }) {
    const auto n = static_cast<index_t>(x.concurrency());
    return n < 1 ? 1 : n;
  } else {
    return 16;
  }
}

/// Runs f(first, last) over all steps, in pieces that are worth a task. For steps that are independent of each other: the
/// cut does not change a bit then.
template <executor X, class F>
void run_steps(index_t steps, index_t bytes_a_step, X& executor, F&& f) {
  constexpr index_t worth_a_task = 256 * 1024;
  const index_t piece = bytes_a_step > worth_a_task ? 1 : worth_a_task / (bytes_a_step < 1 ? 1 : bytes_a_step);
  const index_t tasks = (steps + piece - 1) / piece;
  if (tasks <= 1) {
    if (steps > 0) f(index_t{0}, steps);
    return;
  }
  executor.parallel_for(tasks, [&](index_t task) { f(task * piece, task + 1 < tasks ? (task + 1) * piece : steps); });
}
}  // namespace detail

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_CORE_EXECUTOR_HPP
