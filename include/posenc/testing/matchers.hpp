// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTING_MATCHERS_HPP
#define POSENC_TESTING_MATCHERS_HPP

#include <gmock/gmock-matchers.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../core/as_view.hpp"
#include "../core/dtype.hpp"
#include "../core/eigen.hpp"
#include "../core/error.hpp"
#include "../core/finite.hpp"

/// Matchers for GoogleTest (EXPECT_THAT). They are the only part of the library that needs GoogleTest and gmock's
/// headers; nothing has to be linked beyond GoogleTest itself. They compose with gmock's own, as in Not(all_finite()).
namespace posenc::inline POSENC_ABI::testing {

namespace detail {

/// The numbers of a view, [batch][heads][tokens][dim], or of a range, as doubles, with their extents.
struct flat_numbers {
  std::vector<index_t> extents;
  std::vector<double> values;
  std::vector<std::uint64_t> bits;

  template <class T>
  void add(const T& x) {
    using bare = std::remove_cv_t<T>;
    if constexpr (scalar<bare>) {
      values.push_back(static_cast<double>(static_cast<compute_type<bare>>(x)));
    } else {
      values.push_back(static_cast<double>(x));
    }
    std::uint64_t pattern = 0;
    std::memcpy(&pattern, &x, sizeof(bare) < sizeof pattern ? sizeof(bare) : sizeof pattern);
    bits.push_back(pattern);
  }

  /// "[0, 1, 4, 2]" for a view, "[7]" for a range.
  std::string place(std::size_t at) const {
    std::string text = "[";
    for (std::size_t axis = 0; axis < extents.size(); ++axis) {
      std::size_t below = 1;
      for (std::size_t i = axis + 1; i < extents.size(); ++i) below *= static_cast<std::size_t>(extents[i]);
      text += (axis == 0 ? "" : ", ") + std::to_string(at / below % static_cast<std::size_t>(extents[axis]));
    }
    return text + "]";
  }
};

/// Like std::span and std::vector, which have no view of their own.
template <class X>
flat_numbers flat(const X& x) {
  flat_numbers result;
  if constexpr (viewable<const X>) {
    const auto view = as_view(x);
    for (std::size_t axis = 0; axis < 4; ++axis) result.extents.push_back(view.extent(axis));
    for (index_t b = 0; b < view.batch(); ++b)
      for (index_t h = 0; h < view.heads(); ++h)
        for (index_t t = 0; t < view.tokens(); ++t)
          for (index_t d = 0; d < view.dim(); ++d) result.add(view(b, h, t, d));
  } else {
    for (const auto& element : x) result.add(element);
    result.extents.push_back(static_cast<index_t>(result.values.size()));
  }
  return result;
}

inline std::string extents_text(const std::vector<index_t>& extents) {
  std::string text = "[";
  for (std::size_t i = 0; i < extents.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(extents[i]);
  return text + "]";
}

inline std::string number_text(const double& x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", x);
  return text;
}

/// Two sides of different kinds (a view and a range) are compared by their number of elements only.
inline bool same_shape(const flat_numbers& actual, const flat_numbers& expected,
                       ::testing::MatchResultListener* listener) {
  const bool comparable = actual.extents.size() == expected.extents.size();
  if (comparable ? actual.extents == expected.extents : actual.values.size() == expected.values.size()) return true;
  *listener << "which has extents " << extents_text(actual.extents) << " instead of " << extents_text(expected.extents);
  return false;
}

inline bool same_bits(const double& a, const double& b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

class near_matcher {
 public:
  using is_gtest_matcher = void;

  near_matcher(flat_numbers expected, double absolute, double relative)
      : expected_(std::move(expected)), absolute_(absolute), relative_(relative) {}

  template <class X>
  bool MatchAndExplain(const X& x, ::testing::MatchResultListener* listener) const {
    const flat_numbers actual = flat(x);
    if (!same_shape(actual, expected_, listener)) return false;
    std::size_t wrong = 0, worst = 0;
    double excess = -1;
    for (std::size_t i = 0; i < expected_.values.size(); ++i) {
      const double off = excess_of(actual.values[i], expected_.values[i]);
      if (off <= 1) continue;
      ++wrong;
      if (off > excess) {
        excess = off;
        worst = i;
      }
    }
    if (wrong == 0) return true;
    *listener << "of which " << wrong << " of " << expected_.values.size() << " elements are off, most of all element "
              << actual.place(worst) << ": " << number_text(actual.values[worst]) << " instead of "
              << number_text(expected_.values[worst]) << ", a deviation of "
              << number_text(std::abs(actual.values[worst] - expected_.values[worst])) << " where "
              << number_text(bound(expected_.values[worst])) << " is allowed";
    return false;
  }
  void DescribeTo(std::ostream* os) const { describe(os, "is"); }
  void DescribeNegationTo(std::ostream* os) const { describe(os, "is not"); }

 private:
  double bound(const double& expected) const { return absolute_ + relative_ * std::abs(expected); }

  /// Deviation over bound; infinities must be the same, NaN is never near.
  double excess_of(const double& actual, const double& expected) const {
    constexpr double far_off = 1e300;
    const bool finite = posenc::detail::is_finite(actual) && posenc::detail::is_finite(expected);
    if (!finite) return !posenc::detail::is_nan(actual) && same_bits(actual, expected) ? 0 : far_off;
    const double off = std::abs(actual - expected);
    if (off == 0) return 0;
    return bound(expected) > 0 ? off / bound(expected) : far_off;
  }
  void describe(std::ostream* os, const char* verb) const {
    *os << verb << " within " << number_text(absolute_);
    if (relative_ > 0) *os << " + " << number_text(relative_) << " |expected|";
    *os << " of " << expected_.values.size() << " expected numbers, element by element";
  }

  flat_numbers expected_;
  double absolute_, relative_;
};

class bits_matcher {
 public:
  using is_gtest_matcher = void;

  explicit bits_matcher(flat_numbers expected) : expected_(std::move(expected)) {}

  template <class X>
  bool MatchAndExplain(const X& x, ::testing::MatchResultListener* listener) const {
    const flat_numbers actual = flat(x);
    if (!same_shape(actual, expected_, listener)) return false;
    for (std::size_t i = 0; i < expected_.bits.size(); ++i) {
      if (actual.bits[i] == expected_.bits[i]) continue;
      *listener << "whose element " << actual.place(i) << " is " << number_text(actual.values[i]) << " instead of "
                << number_text(expected_.values[i]);
      return false;
    }
    return true;
  }
  void DescribeTo(std::ostream* os) const { *os << "has the expected bits in every element"; }
  void DescribeNegationTo(std::ostream* os) const { *os << "differs from the expected bits in some element"; }

 private:
  flat_numbers expected_;
};

class finite_matcher {
 public:
  using is_gtest_matcher = void;

  template <class X>
  bool MatchAndExplain(const X& x, ::testing::MatchResultListener* listener) const {
    const flat_numbers actual = flat(x);
    for (std::size_t i = 0; i < actual.values.size(); ++i) {
      if (posenc::detail::is_finite(actual.values[i])) continue;
      *listener << "whose element " << actual.place(i) << " is " << number_text(actual.values[i]);
      return false;
    }
    return true;
  }
  void DescribeTo(std::ostream* os) const { *os << "has neither NaN nor infinities"; }
  void DescribeNegationTo(std::ostream* os) const { *os << "has a NaN or an infinity"; }
};

/// Looks at an error, or at the optional one that a check returned.
class error_matcher {
 public:
  using is_gtest_matcher = void;

  explicit error_matcher(std::string argument) : argument_(std::move(argument)) {}
  error_matcher(errc code, std::string argument) : argument_(std::move(argument)), has_code_(true), code_(code) {}

  bool MatchAndExplain(const maybe_error& e, ::testing::MatchResultListener* listener) const {
    if (e) return MatchAndExplain(*e, listener);
    *listener << "which is no error";
    return false;
  }
  bool MatchAndExplain(const error& e, ::testing::MatchResultListener* listener) const {
    *listener << "which is \"" << e.what() << "\"";
    // The name is in the text, too, since people read that.
    return argument_ == e.argument() && std::string(e.what()).find(argument_) != std::string::npos &&
           (!has_code_ || e.code() == code_);
  }
  void DescribeTo(std::ostream* os) const { describe(os, "is an error that names "); }
  void DescribeNegationTo(std::ostream* os) const { describe(os, "is not an error that names "); }

 private:
  void describe(std::ostream* os, const char* text) const {
    *os << text << argument_;
    if (has_code_) *os << " and has code " << static_cast<int>(code_);
  }

  std::string argument_;
  bool has_code_ = false;
  errc code_ = errc::invalid_value;
};

class no_error_matcher {
 public:
  using is_gtest_matcher = void;

  bool MatchAndExplain(const maybe_error& e, ::testing::MatchResultListener* listener) const {
    if (e) *listener << "which is \"" << e->what() << "\"";
    return !e;
  }
  void DescribeTo(std::ostream* os) const { *os << "is no error"; }
  void DescribeNegationTo(std::ostream* os) const { *os << "is an error"; }
};

}  // namespace detail

/// Every element is within `absolute` + `relative` * |expected| of the expected one. Either side is anything that has a
/// view (Eigen matrices included) or a range of numbers (vector, span, array), of any element type. Extents must be
/// equal. Infinities match themselves; NaN matches nothing. Which element is farthest off stands in the message.
///
///     EXPECT_THAT(out, all_near(expected, 2e-6));
template <class X>
detail::near_matcher all_near(const X& expected, const double& absolute, const double& relative = 0) {
  return {detail::flat(expected), absolute, relative};
}

/// Every element has exactly the bits of the expected one: -0 is not 0, and a NaN matches itself.
template <class X>
detail::bits_matcher same_bits_as(const X& expected) {
  return detail::bits_matcher(detail::flat(expected));
}

/// No element is NaN or infinite.
inline detail::finite_matcher all_finite() { return {}; }

/// An `error`, or a `maybe_error` that holds one, which names this argument, in argument() and in its text:
///
///     EXPECT_THAT(check(q, k, v, out, tokens, rope, causal{}), error_names("tokens.q"));
inline detail::error_matcher error_names(std::string argument) { return detail::error_matcher(std::move(argument)); }

/// The same, with its code.
inline detail::error_matcher error_names(errc code, std::string argument) { return {code, std::move(argument)}; }

/// A `maybe_error` that is empty.
inline detail::no_error_matcher no_error() { return {}; }

}  // namespace posenc::inline POSENC_ABI::testing

namespace posenc::inline POSENC_ABI {
/// What GoogleTest prints for them.
inline void PrintTo(const error& e, std::ostream* os) { *os << e.what(); }
}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_TESTING_MATCHERS_HPP
