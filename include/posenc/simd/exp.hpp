// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_SIMD_EXP_HPP
#define POSENC_SIMD_EXP_HPP

#include "simd.hpp"

/// Powers of two and of e. The coefficients are minimax polynomials for the relative error (Remez), made with 60
/// digits; the float ones of `softmax_exp2` were then searched for the least error in float arithmetic.
namespace posenc::inline POSENC_ABI::simd {

namespace detail {

template <class T>
struct exp_constants;

template <>
struct exp_constants<float> {
  static constexpr int mantissa_bits = 23, bias = 127;
  /// Added to a number and subtracted again, it rounds to a whole number; the sum holds that number in its lowest bits.
  static constexpr float magic = 0x1.8p23f;
  static constexpr float log2_e = 0x1.715476p0f;
  /// ln 2 in two parts; products of the first with whole numbers below 2^9 are exact.
  static constexpr float ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
  /// Below the first argument powers of e and of two are 0, above the second they overflow.
  static constexpr float exp_low = -110, exp_high = 90, exp2_low = -160, exp2_high = 130;

  /// (2^f - 1) / f for |f| <= 1/2 to 9e-8 of 2^f, for 0 <= f <= 1 to 9e-8, and for |f| <= 1/2 to 2e-9.
  static constexpr float centred[] = {0x1.62e42ap-1f, 0x1.ebf9b4p-3f, 0x1.c6b72ap-5f, 0x1.3cec8cp-7f, 0x1.5baaa6p-10f};
  static constexpr float floored[] = {0x1.62e4b4p-1f, 0x1.ebdbc8p-3f, 0x1.c91b86p-5f, 0x1.2773a4p-7f, 0x1.e99e4ep-10f};
  static constexpr float fine[] = {0x1.62e430p-1f, 0x1.ebfbdcp-3f,  0x1.c6aee8p-5f,
                                   0x1.3b2d4cp-7f, 0x1.5f3e52p-10f, 0x1.41fbbcp-13f};
  /// (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2: to 1.3e-8 of e^r - 1.
  static constexpr float expm1[] = {0x1.fffffep-2f, 0x1.5554b0p-3f, 0x1.555674p-5f, 0x1.122768p-7f, 0x1.6bec08p-10f};
};

template <>
struct exp_constants<double> {
  static constexpr int mantissa_bits = 52, bias = 1023;
  static constexpr double magic = 0x1.8p52;
  static constexpr double log2_e = 0x1.71547652b82fep0;
  static constexpr double ln2_high = 0x1.62e42fefa38p-1, ln2_low = 0x1.ef35793c7673p-45;
  static constexpr double exp_low = -750, exp_high = 710, exp2_low = -1080, exp2_high = 1026;

  static constexpr double centred[] = {0x1.62e42fefa39efp-1,  0x1.ebfbdff82c5a4p-3,  0x1.c6b08d7049fe8p-5,
                                       0x1.3b2ab6fba011ap-7,  0x1.5d87fe78cd6d0p-10, 0x1.4309130ed8ce4p-13,
                                       0x1.ffcbfba980b66p-17, 0x1.62bfc79d495d9p-20, 0x1.b5267ce06c69bp-24,
                                       0x1.e61b4f9cfd68ap-28, 0x1.e79bb61571d16p-32};
  static constexpr double floored[] = {0x1.62e42fefa39f5p-1,  0x1.ebfbdff82c04bp-3,  0x1.c6b08d7065837p-5,
                                       0x1.3b2ab6f73417bp-7,  0x1.5d87ff4d2247bp-10, 0x1.4308fa1dd3c8cp-13,
                                       0x1.ffcfc6a97268cp-17, 0x1.628f35866e07ap-20, 0x1.b85f42b053883p-24,
                                       0x1.c2c479cc91b70p-28, 0x1.58566d85c449dp-31};
  static constexpr const double (&fine)[11] = centred;
  static constexpr double expm1[] = {0x1.0000000000005p-1,  0x1.5555555555539p-3,  0x1.55555555522c2p-5,
                                     0x1.1111111118f8fp-7,  0x1.6c16c17ed8dc5p-10, 0x1.a01a01751c115p-13,
                                     0x1.a019a7784290bp-16, 0x1.71de87fd1fa0bp-19, 0x1.28a1d690db4a8p-22,
                                     0x1.ae6baab8b0d46p-26};
};

/// scale * (c[0] + c[1] x + c[2] x^2 + ...), as one chain of multiply-adds.
template <class T, int N>
POSENC_ALWAYS_INLINE vec<T> polynomial(vec<T> x, const T (&c)[N], T scale = 1) noexcept {
  vec<T> sum(c[N - 1] * scale);
  unroll<N - 1>([&](auto i) POSENC_INLINE_LAMBDA { sum = fma(sum, x, vec<T>(c[N - 2 - decltype(i)::value] * scale)); });
  return sum;
}

/// The nearest whole number to x, |x| < 2^(mantissa_bits - 2), as a number and as bits.
template <class T>
struct whole_number {
  vec<T> value;
  typename vec<T>::integer bits;
};

template <class T>
POSENC_ALWAYS_INLINE whole_number<T> round_whole(vec<T> x) noexcept {
  const vec<T> magic(exp_constants<T>::magic);
  const vec<T> sum = opaque(x + magic);
  return {opaque(sum - magic), as_integer(sum) - as_integer(magic)};
}

/// 2^n for whole n from 1 - bias to bias.
template <class T>
POSENC_ALWAYS_INLINE vec<T> power_of_two(typename vec<T>::integer n) noexcept {
  return from_bits<T>((n + exp_constants<T>::bias) << exp_constants<T>::mantissa_bits);
}

/// a * 2^n, |n| < 2 * bias, rounded once: denormal results are as exact as they can be.
template <class T>
POSENC_ALWAYS_INLINE vec<T> scale(vec<T> a, whole_number<T> n) noexcept {
#if defined(POSENC_DETAIL_HAS_SCALE)
  return backend::scale(a.r, n.value.r);
#else
  // Half of n at a time, so that both powers are normal. The shift is one of non-negative numbers: not every ISA has
  // an arithmetic shift of 64-bit integers.
  using natural = backend::vector<std::make_unsigned_t<integer_of<T>>>;
  constexpr integer_of<T> lift = 4 * exp_constants<T>::bias;
  const auto lifted = backend::bit_cast_vector<natural>(n.bits + lift) >> 1;
  const auto half = backend::bit_cast_vector<typename vec<T>::integer>(lifted) - lift / 2;
  return opaque(a * power_of_two<T>(half)) * power_of_two<T>(n.bits - half);
#endif
}

/// x = n ln 2 + r, |r| <= ln(2) / 2.
template <class T>
struct reduced {
  whole_number<T> n;
  vec<T> r;
};

template <class T>
POSENC_ALWAYS_INLINE reduced<T> reduce_by_ln2(vec<T> x) noexcept {
  using constants = exp_constants<T>;
  const whole_number<T> n = round_whole(x * vec<T>(constants::log2_e));
  const vec<T> r = opaque(fma(n.value, vec<T>(-constants::ln2_high), x));
  return {n, opaque(fma(n.value, vec<T>(-constants::ln2_low), r))};
}

/// e^r - 1 for |r| <= ln(2) / 2, relative to itself also near 0.
template <class T>
POSENC_ALWAYS_INLINE vec<T> expm1_reduced(vec<T> r) noexcept {
  return fma(r * r, polynomial(r, exp_constants<T>::expm1), r);
}

}  // namespace detail

/// 2^x as the softmax needs it: exactly 0 for x <= -99.5 (so also for -infinity), so that nothing made from it is ever
/// denormal, which costs a hundred cycles a time. For -99.5 < x < 127 (float) or 1023 (double) the relative error is at
/// most 1.5e-7 (float; 1.75e-7 where the ISA has no fused multiply-add) or 2.2e-16 (double). Whole numbers give exact
/// powers, so the largest score of a row gives 1. NaN stays NaN. Larger x: unspecified.
template <class T>
POSENC_ALWAYS_INLINE vec<T> softmax_exp2(vec<T> x) noexcept {
  using constants = detail::exp_constants<T>;
#if defined(POSENC_DETAIL_HAS_SCALE)
  const vec<T> f = backend::above_floor(x.r);
  return backend::scale_above(fma(detail::polynomial(f, constants::floored), f, vec<T>(T(1))).r, x.r, T(-99.5));
#else
  // With 100 added to the magic number, its sum with x holds n + 100 in its lowest bits. Shifted into the exponent
  // field that is the number 2^(n + 100 - bias), or 0 at n = -100. The polynomial carries the missing factor.
  constexpr T magic = constants::magic + T(100), missing = T(sizeof(T) == 4 ? 0x1p27 : 0x1p923);
  x = (max)(vec<T>(T(-100)), x);  // this way round it keeps NaN
  const vec<T> sum = opaque(x + vec<T>(magic));
  const vec<T> f = x - opaque(sum - vec<T>(magic));
  const vec<T> power = from_bits<T>(as_integer(sum) << constants::mantissa_bits);
  return fma(detail::polynomial(f, constants::centred, missing), f, vec<T>(missing)) * power;
#endif
}

/// 2^x for every x, within 1.1 ulp (1.5 where the ISA has no fused multiply-add): exactly 0 at -infinity, infinity
/// from the largest exponent on, NaN stays NaN. Results below the normal range are rounded once (gradual underflow),
/// unless the caller's floating-point mode flushes them.
template <class T>
POSENC_ALWAYS_INLINE vec<T> exp2(vec<T> x) noexcept {
  using constants = detail::exp_constants<T>;
  x = (min)(vec<T>(constants::exp2_high), (max)(vec<T>(constants::exp2_low), x));
  const detail::whole_number<T> n = detail::round_whole(x);
  const vec<T> f = x - n.value;
  return detail::scale(fma(detail::polynomial(f, constants::fine), f, vec<T>(T(1))), n);
}

/// e^x for every x, within 1.1 ulp (1.5 where the ISA has no fused multiply-add): exactly 0 at -infinity, infinity
/// where the true value is too large, NaN stays NaN. Results below the normal range are rounded once more (gradual
/// underflow), unless the caller's floating-point mode flushes them.
template <class T>
POSENC_ALWAYS_INLINE vec<T> exp(vec<T> x) noexcept {
  using constants = detail::exp_constants<T>;
  x = (min)(vec<T>(constants::exp_high), (max)(vec<T>(constants::exp_low), x));
  const detail::reduced<T> reduced = detail::reduce_by_ln2(x);
  return detail::scale(detail::expm1_reduced(reduced.r) + vec<T>(T(1)), reduced.n);
}

}  // namespace posenc::inline POSENC_ABI::simd

#endif  // POSENC_SIMD_EXP_HPP
