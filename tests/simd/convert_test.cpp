// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <posenc/core/eigen.hpp>
#include <posenc/simd/convert.hpp>

#include <cmath>
#include <random>
#include <vector>

#include "accuracy.hpp"
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace posenc_test {
/// A 16-bit type of a user's own.
struct my_half {
  std::uint16_t x;
};
}  // namespace posenc_test

template <>
struct posenc::dtype_traits<posenc_test::my_half> {
  static constexpr dtype value = dtype::half;
};

namespace {

using namespace posenc_test;
namespace simd = posenc::simd;
using posenc::index_t;
using word = std::uint16_t;

constexpr int words = 65536;

bool is_nan16(word w, int mantissa_bits) { return (w & 0x7fff) > (0x7fff >> mantissa_bits << mantissa_bits); }
bool is_half_nan(word w) { return is_nan16(w, 10); }
bool is_bfloat16_nan(word w) { return is_nan16(w, 7); }

/// The value of a finite binary16 number, from the definition.
double half_value(word w) {
  const int exponent = (w >> 10) & 31, mantissa = w & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return w & 0x8000 ? -magnitude : magnitude;
}

/// Nearest, ties to even, from the definition: the multiple of the last place.
word nearest_half(float x) {
  const double magnitude = std::fabs(static_cast<double>(x));
  const int exponent = (std::max)(magnitude == 0 ? -14 : std::ilogb(magnitude), -14);
  const double units = std::nearbyint(std::ldexp(magnitude, 10 - exponent));  // of 2^(exponent - 10)
  const double rounded = std::ldexp(units, exponent - 10);
  const word sign = std::signbit(x) ? 0x8000 : 0;
  if (rounded >= 65536) return static_cast<word>(sign | 0x7c00);
  if (units < 1024) return static_cast<word>(sign | static_cast<int>(units));
  const int shift = units >= 2048 ? 1 : 0;
  return static_cast<word>(sign | ((exponent + shift + 15) << 10) | ((static_cast<int>(units) >> shift) & 1023));
}

word nearest_bfloat16(std::uint32_t b) {
  const std::uint32_t below = b >> 16, rest = b & 0xffff;
  return static_cast<word>(below + (rest > 0x8000 || (rest == 0x8000 && below % 2 == 1) ? 1 : 0));
}

/// Bit patterns of floats that are hard to round to a format with `dropped` bits less, and random ones of every
/// exponent.
std::vector<std::uint32_t> hard_floats() {
  std::vector<std::uint32_t> result = {0,           0x8000'0000, 1,           0x8000'0001, 0x007f'ffff, 0x0080'0000,
                                       0x7f80'0000, 0xff80'0000, 0x7f80'0001, 0xff80'0001, 0x7fff'ffff, 0xffff'ffff,
                                       0x7fc0'0000, 0x7f7f'ffff, 0x477f'efff, 0x477f'f000, 0x477f'f001, 0x3300'0000,
                                       0x3300'0001, 0x387f'ffff, 0x3880'0000};
  for (std::uint32_t w = 0; w < words; ++w) {
    for (const int around : {-1, 0, 1}) {
      const auto near = static_cast<std::uint32_t>(around);
      result.push_back((w << 16) + 0x8000 + near);  // between two bfloat16 numbers
      const std::uint32_t bits13 = bits<float>(static_cast<float>(half_value(static_cast<word>(w & 0xfbff))));
      result.push_back(bits13 + near);
      result.push_back(bits13 + 0x1000 + near);  // between two normal binary16 numbers
    }
    // Between two denormal binary16 numbers.
    const auto between = static_cast<float>(std::ldexp((w & 1023) + 0.5, -24));
    for (const int around : {-1, 0, 1}) result.push_back(bits<float>(between) + static_cast<std::uint32_t>(around));
  }
  std::mt19937 random(1);
  for (int i = 0; i < 300000; ++i) result.push_back(static_cast<std::uint32_t>(random()));
  while (result.size() % 64 != 0) result.push_back(0);
  return result;
}

std::vector<float> as_floats(const std::vector<std::uint32_t>& b) {
  std::vector<float> result(b.size());
  std::memcpy(result.data(), b.data(), b.size() * sizeof(float));
  return result;
}

std::vector<word> all_words() {
  std::vector<word> result(words);
  for (std::size_t i = 0; i < words; ++i) result[i] = static_cast<word>(i);
  return result;
}

template <class T, class Real>
std::vector<Real> load_all(const std::vector<word>& from) {
  std::vector<Real> result(from.size());
  simd::load_row(reinterpret_cast<const T*>(from.data()), static_cast<index_t>(from.size()), result.data());
  return result;
}
template <class T>
std::vector<word> store_all(const std::vector<float>& from) {
  std::vector<word> result(from.size());
  simd::store_row(from.data(), static_cast<index_t>(from.size()), reinterpret_cast<T*>(result.data()));
  return result;
}

TEST(Half, EveryPatternToFloat) {
  for (int i = 0; i < words; ++i) {
    const auto w = static_cast<word>(i);
    const float x = simd::half_to_float(w);
    const std::uint32_t b = bits<float>(x);
    if (is_half_nan(w)) {
      ASSERT_TRUE(is_nan_bits<float>(b)) << i;
    } else if ((w & 0x7fff) == 0x7c00) {
      ASSERT_EQ(b, w & 0x8000 ? 0xff80'0000 : 0x7f80'0000) << i;
    } else {
      ASSERT_EQ(b, bits<float>(static_cast<float>(half_value(w)))) << i;
    }
    if (!is_half_nan(w)) {
      ASSERT_EQ(simd::float_to_half(x), w);
    }
  }
}

TEST(Half, NearestEven) {
  for (const std::uint32_t b : hard_floats()) {
    const float x = number<float>(b);
    const word got = simd::float_to_half(x);
    if (is_nan_bits<float>(b)) {
      ASSERT_TRUE(is_half_nan(got)) << std::hex << b;
    } else if ((b & 0x7fff'ffff) == 0x7f80'0000) {
      ASSERT_EQ(got, (b >> 16 & 0x8000) | 0x7c00);
    } else if ((b & 0x7fff'ffff) < 0x0080'0000) {  // denormal: far too small
      ASSERT_EQ(got, b >> 16 & 0x8000);
    } else {
      ASSERT_EQ(got, nearest_half(x)) << std::hex << b;
    }
  }
}

TEST(Bfloat16, EveryPatternToFloat) {
  for (std::uint32_t i = 0; i < words; ++i) {
    const float x = simd::bfloat16_to_float(static_cast<word>(i));
    ASSERT_EQ(bits<float>(x), i << 16);
    if (!is_bfloat16_nan(static_cast<word>(i))) {
      ASSERT_EQ(simd::float_to_bfloat16(x), i);
    }
  }
}

TEST(Bfloat16, NearestEven) {
  for (const std::uint32_t b : hard_floats()) {
    const float x = number<float>(b);
    const word got = simd::float_to_bfloat16(x);
    if (is_nan_bits<float>(b)) {
      ASSERT_TRUE(is_bfloat16_nan(got)) << std::hex << b;
    } else {
      ASSERT_EQ(got, nearest_bfloat16(b)) << std::hex << b;
    }
  }
}

TEST(Bfloat16, ReportedValues) {
  const auto round = [](float x) { return simd::bfloat16_to_float(simd::float_to_bfloat16(x)); };
  EXPECT_EQ(round(0.2691408770292272f), 0.26953125f);
  EXPECT_EQ(round(3.14f), 3.140625f);
  EXPECT_EQ(round(1e-08f), 1.0011717677116394e-08f);
  const auto from_bits = [](std::uint32_t b) { return simd::float_to_bfloat16(number<float>(b)); };
  for (const std::uint32_t nan : {0x7f80'0001u, 0x7fff'ffffu, 0xff80'0001u})
    EXPECT_TRUE(is_bfloat16_nan(from_bits(nan)));
  EXPECT_EQ(from_bits(0x7f7f'ffff), 0x7f80);  // the largest float
  EXPECT_EQ(from_bits(0x7f80'0000), 0x7f80);
}

template <class T>
class Storage : public testing::Test {
 public:
  static constexpr bool is_half = posenc::dtype_of<T> == posenc::dtype::half;
  static float to_float(word w) { return is_half ? simd::half_to_float(w) : simd::bfloat16_to_float(w); }
  static word from_float(const float& x) { return is_half ? simd::float_to_half(x) : simd::float_to_bfloat16(x); }

  /// Vector forms against scalar ones, over everything.
  static void expect_same_bits() {
    const auto in = all_words();
    const auto floats = load_all<T, float>(in);
    for (std::size_t i = 0; i < words; ++i) {
      const float expected = to_float(in[i]);
      ASSERT_EQ(bits<float>(floats[i]), bits<float>(expected)) << i;
    }
    const auto hard = as_floats(hard_floats());
    const auto out = store_all<T>(hard);
    for (std::size_t i = 0; i < hard.size(); ++i)
      ASSERT_EQ(out[i], from_float(hard[i])) << std::hex << bits<float>(hard[i]);
    expect_same_bits_of_two(in, hard);
  }

  /// Two registers at once, one after the other or, where they can, as the halves of words. All places of a register hold
  /// all numbers some time, since the second register is a rotated first one.
  static void expect_same_bits_of_two(const std::vector<word>& in, const std::vector<float>& hard) {
    constexpr std::size_t lanes = simd::vec<float>::lanes;
    const auto as_word = [](const T& x) { return std::bit_cast<word>(x); };
    for (std::size_t i = 0; i + 2 * lanes <= hard.size(); i += lanes + 1) {
      const auto low = simd::load(hard.data() + i), high = simd::load(hard.data() + i + lanes);
      T out[2 * lanes];
      simd::store_as(static_cast<T*>(out), low, high);
      for (std::size_t j = 0; j < 2 * lanes; ++j) ASSERT_EQ(as_word(out[j]), from_float(hard[i + j])) << i << " " << j;
      if constexpr (simd::pairs_are_words<T>) {
        simd::store_pairs(static_cast<T*>(out), low, high);
        for (std::size_t j = 0; j < lanes; ++j) {
          ASSERT_EQ(as_word(out[2 * j]), from_float(hard[i + j])) << i << " " << j;
          ASSERT_EQ(as_word(out[2 * j + 1]), from_float(hard[i + lanes + j])) << i << " " << j;
        }
      }
    }
    if constexpr (simd::pairs_are_words<T>) {
      for (std::size_t i = 0; i + 2 * lanes <= in.size(); i += 2 * lanes) {
        simd::vec<float> even, odd;
        simd::load_pairs(reinterpret_cast<const T*>(in.data() + i), even, odd);
        float x[lanes], y[lanes];
        simd::store(x, even);
        simd::store(y, odd);
        for (std::size_t j = 0; j < lanes; ++j) {
          ASSERT_EQ(bits<float>(x[j]), bits<float>(to_float(in[i + 2 * j]))) << i << " " << j;
          ASSERT_EQ(bits<float>(y[j]), bits<float>(to_float(in[i + 2 * j + 1]))) << i << " " << j;
        }
      }
    }
  }
};
using StorageTypes = testing::Types<posenc::half, posenc::bfloat16, my_half>;
TYPED_TEST_SUITE(Storage, StorageTypes);

TYPED_TEST(Storage, VectorsGiveTheBitsOfScalars) { TestFixture::expect_same_bits(); }

#if defined(__SSE2__)
TYPED_TEST(Storage, WhateverTheFlushingMode) {
  const unsigned before = _mm_getcsr();
  for (const unsigned mode : {0u, 0x8040u}) {  // flush to zero and denormals are zero: off, on
    _mm_setcsr((before & ~0x8040u) | mode);
    TestFixture::expect_same_bits();
  }
  _mm_setcsr(before);
}
#endif

TYPED_TEST(Storage, ToDouble) {
  const auto in = all_words();
  const auto numbers = load_all<TypeParam, double>(in);
  for (std::size_t i = 0; i < words; ++i) {
    const word w = in[i];
    const bool is_nan = TestFixture::is_half ? is_half_nan(w) : is_bfloat16_nan(w);
    if (is_nan) {
      ASSERT_TRUE(is_nan_bits<double>(bits<double>(numbers[i]))) << i;
    } else if (TestFixture::is_half && (w & 0x7fff) < 0x7c00) {
      ASSERT_EQ(bits<double>(numbers[i]), bits<double>(half_value(w))) << i;
    } else if (!TestFixture::is_half && ((w >> 7) & 255) != 0 && ((w >> 7) & 255) != 255) {
      ASSERT_EQ(numbers[i], static_cast<double>(simd::bfloat16_to_float(w))) << i;
    }
  }
}

template <class T>
T element(int i) {
  if constexpr (sizeof(T) == 2) {
    const word w = posenc::dtype_of<T> == posenc::dtype::half ? simd::float_to_half(static_cast<float>(i))
                                                              : simd::float_to_bfloat16(static_cast<float>(i));
    return std::bit_cast<T>(w);
  } else {
    return static_cast<T>(i);
  }
}

template <class T, class Real>
void expect_rows_of_any_length() {
  for (index_t n = 0; n <= 70; ++n)
    for (index_t offset = 0; offset < 3; ++offset) {
      const auto size = static_cast<std::size_t>(n + offset);
      std::vector<T> from(size, element<T>(99));  // exactly this long: a sanitizer sees reads beyond
      for (std::size_t i = 0; i < size; ++i) from[i] = element<T>(static_cast<int>(i) - 30);
      std::vector<Real> to(size + 1, Real(77));
      simd::load_row(from.data() + offset, n, to.data() + offset);
      for (index_t i = 0; i < offset; ++i) ASSERT_EQ(to[static_cast<std::size_t>(i)], Real(77));
      for (index_t i = offset; i < n + offset; ++i)
        ASSERT_EQ(to[static_cast<std::size_t>(i)], static_cast<Real>(i - 30));
      ASSERT_EQ(to.back(), Real(77));

      if constexpr (sizeof(T) >= 4 || sizeof(Real) == 4) {
        const std::vector<Real> numbers(to.begin(), to.end() - 1);
        std::vector<T> stored(size + 1, element<T>(77));
        simd::store_row(numbers.data() + offset, n, stored.data() + offset);
        const auto same = [](const T& a, const T& b) { return std::memcmp(&a, &b, sizeof(T)) == 0; };
        for (index_t i = 0; i < offset; ++i) ASSERT_TRUE(same(stored[static_cast<std::size_t>(i)], element<T>(77)));
        for (index_t i = offset; i < n + offset; ++i)
          ASSERT_TRUE(same(stored[static_cast<std::size_t>(i)], element<T>(static_cast<int>(i) - 30))) << n << " " << i;
        ASSERT_TRUE(same(stored.back(), element<T>(77)));
      }
    }
}

TEST(Rows, AnyLengthAndAlignmentAndNothingBeyond) {
  expect_rows_of_any_length<float, float>();
  expect_rows_of_any_length<posenc::half, float>();
  expect_rows_of_any_length<posenc::bfloat16, float>();
  expect_rows_of_any_length<my_half, float>();
  expect_rows_of_any_length<double, float>();
  expect_rows_of_any_length<double, double>();
  expect_rows_of_any_length<float, double>();
  expect_rows_of_any_length<posenc::half, double>();
  expect_rows_of_any_length<posenc::bfloat16, double>();
}

// ---- stores past the caches, and two registers of doubles as one of floats ----

template <class T, class Real>
void expect_streamed_bits() {
  constexpr std::size_t lanes = simd::vec<Real>::lanes, registers = 5;
  alignas(64) T streamed[lanes * registers];
  T stored[lanes * registers];
  std::mt19937 random(4);
  std::uniform_real_distribution<double> unit(-300, 300);
  for (std::size_t i = 0; i < registers; ++i) {
    Real x[lanes];
    for (Real& v : x) v = static_cast<Real>(unit(random));
    simd::store_as(static_cast<T*>(stored) + i * lanes, simd::load(x));
    simd::store_streaming_as(static_cast<T*>(streamed) + i * lanes, simd::load(x));
  }
  simd::streaming_fence();
  EXPECT_EQ(std::memcmp(streamed, stored, sizeof stored), 0);
}

TEST(Streaming, GivesTheBitsOfOtherStores) {
  expect_streamed_bits<float, float>();
  expect_streamed_bits<double, double>();
  expect_streamed_bits<double, float>();
  expect_streamed_bits<float, double>();
  expect_streamed_bits<posenc::half, float>();
  expect_streamed_bits<posenc::bfloat16, float>();
  expect_streamed_bits<my_half, float>();
}

TEST(Join, RoundsOnceAndKeepsTheOrder) {
  constexpr std::size_t n = simd::vec<double>::lanes;
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> unit(-2, 2);
  for (int trial = 0; trial < 200; ++trial) {
    double x[2 * n];
    for (double& v : x) v = unit(random);
    float joined[2 * n];
    static_assert(simd::vec<float>::lanes == 2 * n);
    simd::store(joined, simd::join(simd::load(x), simd::load(x + n)));
    for (std::size_t i = 0; i < 2 * n; ++i) ASSERT_EQ(bits<float>(joined[i]), bits<float>(static_cast<float>(x[i])));
  }
}

TEST(Rows, DoubleToFloatRoundsOnce) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> unit(-2, 2);
  std::vector<double> from(1000);
  std::vector<float> to(1000), back(1000);
  for (double& x : from) x = unit(random);
  simd::store_row(from.data(), 1000, to.data());
  simd::load_row(from.data(), 1000, back.data());
  for (std::size_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(to[i], static_cast<float>(from[i]));
    EXPECT_EQ(back[i], static_cast<float>(from[i]));
  }
}

}  // namespace
