// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTS_SIMD_ACCURACY_HPP
#define POSENC_TESTS_SIMD_ACCURACY_HPP

#include <posenc/simd/simd.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

namespace posenc_test {

/// Bits of a number as an unsigned integer. The reference keeps compilers from assuming that x is finite.
template <class T>
using bits_of = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

template <class T>
bits_of<T> bits(const T& x) {
  return std::bit_cast<bits_of<T>>(x);
}
template <class T>
T number(bits_of<T> b) {
  return std::bit_cast<T>(b);
}

template <class T>
inline constexpr bits_of<T> sign_bit = bits_of<T>{1} << (sizeof(T) * 8 - 1);
template <class T>
inline constexpr bits_of<T> infinity_bits =
    sizeof(T) == 4 ? bits_of<T>{0x7f80'0000} : static_cast<bits_of<T>>(0x7ff0'0000'0000'0000);

/// What oracles compute in.
template <class T>
using wide_of = std::conditional_t<sizeof(T) == 4, double, long double>;

/// Whether arithmetic of this process flushes denormal results to zero, as -ffast-math sets up on some platforms.
template <class T>
bool flushes_denormals() {
  volatile T smallest = (std::numeric_limits<T>::min)();
  volatile T half = smallest * T(0.5);
  const T result = half;
  return (bits<T>(result) & ~sign_bit<T>) == 0;
}

/// |y - exact| in units of the last place that a T of the size of `exact` has (that of the smallest normal number
/// below).
template <class T>
double ulps(T y, wide_of<T> exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);  // |exact| is in [2^(exponent - 1), 2^exponent)
  if (exponent < std::numeric_limits<T>::min_exponent) exponent = std::numeric_limits<T>::min_exponent;
  const wide_of<T> difference = static_cast<wide_of<T>>(y) - exact;
  return static_cast<double>(
      std::ldexp(difference < 0 ? -difference : difference, std::numeric_limits<T>::digits - exponent));
}

/// The bits of f(x) for the number x with these bits, through all lanes of a register. Bits, since with -ffast-math
/// compilers assume that no function returns infinities and NaN.
template <class T, class F>
bits_of<T> bits_at(F f, bits_of<T> x) {
  T lanes[posenc::simd::vec<T>::lanes];
  for (T& lane : lanes) std::memcpy(&lane, &x, sizeof x);
  posenc::simd::store(lanes, f(posenc::simd::load(lanes)));
  for (const T& lane : lanes)
    if (bits<T>(lane) != bits<T>(lanes[0])) return infinity_bits<T> + 0x123;  // lanes differ: a NaN of its own
  return bits<T>(lanes[0]);
}
template <class T, class F>
T at_one(F f, T x) {
  return number<T>(bits_at<T>(f, bits<T>(x)));
}

template <class T>
bool is_nan_bits(bits_of<T> b) {
  return (b & ~sign_bit<T>) > infinity_bits<T>;
}
/// Quiet and signalling, of both signs.
template <class T>
std::vector<bits_of<T>> nan_bits() {
  const bits_of<T> quiet = infinity_bits<T> | (infinity_bits<T> >> 1), signalling = infinity_bits<T> | 1;
  return {quiet, quiet | sign_bit<T>, signalling, signalling | sign_bit<T>, ~bits_of<T>{0}};
}

template <class T>
struct worst {
  double error = 0;
  T at = 0;
};

/// The worst of error(f(x), oracle(x)) over the numbers whose bit patterns are first, first + step, ..., last.
template <class T, class F, class Oracle, class Error>
worst<T> walk(T first, T last, bits_of<T> step, F f, Oracle oracle, Error error) {
  constexpr int lanes = posenc::simd::vec<T>::lanes;
  worst<T> result;
  T x[lanes], y[lanes];
  bits_of<T> b = bits<T>(first);
  const bits_of<T> end = bits<T>(last);
  while (b <= end) {
    for (int i = 0; i < lanes; ++i) x[i] = number<T>((std::min)(b + static_cast<bits_of<T>>(i) * step, end));
    b += lanes * step;
    posenc::simd::store(y, f(posenc::simd::load(x)));
    for (int i = 0; i < lanes; ++i) {
      const double e = error(y[i], oracle(static_cast<wide_of<T>>(x[i])));
      if (!(e <= result.error)) result = {e, x[i]};
    }
  }
  return result;
}

template <class T>
void print(const char* what, const worst<T>& w, const char* unit) {
  std::printf("%-44s %.4g %s at %.9g\n", what, w.error, unit, static_cast<double>(w.at));
}

}  // namespace posenc_test

#endif  // POSENC_TESTS_SIMD_ACCURACY_HPP
