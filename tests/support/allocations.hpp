// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTS_SUPPORT_ALLOCATIONS_HPP
#define POSENC_TESTS_SUPPORT_ALLOCATIONS_HPP

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

/// Counts calls of operator new in the whole program. It replaces the operators, so one file of a program includes it.
namespace posenc_test {

inline std::atomic<long> allocation_count{0};

/// How often `f()` allocates.
template <class F>
long allocations_of(F&& f) {
  const long before = allocation_count.load();
  f();
  return allocation_count.load() - before;
}

namespace detail {
inline void* counted_allocation(std::size_t size, std::size_t alignment) noexcept {
  ++allocation_count;
  if (size == 0) size = 1;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(size);
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}
inline void* counted_or_abort(std::size_t size, std::size_t alignment) noexcept {
  void* const p = counted_allocation(size, alignment);
  if (p == nullptr) std::abort();
  return p;
}
}  // namespace detail

}  // namespace posenc_test

__attribute__((noinline)) void* operator new(std::size_t size) {
  return posenc_test::detail::counted_or_abort(size, 1);
}
__attribute__((noinline)) void* operator new[](std::size_t size) {
  return posenc_test::detail::counted_or_abort(size, 1);
}
__attribute__((noinline)) void* operator new(std::size_t size, std::align_val_t alignment) {
  return posenc_test::detail::counted_or_abort(size, static_cast<std::size_t>(alignment));
}
__attribute__((noinline)) void* operator new[](std::size_t size, std::align_val_t alignment) {
  return posenc_test::detail::counted_or_abort(size, static_cast<std::size_t>(alignment));
}
__attribute__((noinline)) void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return posenc_test::detail::counted_allocation(size, 1);
}
__attribute__((noinline)) void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return posenc_test::detail::counted_allocation(size, 1);
}
__attribute__((noinline)) void operator delete(void* p) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete[](void* p) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete(void* p, std::size_t) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }

#endif  // POSENC_TESTS_SUPPORT_ALLOCATIONS_HPP
