// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_BENCH_SUPPORT_BUFFER_HPP
#define POSENC_BENCH_SUPPORT_BUFFER_HPP

#include <posenc/core/platform.hpp>

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace posenc_bench {

using posenc::index_t;

/// Memory for benchmarks: at a multiple of 2 MiB and in huge pages where the system has them, so that page walks do not
/// blur what is measured; touched, so that no page is missing when the clock runs.
template <class T>
class buffer {
 public:
  buffer() = default;
  explicit buffer(index_t size) : size_(size) {
    const std::size_t bytes = (static_cast<std::size_t>(size) * sizeof(T) + page - 1) / page * page;
    void* memory = ::operator new(bytes, std::align_val_t(page));
#if defined(__linux__)
    madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    std::memset(memory, 0, bytes);
    data_.reset(static_cast<T*>(memory));
  }

  T* data() const noexcept { return data_.get(); }
  index_t size() const noexcept { return size_; }
  double bytes() const noexcept { return static_cast<double>(size_) * sizeof(T); }

  /// Numbers in [-1, 1), the same in every run, with as many bits as the type has: a kernel may have less to do for fewer.
  const buffer& fill(std::uint64_t seed = 1) const {
    for (index_t i = 0; i < size_; ++i) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      data_.get()[i] = static_cast<T>(static_cast<float>(static_cast<int>(seed >> 39) - (1 << 24)) * 0x1p-24f);
    }
    return *this;
  }

 private:
  static constexpr std::size_t page = std::size_t{2} << 20;
  struct release {
    void operator()(T* memory) const { ::operator delete(static_cast<void*>(memory), std::align_val_t(page)); }
  };
  index_t size_ = 0;
  std::unique_ptr<T, release> data_;
};

}  // namespace posenc_bench

#endif  // POSENC_BENCH_SUPPORT_BUFFER_HPP
