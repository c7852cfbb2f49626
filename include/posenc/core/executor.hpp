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
}  // namespace detail

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_CORE_EXECUTOR_HPP
