// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <posenc/simd/exp.hpp>

#include "accuracy.hpp"

namespace {

using namespace posenc_test;
namespace simd = posenc::simd;

template <class T>
class Exp : public testing::Test {
 public:
  static constexpr bool is_float = sizeof(T) == 4;
  static constexpr T largest = (std::numeric_limits<T>::max)();
  static constexpr T smallest_normal = (std::numeric_limits<T>::min)();

  /// About this many numbers between a and b (of one sign).
  static bits_of<T> step(T a, T b, bits_of<T> count) { return (bits<T>(b) - bits<T>(a)) / count | 1; }

  static auto softmax_exp2() {
    return [](simd::vec<T> x) { return simd::softmax_exp2(x); };
  }
  static auto exp2() {
    return [](simd::vec<T> x) { return simd::exp2(x); };
  }
  static auto exp() {
    return [](simd::vec<T> x) { return simd::exp(x); };
  }

  static double relative(T y, wide_of<T> exact) {
    const wide_of<T> e = static_cast<wide_of<T>>(y) / exact - 1;
    return static_cast<double>(e < 0 ? -e : e);
  }
  /// Ulps, but a flushed result counts as right where the mode of this process flushes.
  static double ulps_or_flushed(T y, wide_of<T> exact) {
    static const bool flushes = flushes_denormals<T>();
    if (flushes && y == 0 && exact < static_cast<wide_of<T>>(smallest_normal) * wide_of<T>(1.0001)) return 0;
    return ulps<T>(y, exact);
  }
  static wide_of<T> exact_exp2(wide_of<T> x) { return std::exp2(x); }
  static wide_of<T> exact_exp(wide_of<T> x) { return std::exp(x); }
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Exp, Types);

TYPED_TEST(Exp, SoftmaxExp2IsRelativelyExact) {
  using T = TypeParam;
  const double bound = !TestFixture::is_float ? 2.2e-16 : simd::has_fma ? 1.5e-7 : 1.75e-7;
  const auto check = [&](const char* what, T first, T last, bits_of<T> count) {
    const auto w = walk<T>(first, last, TestFixture::step(first, last, count), TestFixture::softmax_exp2(),
                           TestFixture::exact_exp2, TestFixture::relative);
    print(what, w, "relative");
    EXPECT_LE(w.error, bound) << what << " at " << w.at;
  };
  const T tiny = number<T>(1), above_cut = number<T>(bits<T>(T(-99.5)) - 1);
  check("softmax_exp2, from -99.5 to -0", number<T>(sign_bit<T>), above_cut, 300000);
  check("softmax_exp2, from -1 to -2^-14", T(-0x1p-14), T(-1), TestFixture::is_float ? 1500000 : 200000);
  check("softmax_exp2, above 0", tiny, TestFixture::is_float ? T(126.99) : T(1022.99), 300000);
}

TYPED_TEST(Exp, SoftmaxExp2IsZeroFarBelow) {
  using T = TypeParam;
  const T first = T(-99.5), last = -TestFixture::largest;
  const auto is_zero = [](T y, wide_of<T>) { return bits<T>(y) == 0 ? 0.0 : 1.0; };
  const auto w = walk<T>(
      first, last, TestFixture::step(first, last, 300000), TestFixture::softmax_exp2(), [](wide_of<T> x) { return x; },
      is_zero);
  EXPECT_EQ(w.error, 0) << "at " << w.at;
  EXPECT_EQ(bits_at<T>(TestFixture::softmax_exp2(), sign_bit<T> | infinity_bits<T>), 0u);
  // Just above: far from denormal.
  EXPECT_GE(at_one(TestFixture::softmax_exp2(), number<T>(bits<T>(first) - 1)), T(0x1p-100));
}

TYPED_TEST(Exp, WholeNumbersGiveExactPowers) {
  using T = TypeParam;
  for (int n = -99; n < 127; ++n) {
    const T power = std::ldexp(T(1), n);
    EXPECT_EQ(at_one(TestFixture::softmax_exp2(), T(n)), power) << n;
    EXPECT_EQ(at_one(TestFixture::exp2(), T(n)), power) << n;
  }
  EXPECT_EQ(at_one(TestFixture::softmax_exp2(), number<T>(sign_bit<T>)), T(1));
  EXPECT_EQ(at_one(TestFixture::exp(), T(0)), T(1));
  EXPECT_EQ(at_one(TestFixture::exp(), number<T>(sign_bit<T>)), T(1));
}

TYPED_TEST(Exp, NanStaysNan) {
  using T = TypeParam;
  for (const bits_of<T> nan : nan_bits<T>()) {
    EXPECT_TRUE(is_nan_bits<T>(bits_at<T>(TestFixture::softmax_exp2(), nan)));
    EXPECT_TRUE(is_nan_bits<T>(bits_at<T>(TestFixture::exp2(), nan)));
    EXPECT_TRUE(is_nan_bits<T>(bits_at<T>(TestFixture::exp(), nan)));
  }
}

TYPED_TEST(Exp, FullRange) {
  using T = TypeParam;
  const auto check = [&](const char* what, auto f, auto oracle, T first, T last) {
    const auto w =
        walk<T>(first, last, TestFixture::step(first, last, 250000), f, oracle, TestFixture::ulps_or_flushed);
    print(what, w, "ulp");
    EXPECT_LE(w.error, simd::has_fma ? 1.1 : 1.5) << what << " at " << w.at;
  };
  const T tiny = number<T>(1), nothing = number<T>(sign_bit<T>);
  check("exp2, above 0", TestFixture::exp2(), TestFixture::exact_exp2, tiny,
        TestFixture::is_float ? T(127.999) : T(1023.999));
  check("exp2, below 0", TestFixture::exp2(), TestFixture::exact_exp2, nothing,
        TestFixture::is_float ? T(-155) : T(-1078));
  check("exp, above 0", TestFixture::exp(), TestFixture::exact_exp, tiny, TestFixture::is_float ? T(88.72) : T(709.78));
  check("exp, below 0", TestFixture::exp(), TestFixture::exact_exp, nothing, TestFixture::is_float ? T(-108) : T(-748));
  const T near = std::ldexp(T(1), -6);
  check("exp, from 2^-6 to 2^6", TestFixture::exp(), TestFixture::exact_exp, near, T(64));
  check("exp2, from -2^6 to -2^-6", TestFixture::exp2(), TestFixture::exact_exp2, -near, T(-64));
}

TYPED_TEST(Exp, Extremes) {
  using T = TypeParam;
  const bits_of<T> big = bits<T>(TestFixture::largest);
  for (const auto& f : {+[](simd::vec<T> x) { return simd::exp2(x); }, +[](simd::vec<T> x) { return simd::exp(x); }}) {
    EXPECT_EQ(bits_at<T>(f, infinity_bits<T> | sign_bit<T>), 0u);
    EXPECT_EQ(bits_at<T>(f, big | sign_bit<T>), 0u);
    EXPECT_EQ(bits_at<T>(f, infinity_bits<T>), infinity_bits<T>);
    EXPECT_EQ(bits_at<T>(f, big), infinity_bits<T>);
    for (const bits_of<T> tiny : {bits_of<T>{1}, sign_bit<T> | 1, bits<T>(TestFixture::smallest_normal)})
      EXPECT_EQ(bits_at<T>(f, tiny), bits<T>(T(1)));
  }
  EXPECT_EQ(bits_at<T>(TestFixture::exp2(), bits<T>(TestFixture::is_float ? T(128) : T(1024))), infinity_bits<T>);
  EXPECT_EQ(bits_at<T>(TestFixture::exp(), bits<T>(TestFixture::is_float ? T(88.73) : T(709.79))), infinity_bits<T>);
}

}  // namespace
