// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_WORKSPACE_HPP
#define POSENC_ATTENTION_WORKSPACE_HPP

#include <cstddef>
#include <cstring>
#include <new>
#include <utility>

#include "../core/platform.hpp"

namespace posenc::inline POSENC_ABI {

namespace detail {

/// Numbers at a multiple of 64 bytes, so that no register that is loaded from them lies in two cache lines.
struct aligned_delete {
  static constexpr std::align_val_t alignment{64};
  void operator()(void* data) const noexcept { ::operator delete(data, alignment); }
};
template <class T>
class aligned_array {
 public:
  aligned_array() = default;
  explicit aligned_array(T* data) noexcept : data_(data) {}
  aligned_array(aligned_array&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  aligned_array& operator=(aligned_array&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~aligned_array() { aligned_delete{}(data_); }

  T* get() const noexcept { return data_; }

 private:
  T* data_ = nullptr;
};

/// n numbers that the caller writes before reading them.
template <class T>
aligned_array<T> make_aligned_array(index_t n) {
  return aligned_array<T>(
      static_cast<T*>(::operator new(static_cast<std::size_t>(n) * sizeof(T), aligned_delete::alignment)));
}

/// Growing memory, at a multiple of 64 bytes. It grows by half at least, so that needs that grow slowly allocate rarely.
class growing_buffer {
 public:
  growing_buffer() = default;
  growing_buffer(growing_buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  growing_buffer& operator=(growing_buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~growing_buffer() { aligned_delete{}(data_); }

  /// Room for so many bytes, of which the first `kept` stay as they are.
  std::byte* reserve(index_t bytes, index_t kept = 0) {
    if (bytes <= size_) return data_;
    const index_t room = bytes > size_ + size_ / 2 ? bytes : size_ + size_ / 2;
    if (kept == 0) {
      aligned_delete{}(std::exchange(data_, nullptr));
      size_ = 0;
    }
    auto* const grown =
        static_cast<std::byte*>(::operator new(static_cast<std::size_t>(room), aligned_delete::alignment));
    if (kept > 0) std::memcpy(grown, data_, static_cast<std::size_t>(kept));
    aligned_delete{}(std::exchange(data_, grown));
    size_ = room;
    return data_;
  }
  index_t size() const noexcept { return size_; }

 private:
  std::byte* data_ = nullptr;
  index_t size_ = 0;
};

}  // namespace detail

/// Memory that attention works in. Passed from call to call, it grows to the largest need and is then reused. With room for
/// the largest call from the start (`workspace_size` says how much that is), no call allocates. One workspace serves one
/// call at a time.
class workspace {
 public:
  workspace() = default;
  /// Holds so many bytes from the start.
  explicit workspace(index_t bytes) { reserve(bytes); }

  /// Makes it hold so many bytes at least.
  void reserve(index_t bytes) { bytes_.reserve(bytes); }
  /// Bytes held.
  index_t size() const noexcept { return bytes_.size(); }

  /// For the library: so many bytes, of which the first `kept` are as they were.
  std::byte* take(index_t bytes, index_t kept = 0) { return bytes_.reserve(bytes, kept); }

 private:
  detail::growing_buffer bytes_;
};

namespace detail {

/// Hands out pieces of a workspace, each at a multiple of 64 bytes. With a null base it only counts.
class bump_allocator {
 public:
  explicit bump_allocator(std::byte* base) noexcept : base_(base) {}

  template <class T>
  T* take(index_t count) noexcept {
    std::byte* at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (count * static_cast<index_t>(sizeof(T)) + 63) / 64 * 64;
    return reinterpret_cast<T*>(at);
  }
  index_t used() const noexcept { return used_; }

 private:
  std::byte* base_;
  index_t used_ = 0;
};

}  // namespace detail

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ATTENTION_WORKSPACE_HPP
