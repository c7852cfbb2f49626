// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTS_ENCODING_WIDE_ORACLE_HPP
#define POSENC_TESTS_ENCODING_WIDE_ORACLE_HPP

#include <cfloat>
#include <cmath>

#if defined(__SIZEOF_FLOAT128__)
#define POSENC_TESTS_HAS_WIDE 1
#elif LDBL_MANT_DIG >= 113
#define POSENC_TESTS_HAS_WIDE 1
#endif

/// Cosine and sine of position * frequency to more than 100 bits, by a reduction and series of its own.
namespace wide_oracle {

#if defined(POSENC_TESTS_HAS_WIDE)

#if defined(__SIZEOF_FLOAT128__)
__extension__ typedef __float128 wide;  // 113 bits
#else
typedef long double wide;
#endif

struct cos_sin {
  wide cos, sin;
};

/// x, of which the compiler knows nothing more: -ffast-math neither reorders nor factors sums across it.
inline wide settled(wide x) {
  __asm__ volatile("" : "+m"(x));
  return x;
}

/// 1 / (k (k - 1)): divisions of such numbers take most of the time.
struct ratios {
  wide of[29];
  ratios() {
    for (int k = 2; k < 29; ++k) of[k] = 1 / static_cast<wide>(k * (k - 1));
  }
};

/// Frequencies and positions with a product below 2^31. The product of 53 and 60 bits is exact, so are the products of the
/// quotient with pieces of pi / 2.
inline cos_sin of_product(double position, double frequency) {
  const wide angle = static_cast<wide>(position) * static_cast<wide>(frequency);
  const double n = std::nearbyint(static_cast<double>(angle) * 0.63661977236758134308);
  wide r = angle;
  for (const double piece : {0x1.921fb54442d18p0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110})
    r = settled(r - settled(static_cast<wide>(n) * static_cast<wide>(piece)));
  // |r| < 0.8: r^28 / 28! is below 2^-106.
  const wide u = r * r;
  wide s = 1, c = 1;
  static const ratios inverse;
  for (int k = 27; k >= 3; k -= 2) s = 1 - u * s * inverse.of[k];
  for (int k = 28; k >= 2; k -= 2) c = 1 - u * c * inverse.of[k];
  s *= r;
  switch (static_cast<long long>(n) & 3) {
    case 0: return {c, s};
    case 1: return {-s, c};
    case 2: return {-c, -s};
    default: return {s, -c};
  }
}

inline double distance(double value, wide exact) {
  const wide d = static_cast<wide>(value) - exact;
  return static_cast<double>(d < 0 ? -d : d);
}

/// The distance to the next larger float.
inline double float_ulp(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(1.0, exponent - 24);
}

#endif

}  // namespace wide_oracle

#endif  // POSENC_TESTS_ENCODING_WIDE_ORACLE_HPP
