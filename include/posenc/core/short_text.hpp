// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_CORE_SHORT_TEXT_HPP
#define POSENC_CORE_SHORT_TEXT_HPP

#include <cstddef>
#include <cstring>

#include "platform.hpp"

namespace posenc::inline POSENC_ABI {

/// A text for people that lives in the object: making and copying one allocates nothing. What goes beyond 255 bytes is cut.
class short_text {
 public:
  short_text() = default;
  short_text(const char* text) noexcept { append(text); }  // NOLINT(google-explicit-constructor)

  const char* c_str() const noexcept POSENC_LIFETIME_BOUND { return text_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }

  short_text& append(const char* text) noexcept {
    for (; *text != '\0' && size_ + 1 < sizeof text_; ++text) text_[size_++] = *text;
    text_[size_] = '\0';
    return *this;
  }

  friend bool operator==(const short_text& a, const short_text& b) noexcept {
    return a.size_ == b.size_ && std::memcmp(a.text_, b.text_, a.size_) == 0;
  }

 private:
  std::size_t size_ = 0;
  char text_[256] = {};
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_CORE_SHORT_TEXT_HPP
