// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <posenc/core/error.hpp>
#include <posenc/core/finite.hpp>
#include <posenc/core/minus_infinity.hpp>

#include <bit>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <string>
#include <type_traits>

#include "support/expect_error.hpp"

namespace {

using posenc::errc;
using posenc::error;
using posenc::make_error;
using posenc::maybe_error;

TEST(Error, NamesArgumentValueAndRule) {
  const error e = make_error(errc::invalid_value, "factor", "is %g; allowed: a finite number > 0", -2.5);
  EXPECT_EQ(e.code(), errc::invalid_value);
  EXPECT_STREQ(e.argument(), "factor");
  EXPECT_STREQ(e.what(), "posenc: factor: is -2.5; allowed: a finite number > 0");
}

TEST(Error, IsAnExceptionThatCopiesWithoutThrowing) {
  static_assert(std::is_base_of_v<std::exception, error>);
  static_assert(std::is_nothrow_copy_constructible_v<error>);
  static_assert(noexcept(make_error(errc::mismatch, "a", "b")));
  const error first = make_error(errc::mismatch, "tokens", "has %d", 3);
  error second(errc::out_of_range, "other");
  EXPECT_STREQ(second.what(), "") << "never null";
  second = first;
  EXPECT_EQ(second.code(), errc::mismatch);
  EXPECT_STREQ(second.argument(), "tokens");
  EXPECT_STREQ(second.what(), "posenc: tokens: has 3");
}

// Too long a text is cut and stays a string.
TEST(Error, LongTextsAreCut) {
  const std::string argument(300, 'a'), rest(2000, 'x');
  const error e = make_error(errc::invalid_value, argument.c_str(), "is %s", rest.c_str());
  EXPECT_LT(std::strlen(e.what()), 700u);
  EXPECT_GT(std::strlen(e.what()), 300u);
  EXPECT_EQ(std::string(e.what()).rfind("posenc: aaaa", 0), 0u);
  EXPECT_LT(std::strlen(e.argument()), 100u);
  EXPECT_EQ(std::string(e.argument()).find_first_not_of('a'), std::string::npos);
}

TEST(Error, LongFormatsKeepTheirLastDirectiveWhole) {
  // Directives at every offset around the length that texts are cut at.
  for (std::size_t length = 400; length < 700; ++length) {
    const std::string format(length, 'y');
    const std::string all = format + "%lld end";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
    const error e = make_error(errc::invalid_value, "x", all.c_str(), 123456789LL);
#pragma GCC diagnostic pop
    const std::string expected = "posenc: x: " + format + "123456789 end", text = e.what();
    ASSERT_GT(text.size(), 350u) << text;
    ASSERT_EQ(expected.rfind(text, 0), 0u)
        << "the text is no beginning of the whole: ..." << text.substr(text.size() - 20);
  }
}

// Names can come from the caller (the name of an own scaling), so they are no formats.
TEST(Error, PercentSignsInTheArgumentAreText) {
  const error e = make_error(errc::stacked_scaling, "50%d and %s", "is %d", 7);
  EXPECT_STREQ(e.what(), "posenc: 50%d and %s: is 7");
  EXPECT_STREQ(e.argument(), "50%d and %s");
}

TEST(Raise, RaisesTheErrorItIsGiven) {
  POSENC_EXPECT_ERROR(posenc::raise(make_error(errc::out_of_range, "i", "is %d", 9)), errc::out_of_range, "i: is 9");
  POSENC_EXPECT_ERROR(posenc::raise_if(maybe_error(make_error(errc::mismatch, "b", "is odd"))), errc::mismatch,
                      "b: is odd");
  posenc::raise_if(maybe_error());  // nothing happens
}

// ---- the handler ----

int handler_calls = 0;
void count_calls(const error&) { ++handler_calls; }
void other_handler(const error&) {}

TEST(ErrorHandler, SettingReturnsTheFormerOne) {
  const posenc::error_handler outside = posenc::set_error_handler(count_calls);
  EXPECT_EQ(posenc::set_error_handler(other_handler), count_calls);
  EXPECT_EQ(posenc::set_error_handler(nullptr), other_handler);
  EXPECT_EQ(posenc::set_error_handler(outside), nullptr);
}

#if POSENC_EXCEPTIONS
TEST(ErrorHandler, IsNotCalledWhereExceptionsAreOn) {
  handler_calls = 0;
  const posenc::error_handler outside = posenc::set_error_handler(count_calls);
  POSENC_EXPECT_ERROR(posenc::raise(make_error(errc::mismatch, "a", "b")), errc::mismatch, "a: b");
  posenc::set_error_handler(outside);
  EXPECT_EQ(handler_calls, 0);
}

TEST(Raise, ThrowsAStandardException) {
  std::string text;
  try {
    posenc::raise(make_error(errc::mismatch, "a", "b"));
  } catch (const std::exception& e) {
    text = e.what();
  }
  EXPECT_EQ(text, "posenc: a: b");
}
#else
TEST(ErrorHandlerDeathTest, AbortsWithoutAHandlerAndAfterOneThatReturns) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(posenc::raise(make_error(errc::mismatch, "a", "b")), "");
  EXPECT_DEATH(
      {
        posenc::set_error_handler([](const error& e) { std::fprintf(stderr, "handler saw %s\n", e.what()); });
        posenc::raise(make_error(errc::mismatch, "a", "b"));
      },
      "handler saw posenc: a: b");
}
#endif

// ---- numbers that are looked at by their bits, in every floating-point mode ----

template <class T>
class Finite : public testing::Test {};
using real_types = testing::Types<float, double>;
TYPED_TEST_SUITE(Finite, real_types);

TYPED_TEST(Finite, ByBits) {
  using T = TypeParam;
  using bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  constexpr int mantissa = std::numeric_limits<T>::digits - 1;
  constexpr bits sign = bits{1} << (8 * sizeof(T) - 1), exponent = ((sign - 1) >> mantissa) << mantissa;
  const auto expect = [](bits b, bool finite, bool nan) {
    const T x = std::bit_cast<T>(b);
    EXPECT_EQ(posenc::detail::is_finite(x), finite) << std::hex << b;
    EXPECT_EQ(posenc::detail::is_nan(x), nan) << std::hex << b;
  };
  for (const bits s : {bits{0}, sign}) {
    expect(s, true, false);
    expect(s | 1, true, false);               // smallest denormal
    expect(s | (exponent - 1), true, false);  // largest number
    expect(s | exponent, false, false);       // infinity
    expect(s | exponent | 1, false, true);    // NaNs
    expect(s | exponent | (bits{1} << (mantissa - 1)), false, true);
    expect(s | (sign - 1), false, true);
  }
  T low;
  posenc::detail::set_minus_infinity(low);
  EXPECT_EQ(std::bit_cast<bits>(low), sign | exponent);
  EXPECT_TRUE(posenc::detail::is_minus_infinity(low));
  for (const bits b : {sign, sign | exponent | 1, exponent, sign | (exponent - 1)}) {
    const T other = std::bit_cast<T>(b);
    EXPECT_FALSE(posenc::detail::is_minus_infinity(other)) << std::hex << b;
  }
}

}  // namespace
