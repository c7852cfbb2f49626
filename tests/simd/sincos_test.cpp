// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <posenc/simd/sincos.hpp>

#include <math.h>

#include <numbers>
#include <random>
#include <vector>

#include "accuracy.hpp"

namespace {

using namespace posenc_test;
namespace simd = posenc::simd;
using posenc::index_t;
using wide = long double;

double magnitude(wide x) { return static_cast<double>(x < 0 ? -x : x); }

/// Hides a number from the compiler, so that -ffast-math cannot simplify the oracle.
double hidden(double x) {
  volatile double y = x;
  return y;
}

// The C library's own functions, through pointers that the compiler does not know: with -ffast-math it puts
// instructions in place that do not reduce large angles exactly, or a product and a sum for fma.
wide (*volatile sine)(wide) = &::sinl;
wide (*volatile cosine)(wide) = &::cosl;
double (*volatile fused)(double, double, double) = &::fma;

/// Sine and cosine of the sum of two doubles: the addition theorem in long double, whose functions reduce exactly.
simd::sine_cosine<wide> oracle(double angle, double residual) {
  const wide a = angle, e = residual;
  const wide sin_a = sine(a), cos_a = cosine(a), sin_e = sine(e), cos_e = cosine(e);
  return {sin_a * cos_e + cos_a * sin_e, cos_a * cos_e - sin_a * sin_e};
}

/// Of the exact product: the C library's fma gives the residual on every machine.
simd::sine_cosine<wide> product_oracle(double position, double inv_freq) {
  const double product = hidden(position * inv_freq);
  return oracle(product, fused(hidden(position), hidden(inv_freq), -product));
}

/// The largest distance of both results from the oracle.
template <class Real>
double distance(Real sin, Real cos, const simd::sine_cosine<wide>& exact) {
  return (std::max)(magnitude(sin - exact.sin), magnitude(cos - exact.cos));
}

struct both {
  std::vector<double> sin, cos;
};

template <class Result = double>
both evaluate(const std::vector<double>& angle, const std::vector<double>& residual) {
  constexpr std::size_t lanes = simd::vec<double>::lanes;
  both result{std::vector<double>(angle.size()), std::vector<double>(angle.size())};
  for (std::size_t i = 0; i + lanes <= angle.size(); i += lanes) {
    const auto r = simd::sincos<Result>(simd::load(&angle[i]), simd::load(&residual[i]));
    simd::store(&result.sin[i], r.sin);
    simd::store(&result.cos[i], r.cos);
  }
  return result;
}

/// Angles of every size to 2^32, and the doubles next to multiples of pi / 2, where the reduction cancels most.
std::vector<double> hard_angles() {
  std::vector<double> angles = {0, -0.0, 0x1p-1074, 0x1p-1022, -0x1p-300, 0x1p32, -0x1p32};
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> unit(0, 1);
  for (int i = 0; i < 100000; ++i) angles.push_back((i % 2 ? -1 : 1) * std::exp2(unit(random) * 42 - 10));
  for (int i = 0; i < 100000; ++i) angles.push_back(unit(random) * 0x1p32);
  for (int i = 0; i < 50000; ++i) {
    const double multiple = std::floor(std::exp2(unit(random) * 31));
    const double near = static_cast<double>(static_cast<wide>(multiple) * (std::numbers::pi_v<wide> / 2));
    angles.push_back(near);
    angles.push_back(static_cast<double>(static_cast<wide>(multiple + 0.5) * (std::numbers::pi_v<wide> / 2)));
  }
  while (angles.size() % 64 != 0) angles.push_back(1);
  return angles;
}

TEST(TwoProduct, LosesNothing) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> unit(0.5, 1), exponent(-200, 200);
  constexpr int lanes = simd::vec<double>::lanes;
  for (int i = 0; i < 20000; ++i) {
    double a[lanes], b[lanes], product[lanes], residual[lanes];
    for (int j = 0; j < lanes; ++j) {
      a[j] = std::ldexp(unit(random), static_cast<int>(exponent(random)));
      b[j] = -std::ldexp(unit(random), static_cast<int>(exponent(random)));
    }
    const auto r = simd::two_product(simd::load(a), simd::load(b));
    simd::store(product, r.product);
    simd::store(residual, r.residual);
    for (int j = 0; j < lanes; ++j) {
      ASSERT_EQ(product[j], hidden(a[j] * b[j]));
      ASSERT_EQ(residual[j], fused(hidden(a[j]), hidden(b[j]), -hidden(product[j])));
    }
  }
}

TEST(Sincos, AbsoluteErrorTo2To32) {
  const std::vector<double> angle = hard_angles(), none(angle.size());
  const both full = evaluate(angle, none), shorter = evaluate<float>(angle, none);
  worst<double> w, w_short;
  for (std::size_t i = 0; i < angle.size(); ++i) {
    const auto exact = oracle(angle[i], 0);
    const double e = distance(full.sin[i], full.cos[i], exact);
    if (!(e <= w.error)) w = {e, angle[i]};
    const double s = distance(shorter.sin[i], shorter.cos[i], exact);
    if (!(s <= w_short.error)) w_short = {s, angle[i]};
  }
  print("sincos", w, "absolute");
  print("sincos for float results", w_short, "absolute");
  EXPECT_LE(w.error, 2e-16) << w.at;
  EXPECT_LE(w_short.error, 4e-12) << w_short.at;
}

TEST(Sincos, AddsTheResidual) {
  const std::vector<double> angle = hard_angles();
  std::vector<double> residual(angle.size());
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> unit(-1, 1);
  for (std::size_t i = 0; i < angle.size(); ++i) residual[i] = angle[i] * 0x1p-53 * unit(random);
  const both got = evaluate(angle, residual);
  worst<double> w;
  for (std::size_t i = 0; i < angle.size(); ++i) {
    const double e = distance(got.sin[i], got.cos[i], oracle(angle[i], residual[i]));
    if (!(e <= w.error)) w = {e, angle[i]};
  }
  print("sincos with residuals", w, "absolute");
  EXPECT_LE(w.error, 2e-16) << w.at;
}

TEST(Sincos, SpecialValues) {
  const std::vector<double> angle(64, 0.0), negative(64, -0.0);
  EXPECT_EQ(evaluate(angle, angle).sin[0], 0.0);
  EXPECT_EQ(evaluate(angle, angle).cos[0], 1.0);
  EXPECT_EQ(evaluate(negative, angle).sin[0], 0.0);
  EXPECT_EQ(evaluate(negative, angle).cos[0], 1.0);
  // Small angles keep all their digits.
  const std::vector<double> small(64, 0x1.23456789abcdep-200);
  EXPECT_EQ(evaluate(small, angle).sin[0], small[0]);
}

/// The frequencies of a rotary encoding: base^(-i / half).
std::vector<double> frequencies(index_t half, double base) {
  std::vector<double> f;
  for (index_t i = 0; i < half; ++i) f.push_back(std::pow(base, -static_cast<double>(i) / static_cast<double>(half)));
  return f;
}

/// Whole, fractional, negative and huge positions.
std::vector<double> positions() {
  std::vector<double> p = {0,      1,   2,         -1,         0.5,          100,          4095,
                           131071, 1e6, 123456789, 2147483647, 2147483648.0, -2147483648.0};
  std::mt19937_64 random(4);
  std::uniform_real_distribution<double> unit(0, 1);
  for (int i = 0; i < 300; ++i) p.push_back(std::floor(std::exp2(31 * unit(random))));
  for (int i = 0; i < 50; ++i) p.push_back(std::exp2(31 * unit(random)) / 3);
  return p;
}

template <class Real>
class SincosProducts : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(SincosProducts, Types);

TYPED_TEST(SincosProducts, ExactAngleOfTheRealProduct) {
  using Real = TypeParam;
  double worst_excess = 0, worst_absolute = 0;
  for (const double base : {1e4, 5e5})
    for (const double position : positions()) {
      const auto f = frequencies(64, base);
      Real cos[64], sin[64];
      simd::sincos_products(f.data(), 64, position, 1.0, cos, sin);
      for (std::size_t i = 0; i < 64; ++i) {
        const auto exact = product_oracle(position, f[i]);
        for (const auto& [got, want] : {std::pair{cos[i], exact.cos}, std::pair{sin[i], exact.sin}}) {
          const double error = magnitude(got - want);
          worst_absolute = (std::max)(worst_absolute, error);
          if (sizeof(Real) == 4) {
            int exponent;
            std::frexp(want, &exponent);
            const double excess = error - std::ldexp(0.5, exponent - 24);
            worst_excess = (std::max)(worst_excess, excess);
            // What users are promised.
            ASSERT_LE(error, (std::max)(std::ldexp(1.0, exponent - 24), 0x1p-36)) << position << " * " << f[i];
          }
        }
      }
    }
  std::printf("sincos_products<%s>: absolute %.3g, beyond half an ulp %.3g\n", sizeof(Real) == 4 ? "float" : "double",
              worst_absolute, worst_excess);
  if (sizeof(Real) == 4)
    EXPECT_LE(worst_excess, 4e-12);
  else
    EXPECT_LE(worst_absolute, 2e-16);
}

TYPED_TEST(SincosProducts, AnyLengthAndNothingBehindIt) {
  using Real = TypeParam;
  const auto f = frequencies(80, 1e4);
  std::vector<Real> all_cos(80), all_sin(80);
  simd::sincos_products(f.data(), 80, 12345.0, 1.0, all_cos.data(), all_sin.data());
  for (index_t n = 0; n <= 40; ++n)
    for (index_t offset = 0; offset < 3; ++offset) {
      const std::vector<double> exactly(f.begin() + offset, f.begin() + offset + n);  // a sanitizer sees reads beyond
      std::vector<Real> cos(static_cast<std::size_t>(n) + 1, Real(7)), sin(static_cast<std::size_t>(n) + 1, Real(7));
      simd::sincos_products(exactly.data(), n, 12345.0, 1.0, cos.data(), sin.data());
      for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
        ASSERT_EQ(cos[i], all_cos[i + static_cast<std::size_t>(offset)]);
        ASSERT_EQ(sin[i], all_sin[i + static_cast<std::size_t>(offset)]);
      }
      ASSERT_EQ(cos.back(), Real(7));
      ASSERT_EQ(sin.back(), Real(7));
    }
}

TYPED_TEST(SincosProducts, ScaleIsMultipliedInDouble) {
  using Real = TypeParam;
  const auto f = frequencies(32, 1e4);
  const double scale = 1.3465735902799727;
  Real cos[32], sin[32];
  double plain_cos[32], plain_sin[32];
  simd::sincos_products(f.data(), 32, 54321.0, scale, cos, sin);
  simd::sincos_products(f.data(), 32, 54321.0, 1.0, plain_cos, plain_sin);
  for (int i = 0; i < 32; ++i)
    for (const auto& [got, plain] : {std::pair{cos[i], plain_cos[i]}, std::pair{sin[i], plain_sin[i]}}) {
      const double want = hidden(plain * scale);
      // Scaled after rounding to float, the error would be a whole ulp.
      const double tolerance =
          sizeof(Real) == 8 ? 0 : 0.5 * std::exp2(std::floor(std::log2(magnitude(want))) - 23) + 6e-12;
      EXPECT_LE(magnitude(got - want), tolerance) << i;
    }
}

TEST(SincosExact, SameBitsAsTheBulkFunction) {
  const auto f = frequencies(48, 1e4);
  double cos[48], sin[48];
  for (const double position : {0.0, 17.0, -3.25, 2147483647.0, 1e13}) {
    simd::sincos_products(f.data(), 48, position, 1.0, cos, sin);
    for (std::size_t i = 0; i < 48; ++i) {
      const auto one = simd::sincos_exact(position, f[i]);
      EXPECT_EQ(one.cos, cos[i]) << position << " * " << f[i];
      EXPECT_EQ(one.sin, sin[i]) << position << " * " << f[i];
    }
  }
}

TEST(SincosExact, BeyondTheFastRange) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> unit(0, 1);
  worst<double> w;
  for (int i = 0; i < 20000; ++i) {
    const double position = (i % 2 ? -1 : 1) * std::exp2(32 + 60 * unit(random)), f = 1 + unit(random);
    const auto got = simd::sincos_exact(position, f);
    const double e = distance(got.sin, got.cos, product_oracle(position, f));
    if (!(e <= w.error)) w = {e, position};
  }
  print("sincos_exact beyond 2^32", w, "absolute");
  EXPECT_LE(w.error, 6e-16) << w.at;
  // In bulk, one large product in a row does not spoil the others.
  const double f[5] = {1, 3, 1e-3, 0.5, 1e-9};
  float cos[5], sin[5];
  simd::sincos_products(f, 5, 2147483647.0, 1.0, cos, sin);
  for (int i = 0; i < 5; ++i) EXPECT_LE(distance(sin[i], cos[i], product_oracle(2147483647.0, f[i])), 6.1e-8) << i;
}

}  // namespace
