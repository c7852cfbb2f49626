// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTS_SUPPORT_EXPECT_ERROR_HPP
#define POSENC_TESTS_SUPPORT_EXPECT_ERROR_HPP

#include <gtest/gtest.h>
#include <posenc/core/error.hpp>

#include <csetjmp>
#include <optional>
#include <string>

namespace posenc_test {

/// What a statement raised: the error's code, argument and text.
struct raised_error {
  posenc::errc code;
  std::string argument;
  std::string text;
};

namespace detail {
inline raised_error describe(const posenc::error& e) { return {e.code(), e.argument(), e.what()}; }

#if !POSENC_EXCEPTIONS
// The handler has no argument of its own, so where to return to and what was raised live here. The text is copied by the
// handler, since the error object is gone after the jump.
inline std::jmp_buf jump_target;
inline std::optional<raised_error> jump_result;

[[noreturn]] inline void jump(const posenc::error& e) {
  jump_result = describe(e);
  std::longjmp(jump_target, 1);
}

// A function of its own, which keeps no variable across the jump.
template <class Statement>
__attribute__((noinline)) void run_until_raised(Statement& statement) {
  if (setjmp(jump_target) == 0) statement();
}
#endif
}  // namespace detail

/// Runs `statement()` and returns what it raised: thrown where exceptions are on; where they are off, taken from the
/// error handler, which jumps back here. Then destructors between here and the error do not run, which a test can bear.
template <class Statement>
std::optional<raised_error> error_of(Statement&& statement) {
#if POSENC_EXCEPTIONS
  try {
    statement();
  } catch (const posenc::error& e) {
    return detail::describe(e);
  }
  return std::nullopt;
#else
  detail::jump_result.reset();
  posenc::error_handler former = posenc::set_error_handler(detail::jump);
  detail::run_until_raised(statement);
  posenc::set_error_handler(former);
  return detail::jump_result;
#endif
}

inline const char* name_of(posenc::errc code) {
  switch (code) {
    case posenc::errc::invalid_value: return "invalid_value";
    case posenc::errc::invalid_shape: return "invalid_shape";
    case posenc::errc::out_of_range: return "out_of_range";
    case posenc::errc::invalid_layout: return "invalid_layout";
    case posenc::errc::mismatch: return "mismatch";
    case posenc::errc::stacked_scaling: return "stacked_scaling";
  }
  return "unknown";
}

/// The judgement of POSENC_EXPECT_ERROR.
template <class Statement>
testing::AssertionResult raises(Statement&& statement, const char* source, posenc::errc code, const std::string& text) {
  const std::optional<raised_error> raised = error_of(statement);
  if (!raised) return testing::AssertionFailure() << source << "\nraised no error; expected: " << name_of(code);
  if (raised->code != code) {
    return testing::AssertionFailure() << source << "\nraised:   " << name_of(raised->code)
                                       << "\nexpected: " << name_of(code) << "\ntext:     " << raised->text;
  }
  if (raised->text.find(text) == std::string::npos) {
    return testing::AssertionFailure() << source << "\ntext:     " << raised->text << "\nlacks:    " << text;
  }
  return testing::AssertionSuccess();
}

}  // namespace posenc_test

/// Expects that the statement raises a posenc::error with this code (posenc::errc::...) whose text contains `text`.
/// Works with and without exceptions. A statement with commas in braces goes in parentheses:
/// POSENC_EXPECT_ERROR((make(64, {.a = 1, .b = 2})), posenc::errc::invalid_value, "factor").
#define POSENC_EXPECT_ERROR(statement, code, text) \
  EXPECT_TRUE(::posenc_test::raises([&] { static_cast<void>(statement); }, #statement, code, text))

#endif  // POSENC_TESTS_SUPPORT_EXPECT_ERROR_HPP
