// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_CORE_SHARED_OBJECT_HPP
#define POSENC_CORE_SHARED_OBJECT_HPP

#include <atomic>
#include <utility>

#include "platform.hpp"

namespace posenc::inline POSENC_ABI::detail {

/// A constant object of any type, which copies share and the last of them destroys; copies may be made and dropped on any
/// thread. What std::shared_ptr<const void> is, without <memory>, which would make up a tenth of the library's compile time.
class shared_object {
 public:
  shared_object() = default;

  template <class T, class... Arguments>
  static shared_object make(Arguments&&... arguments) {
    shared_object result;
    auto* const made = new holder<T>(std::forward<Arguments>(arguments)...);
    result.header_ = made;
    result.object_ = &made->object;
    return result;
  }

  shared_object(const shared_object& other) noexcept : header_(other.header_), object_(other.object_) {
    if (header_ != nullptr) header_->owners.fetch_add(1, std::memory_order_relaxed);
  }
  shared_object(shared_object&& other) noexcept : header_(other.header_), object_(other.object_) {
    other.header_ = nullptr;
    other.object_ = nullptr;
  }
  shared_object& operator=(shared_object other) noexcept {
    std::swap(header_, other.header_);
    std::swap(object_, other.object_);
    return *this;
  }
  ~shared_object() {
    if (header_ != nullptr && header_->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) header_->destroy(header_);
  }

  /// The object; null if there is none.
  const void* get() const noexcept { return object_; }

 private:
  struct header {
    explicit header(void (*destroy_)(header*)) noexcept : destroy(destroy_) {}
    std::atomic<long> owners{1};
    void (*destroy)(header*);
  };
  template <class T>
  struct holder : header {
    template <class... Arguments>
    explicit holder(Arguments&&... arguments)
        : header([](header* h) { delete static_cast<holder*>(h); }), object(std::forward<Arguments>(arguments)...) {}
    T object;
  };

  header* header_ = nullptr;
  const void* object_ = nullptr;
};

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_CORE_SHARED_OBJECT_HPP
