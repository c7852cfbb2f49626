// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_SIMD_SINCOS_HPP
#define POSENC_SIMD_SINCOS_HPP

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "convert.hpp"
#include "simd.hpp"

/// Sines and cosines of exact products position * frequency, in double.
namespace posenc::inline POSENC_ABI::simd {

template <class V>
struct sine_cosine {
  V sin;
  V cos;
};

/// A product without loss: `product` is a * b rounded, `residual` what the rounding took away.
template <class V>
struct exact_product {
  V product;
  V residual;
};

namespace detail {

struct sincos_constants {
  /// Added to a number and subtracted again, it rounds to a whole number; the sum holds that number in its lowest bits.
  static constexpr double magic = 0x1.8p52;
  static constexpr double two_over_pi = 0x1.45f306dc9c883p-1;
  /// pi / 2 to 106 bits; the first part again as three pieces, whose products with whole numbers below 2^32 are exact.
  static constexpr double half_pi_high = 0x1.921fb54442d18p0, half_pi_low = 0x1.1a62633145c07p-54;
  static constexpr double half_pi_pieces[] = {0x1.921fbp0, 0x1.5110ap-22, 0x1.46p-42};

  /// Minimax polynomials in u = r^2, |r| <= pi / 4: (sin(r) / r - 1) / u and (cos(r) - 1 + u / 2) / u^2, with the
  /// errors that they leave in sin(r) / r and cos(r). First those for double results: 4e-18 and 5e-20.
  static constexpr double sin_double[] = {-0x1.5555555555549p-3, 0x1.111111110f880p-7,   -0x1.a01a019c12697p-13,
                                          0x1.71de357872deap-19, -0x1.ae5e66d3a412fp-26, 0x1.5d932ee754918p-33};
  static constexpr double cos_double[] = {0x1.555555555554cp-5,   -0x1.6c16c16c15184p-10, 0x1.a01a019cb26d8p-16,
                                          -0x1.27e4f80a75412p-22, 0x1.1ee9ec46ed80ap-29,  -0x1.8faecec604e8ep-37};
  /// For float results, as double arithmetic rounded once at the end: 5e-12 and 1e-13.
  static constexpr double sin_float[] = {-0x1.5555554cbacc7p-3, 0x1.11110896f3723p-7, -0x1.a00f9e2fb7640p-13,
                                         0x1.6cd8797f4292ep-19};
  static constexpr double cos_float[] = {0x1.5555554f4ee3cp-5, -0x1.6c16b89978f3cp-10, 0x1.a011209b8f0c9p-16,
                                         -0x1.242aee59935b4p-22};
};

/// Multiplied by this and subtracted again, a double falls into two halves of at most 26 bits (Veltkamp's split).
inline constexpr double veltkamp = 0x1p27 + 1;

template <int N>
POSENC_ALWAYS_INLINE vec<double> horner(vec<double> u, const double (&c)[N]) noexcept {
  vec<double> sum(c[N - 1]);
  unroll<N - 1>([&](auto i) POSENC_INLINE_LAMBDA { sum = fma(sum, u, vec<double>(c[N - 2 - decltype(i)::value])); });
  return sum;
}

}  // namespace detail

/// a * b without loss, for products from 2^-900 to 2^900 and factors below 2^900 (exact zeros are fine too). One fused
/// multiply-add; without that instruction, Dekker's algorithm (T. J. Dekker, "A floating-point technique for extending
/// the available precision", 1971).
POSENC_ALWAYS_INLINE exact_product<vec<double>> two_product(vec<double> a, vec<double> b) noexcept {
  const vec<double> product = opaque(a * b);
#if defined(POSENC_DETAIL_HAS_FMA)
  return {product, fma(a, b, -product)};
#else
  const auto split = [](vec<double> x) POSENC_INLINE_LAMBDA {
    const vec<double> shifted = opaque(x * vec<double>(detail::veltkamp));
    return opaque(shifted - opaque(shifted - x));
  };
  const vec<double> a_high = split(a), b_high = split(b);
  const vec<double> a_low = opaque(a - a_high), b_low = opaque(b - b_high);
  vec<double> residual = opaque(opaque(a_high * b_high) - product);
  residual = opaque(residual + opaque(a_high * b_low));
  residual = opaque(residual + opaque(a_low * b_high));
  return {product, residual + opaque(a_low * b_low)};
#endif
}

/// Sine and cosine of the real number angle + residual, for |angle| <= 2^32 and |residual| at most an ulp of angle:
/// absolute error at most 2e-16 for `Result` double. For `Result` float the polynomials are shorter, and the error is
/// at most 4e-12, which a float does not resolve. Larger angles, infinities, NaN: unspecified.
///
/// n = round(angle * 2 / pi); r = angle - n pi / 2 in three parts (W. J. Cody and W. Waite, "Software Manual for the
/// Elementary Functions", 1980). The first difference is exact, since it is a multiple of 2^-52 below 1.
template <class Result = double>
POSENC_ALWAYS_INLINE sine_cosine<vec<double>> sincos(vec<double> angle, vec<double> residual) noexcept {
  using constants = detail::sincos_constants;
  using integer = vec<double>::integer;
  const vec<double> magic(constants::magic);
  const vec<double> sum = opaque(fma(angle, vec<double>(constants::two_over_pi), magic));
  const vec<double> n = opaque(sum - magic);
  const integer quadrant = as_integer(sum);

#if defined(POSENC_DETAIL_HAS_FMA)
  const vec<double> high = fma(-n, vec<double>(constants::half_pi_high), angle);
#else
  vec<double> high = angle;
  for (const double piece : constants::half_pi_pieces) high = opaque(high - opaque(n * vec<double>(piece)));
#endif
  const vec<double> r = opaque(high + fma(-n, vec<double>(constants::half_pi_low), residual));

  const vec<double> u = r * r;
  const auto [sin_terms, cos_terms] = [&]() POSENC_INLINE_LAMBDA {
    if constexpr (std::is_same_v<Result, double>)
      return sine_cosine<vec<double>>{detail::horner(u, constants::sin_double),
                                      detail::horner(u, constants::cos_double)};
    else
      return sine_cosine<vec<double>>{detail::horner(u, constants::sin_float), detail::horner(u, constants::cos_float)};
  }();
  const vec<double> s = fma(r * u, sin_terms, r);
  const vec<double> c = fma(u * u, cos_terms, fma(u, vec<double>(-0.5), vec<double>(1.0)));

  // Odd quadrants exchange the two; bit 1 of the quadrant is the sign of the sine, that of the next one of the cosine.
  constexpr std::int64_t sign = (std::numeric_limits<std::int64_t>::min)();
  const mask<double> odd{(quadrant & 1) != 0};
  return {from_bits<double>(as_integer(select(odd, c, s)) ^ ((quadrant << 62) & sign)),
          from_bits<double>(as_integer(select(odd, s, c)) ^ (((quadrant + 1) << 62) & sign))};
}

namespace detail {
/// One function of its own, so that it has one result.
POSENC_NOINLINE inline sine_cosine<double> sincos_of_sum(double a, double b) noexcept {
  const double sin_a = std::sin(a), cos_a = std::cos(a), sin_b = std::sin(b), cos_b = std::cos(b);
  return {sin_a * cos_b + cos_a * sin_b, cos_a * cos_b - sin_a * sin_b};
}
}  // namespace detail

/// Sine and cosine of the exact real product position * inv_freq, absolute error at most 2e-16 for products up to 2^32
/// (the same bits as `sincos_products` gives). Beyond that the C library's functions of the rounded product and of its
/// residual are added as angles: absolute error at most 6e-16. Both arguments finite and below 2^900.
inline sine_cosine<double> sincos_exact(double position, double inv_freq) noexcept {
  const auto [product, residual] = two_product(vec<double>(position), vec<double>(inv_freq));
  double p[vec<double>::lanes], e[vec<double>::lanes];
  store(p, product);
  store(e, residual);
  if (p[0] >= -0x1p32 && p[0] <= 0x1p32) {
    const auto result = sincos(product, residual);
    store(p, result.sin);
    store(e, result.cos);
    return {p[0], e[0]};
  }
  return detail::sincos_of_sum(p[0], e[0]);
}

/// cos_out[i], sin_out[i] = cosine and sine of the exact real product position * inv_freq[i], times `scale`
/// (multiplied in double), for i < n. Errors with scale 1: for double at most 2e-16 (6e-16 for products beyond 2^32),
/// for float at most half an ulp of the value + 4e-12. Position and frequencies finite and below 2^900. The outputs
/// may not overlap.
template <class Real>
void sincos_products(const double* inv_freq, index_t n, double position, double scale, Real* cos_out,
                     Real* sin_out) noexcept {
  constexpr index_t lanes = vec<double>::lanes;
  using narrow = backend::vector<Real, static_cast<int>(lanes * sizeof(Real))>;
  const vec<double> at(position), factor(scale);
  vec<double> largest(0.0);
  const auto values = [&](const double* from) POSENC_INLINE_LAMBDA {
    const auto [product, residual] = two_product(at, load(from));
    largest = (max)(largest, abs(product));
    const auto result = sincos<Real>(product, residual);
    return sine_cosine<vec<double>>{result.sin * factor, result.cos * factor};
  };
  const auto block = [&](const double* from, Real* cos_to, Real* sin_to) POSENC_INLINE_LAMBDA {
    const auto result = values(from);
    backend::store(cos_to, __builtin_convertvector(result.cos.r, narrow));
    backend::store(sin_to, __builtin_convertvector(result.sin.r, narrow));
  };
  index_t i = 0;
  if constexpr (std::is_same_v<Real, float>) {
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      const auto low = values(inv_freq + i), high = values(inv_freq + i + lanes);
      store(cos_out + i, join(low.cos, high.cos));
      store(sin_out + i, join(low.sin, high.sin));
    }
  }
  for (; i + lanes <= n; i += lanes) block(inv_freq + i, cos_out + i, sin_out + i);
  if (i < n) {
    double from[lanes] = {};
    Real cos_to[lanes], sin_to[lanes];
    for (index_t j = 0; j < lanes && i + j < n; ++j) from[j] = inv_freq[i + j];
    block(from, cos_to, sin_to);
    for (index_t j = 0; j < lanes && i + j < n; ++j) {
      cos_out[i + j] = cos_to[j];
      sin_out[i + j] = sin_to[j];
    }
  }
  if (reduce_max(largest) <= 0x1p32) return;
  for (index_t j = 0; j < n; ++j) {
    const sine_cosine<double> exact = sincos_exact(position, inv_freq[j]);
    cos_out[j] = static_cast<Real>(exact.cos * scale);
    sin_out[j] = static_cast<Real>(exact.sin * scale);
  }
}

}  // namespace posenc::inline POSENC_ABI::simd

#endif  // POSENC_SIMD_SINCOS_HPP
