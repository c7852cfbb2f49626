// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_CORE_NUMBER_LIST_HPP
#define POSENC_CORE_NUMBER_LIST_HPP

#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <type_traits>

#include "platform.hpp"

namespace posenc::inline POSENC_ABI::detail {

/// Memory that one object owns, at a multiple of 64 bytes. It grows; copies are copies.
class growing_bytes {
 public:
  growing_bytes() = default;
  growing_bytes(const growing_bytes& other) {
    if (other.size_ != 0) std::memcpy(extend(other.size_), other.data_, other.size_);
  }
  growing_bytes(growing_bytes&& other) noexcept { swap(other); }
  growing_bytes& operator=(growing_bytes other) noexcept {
    swap(other);
    return *this;
  }
  ~growing_bytes() { ::operator delete(data_, alignment); }

  void* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

  /// The first of `bytes` more, all of them zero.
  void* extend(std::size_t bytes) {
    if (bytes > reserved_ - size_) {
      const std::size_t wanted = bytes > most - size_ ? most : size_ + bytes;
      const std::size_t larger = size_ == 0 || wanted > 2 * size_ ? wanted : 2 * size_;
      void* const grown = ::operator new(larger, alignment);
      if (size_ != 0) std::memcpy(grown, data_, size_);
      ::operator delete(data_, alignment);
      data_ = grown;
      reserved_ = larger;
    }
    void* const first = static_cast<char*>(data_) + size_;
    if (bytes != 0) std::memset(first, 0, bytes);
    size_ += bytes;
    return first;
  }

  void clear() noexcept { size_ = 0; }

  /// So many cannot be had: for a count whose bytes cannot be counted.
  static constexpr std::size_t most = static_cast<std::size_t>(-1) / 2;

 private:
  static constexpr std::align_val_t alignment{64};

  void swap(growing_bytes& other) noexcept {
    void* const data = data_;
    const std::size_t size = size_, reserved = reserved_;
    data_ = other.data_;
    size_ = other.size_;
    reserved_ = other.reserved_;
    other.data_ = data;
    other.size_ = size;
    other.reserved_ = reserved;
  }

  void* data_ = nullptr;
  std::size_t size_ = 0, reserved_ = 0;
};

/// Numbers that one object owns: the part of std::vector that the library's own objects need, with the same names. A vector
/// of one more type costs a compiler some twenty milliseconds, in every file that includes the library; this one nothing
/// that could be measured, since what it does is done once for all types.
template <class T>
class number_list {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 64);

 public:
  number_list() = default;
  /// `count` zeros.
  explicit number_list(std::size_t count) { extend(count); }
  number_list(const T* first, std::size_t count) { append(first, count); }

  T* data() noexcept { return static_cast<T*>(bytes_.data()); }
  const T* data() const noexcept { return static_cast<const T*>(bytes_.data()); }
  std::size_t size() const noexcept { return bytes_.size() / sizeof(T); }
  bool empty() const noexcept { return bytes_.size() == 0; }
  T& operator[](std::size_t i) noexcept { return data()[i]; }
  const T& operator[](std::size_t i) const noexcept { return data()[i]; }
  T& back() noexcept { return data()[size() - 1]; }
  T* begin() noexcept { return data(); }
  T* end() noexcept { return data() + size(); }
  const T* begin() const noexcept { return data(); }
  const T* end() const noexcept { return data() + size(); }

  /// Memory is kept.
  void clear() noexcept { bytes_.clear(); }

  std::span<const T> view() const noexcept { return {data(), size()}; }

  /// The first of `count` more, all zero.
  T* extend(std::size_t count) {
    return static_cast<T*>(
        bytes_.extend(count > growing_bytes::most / sizeof(T) ? growing_bytes::most : count * sizeof(T)));
  }
  void append(const T* first, std::size_t count) {
    T* const to = extend(count);
    for (std::size_t i = 0; i < count; ++i) to[i] = first[i];
  }
  void push_back(const T& x) {
    const T copy = x;  // x may be one of them
    *extend(1) = copy;
  }

 private:
  growing_bytes bytes_;
};

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_CORE_NUMBER_LIST_HPP
