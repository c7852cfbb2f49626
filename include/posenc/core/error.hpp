// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_CORE_ERROR_HPP
#define POSENC_CORE_ERROR_HPP

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include "platform.hpp"

namespace posenc::inline POSENC_ABI {

/// What kind of mistake an `error` reports.
enum class errc {
  invalid_value,   ///< a parameter outside its range, or NaN
  invalid_shape,   ///< an extent, a width or a count that does not fit
  out_of_range,    ///< a position outside a table
  invalid_layout,  ///< null data, a stride that is not allowed, overlapping buffers
  mismatch,        ///< two arguments that contradict each other
  stacked_scaling  ///< two context extensions on one ladder
};

/// A mistake in the arguments of a call. The text names the argument, its value and what is allowed.
/// It lives in the object, so making one allocates nothing; `what()` is never null.
class error : public std::exception {
 public:
  error(errc code, const char* argument) noexcept : code_(code) {
    std::snprintf(argument_, sizeof argument_, "%s", argument);
    text_[0] = '\0';
  }

  errc code() const noexcept { return code_; }

  /// The name of the argument at fault, as the documentation of the called function spells it.
  const char* argument() const noexcept { return argument_; }

  const char* what() const noexcept override { return text_; }

  /// Makes the text "posenc: <argument>: <formatted>". `format` and its arguments are printf's; longer texts are cut.
  __attribute__((format(printf, 2, 0))) void set_text(const char* format, std::va_list arguments) noexcept {
    const int used = std::snprintf(text_, sizeof text_, "posenc: %s: ", argument_);
    const auto start = used < 0 ? 0u : static_cast<std::size_t>(used);
    if (start < sizeof text_) std::vsnprintf(text_ + start, sizeof text_ - start, format, arguments);
  }

 private:
  errc code_;
  char argument_[64];
  char text_[640];
};

/// Makes an `error` whose text is "posenc: <argument>: <formatted>". The format should give the value and what is allowed.
__attribute__((format(printf, 3, 4))) inline error make_error(errc code, const char* argument, const char* format,
                                                              ...) noexcept {
  error result(code, argument);
  std::va_list arguments;
  va_start(arguments, format);
  result.set_text(format, arguments);
  va_end(arguments);
  return result;
}

/// The result of a check: empty means that the arguments are good. It is used like std::optional<error>; the library makes
/// one in some two hundred places, and a compiler needs a tenth of the time for this one.
class maybe_error {
 public:
  maybe_error() noexcept : has_value_(false) {}
  maybe_error(const error& what) noexcept : has_value_(true) {  // NOLINT(google-explicit-constructor)
    ::new (static_cast<void*>(&error_)) error(what);
  }
  maybe_error(const maybe_error& other) noexcept : has_value_(other.has_value_) {
    if (has_value_) ::new (static_cast<void*>(&error_)) error(other.error_);
  }
  maybe_error& operator=(const maybe_error& other) noexcept {
    if (this == &other) return *this;
    if (has_value_) error_.~error();
    has_value_ = other.has_value_;
    if (has_value_) ::new (static_cast<void*>(&error_)) error(other.error_);
    return *this;
  }
  ~maybe_error() {
    if (has_value_) error_.~error();
  }

  bool has_value() const noexcept { return has_value_; }
  explicit operator bool() const noexcept { return has_value_; }
  const error& operator*() const noexcept POSENC_LIFETIME_BOUND { return error_; }
  const error* operator->() const noexcept POSENC_LIFETIME_BOUND { return &error_; }

 private:
  union {
    error error_;
  };
  bool has_value_;
};

/// What is called instead of throwing where exceptions are off. It must not return; if it does, the program aborts.
using error_handler = void (*)(const error&);

namespace detail {
inline error_handler& current_error_handler() noexcept {
  static error_handler handler = nullptr;
  return handler;
}
}  // namespace detail

/// Sets the handler for builds without exceptions and returns the former one. Without a handler the program aborts.
/// With exceptions on, the handler is never called.
inline error_handler set_error_handler(error_handler handler) noexcept {
  error_handler former = detail::current_error_handler();
  detail::current_error_handler() = handler;
  return former;
}

/// Reports an error in the way of this build: throws it, or calls the handler and aborts.
[[noreturn]] POSENC_NOINLINE inline void raise(const error& what) {
#if POSENC_EXCEPTIONS
  throw what;
#else
  if (error_handler handler = detail::current_error_handler()) handler(what);
  std::abort();
#endif
}

/// Raises the error, if there is one.
inline void raise_if(const maybe_error& what) {
  if (what) raise(*what);
}

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_CORE_ERROR_HPP
