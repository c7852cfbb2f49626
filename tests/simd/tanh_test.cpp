// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <posenc/simd/tanh.hpp>

#include "accuracy.hpp"

namespace {

using namespace posenc_test;
namespace simd = posenc::simd;

template <class T>
class Tanh : public testing::Test {
 public:
  static bits_of<T> tanh(bits_of<T> x) {
    return bits_at<T>([](simd::vec<T> v) { return simd::tanh(v); }, x);
  }
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Tanh, Types);

TYPED_TEST(Tanh, FewUlpsAtEverySize) {
  using T = TypeParam;
  const auto check = [](const char* what, T first, T last, bits_of<T> count) {
    const auto w = walk<T>(
        first, last, (bits<T>(last) - bits<T>(first)) / count | 1, [](simd::vec<T> x) { return simd::tanh(x); },
        [](wide_of<T> x) { return std::tanh(x); }, ulps<T>);
    print(what, w, "ulp");
    EXPECT_LE(w.error, 3.0) << what << " at " << w.at;
  };
  const T normal = (std::numeric_limits<T>::min)();
  check("tanh, all sizes", normal, T(30), 200000);
  check("tanh, all sizes, negative", -normal, T(-30), 200000);
  check("tanh, from 2^-6 to 16", T(0x1p-6), T(16), 400000);
  check("tanh, around the first change of exponent", T(0.15), T(0.2), 200000);
}

TYPED_TEST(Tanh, NeverBeyondOne) {
  using T = TypeParam;
  const T first = T(5), last = (std::numeric_limits<T>::max)();
  const auto w = walk<T>(
      first, last, (bits<T>(last) - bits<T>(first)) / 200000 | 1, [](simd::vec<T> x) { return simd::tanh(x); },
      [](wide_of<T> x) { return x; },
      [](T y, wide_of<T> x) { return bits<T>(y) > bits<T>(T(1)) || (x >= 20 && y != T(1)) ? 1.0 : 0.0; });
  EXPECT_EQ(w.error, 0) << "at " << w.at;
}

TYPED_TEST(Tanh, SpecialValues) {
  using T = TypeParam;
  const auto tanh = [](bits_of<T> x) { return TestFixture::tanh(x); };
  EXPECT_EQ(tanh(0), 0u);
  EXPECT_EQ(tanh(sign_bit<T>), sign_bit<T>);
  EXPECT_EQ(tanh(infinity_bits<T>), bits<T>(T(1)));
  EXPECT_EQ(tanh(infinity_bits<T> | sign_bit<T>), bits<T>(T(-1)));
  EXPECT_EQ(tanh(bits<T>((std::numeric_limits<T>::max)())), bits<T>(T(1)));
  EXPECT_EQ(tanh(bits<T>(std::numeric_limits<T>::lowest())), bits<T>(T(-1)));
  if (!flushes_denormals<T>()) {
    for (const bits_of<T> denormal : {bits_of<T>{1}, bits_of<T>{12345}, sign_bit<T> | 7})
      EXPECT_EQ(tanh(denormal), denormal);
  }
  for (const bits_of<T> nan : nan_bits<T>()) EXPECT_TRUE(is_nan_bits<T>(tanh(nan)));
}

}  // namespace
