// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_LADDER_ARITHMETIC_HPP
#define POSENC_LADDER_ARITHMETIC_HPP

#include <cmath>
#include <cstdio>
#include <numbers>

#include "../core/platform.hpp"
#include "../core/short_text.hpp"

namespace posenc::inline POSENC_ABI::detail {

// A ladder is made once, so it is made carefully: in long double, rounded to double once at the end, and with the same
// bits whatever the caller's compiler flags are. Two ladders are compared by bits to decide whether cached keys fit.

/// What ladders are computed in. Where long double is double, results are good to a few units in the last place.
using wide = long double;

/// x itself, as something that the compiler knows nothing about. Neither -ffast-math (reciprocals, reassociation,
/// constant powers by exp and log) nor contraction to fused multiply-add reaches across it.
template <class Real>
inline Real settled(Real x) noexcept {
  __asm__ volatile("" : "+m"(x));
  return x;
}

template <class Real>
inline Real quotient(Real a, Real b) noexcept {
  return settled(settled(a) / settled(b));
}

template <class Real>
inline Real product(Real a, Real b) noexcept {
  return settled(settled(a) * settled(b));
}

template <class Real>
inline Real sum(Real a, Real b) noexcept {
  return settled(settled(a) + settled(b));
}

/// The same number.
constexpr wide widened(double x) noexcept { return static_cast<wide>(x); }

/// base^exponent.
inline wide power(wide base, wide exponent) noexcept { return settled(std::pow(settled(base), settled(exponent))); }

inline wide natural_log(wide x) noexcept { return settled(std::log(settled(x))); }

/// The one rounding at the end. Settled again, since -ffast-math would leave out a rounding whose result is widened later.
inline double rounded(wide x) noexcept { return settled(static_cast<double>(settled(x))); }

/// low * (1 - weight) + high * weight; exactly low at weight 0 and high at weight 1.
inline wide blend(wide low, wide high, wide weight) noexcept {
  return sum(product(low, sum(wide{1}, -weight)), product(high, weight));
}

inline constexpr wide two_pi = 2 * std::numbers::pi_v<wide>;

/// A number as people write it: whole numbers in full, others with six digits, a point whatever the locale.
inline void append_number(short_text& to, double x) noexcept {
  const double magnitude = x < 0 ? -x : x;
  char text[48];
  std::snprintf(text, sizeof text, magnitude < 1e15 && x == std::trunc(x) ? "%.0f" : "%.6g", x);
  // Whatever the locale has for a decimal point, of one byte or more, is one point.
  char* end = text;
  for (const char* c = text; *c != '\0'; ++c) {
    const bool ascii = (*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') || *c == '-' || *c == '+';
    if (ascii) {
      *end++ = *c;
    } else if (end == text || end[-1] != '.') {
      *end++ = '.';
    }
  }
  *end = '\0';
  to.append(text);
}

/// What a scaling was made with, for people: "factor 4, original 4096".
class parameter_text {
 public:
  parameter_text(const char* name, double x) noexcept { add(name, x); }

  parameter_text& add(const char* name, double x) noexcept {
    add(name);
    return join(" ", x);
  }
  parameter_text& add(const char* remark) noexcept {
    if (!text_.empty()) text_.append(", ");
    text_.append(remark);
    return *this;
  }
  /// A number that belongs to the last one.
  parameter_text& join(const char* word, double x) noexcept {
    text_.append(word);
    append_number(text_, x);
    return *this;
  }

  const short_text& text() const noexcept { return text_; }

 private:
  short_text text_;
};

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_LADDER_ARITHMETIC_HPP
