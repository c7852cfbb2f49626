// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <posenc/simd/matrix.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "accuracy.hpp"

namespace {

using namespace posenc_test;
namespace simd = posenc::simd;
using posenc::index_t;
using vec = simd::vec<float>;
constexpr std::size_t lanes = vec::lanes;
using row = std::array<float, lanes>;

std::array<row, simd::float_parts> parts_of(const row& x) {
  const simd::parts_of_floats split = simd::split(simd::load(x.data()));
  std::array<row, simd::float_parts> result;
  for (std::size_t p = 0; p < result.size(); ++p) simd::store(result[p].data(), split.part[p]);
  return result;
}

/// Random bits at every exponent from 2^low to 2^high.
std::vector<float> numbers(int low, int high) {
  std::mt19937 random(5);
  std::vector<float> all;
  for (int e = low; e <= high; ++e)
    for (int i = 0; i < 512; ++i)
      all.push_back(number<float>(static_cast<std::uint32_t>(e + 127) << 23 | (random() & 0x807f'ffffu)));
  for (const std::uint32_t mantissa :
       {0u, 1u, 0x7f'ffffu, 0x8000u, 0x7fffu, 0x17fffu, 0x18000u, 0x7f'8000u, 0x80u, 0x7fu})
    all.push_back(number<float>(0x3f80'0000u | mantissa));
  while (all.size() % lanes != 0) all.push_back(0.0f);
  return all;
}

TEST(FloatParts, AddUpToTheNumberAndAreBfloat16Numbers) {
  const std::vector<float> all = numbers(-86, 126);
  for (std::size_t at = 0; at < all.size(); at += lanes) {
    row x;
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(at), lanes, x.begin());
    const auto part = parts_of(x);
    for (std::size_t i = 0; i < lanes; ++i) {
      double sum = 0;
      for (const row& p : part) {
        EXPECT_EQ(bits(p[i]) & 0xffffu, 0u);
        sum += static_cast<double>(p[i]);
      }
      ASSERT_EQ(sum, static_cast<double>(x[i])) << std::hexfloat << x[i];
      // Rounded to nearest, so that products of two parts that are left out are small.
      EXPECT_LE(std::fabs(static_cast<double>(part[1][i])), 0x1p-8 * std::fabs(static_cast<double>(x[i])));
      EXPECT_LE(std::fabs(static_cast<double>(part[2][i])), 0x1p-16 * std::fabs(static_cast<double>(x[i])));
    }
  }
}

TEST(FloatParts, NaNHasAPartThatIsNaN) {
  for (const std::uint32_t nan : {0x7fc0'0000u, 0x7f80'0001u, 0x7fff'ffffu, 0xffff'ffffu, 0xffc0'0000u}) {
    row x{};
    x[1] = number<float>(nan);
    const auto part = parts_of(x);
    bool any = false;
    for (const row& p : part) any = any || (bits(p[1]) & ~sign_bit<float>) > infinity_bits<float>;
    EXPECT_TRUE(any) << std::hex << nan;
    EXPECT_EQ(bits(part[0][0]), 0u);
  }
}

TEST(FloatParts, AreStoredSideBySideOrInPairs) {
  row a, b;
  for (std::size_t i = 0; i < lanes; ++i) {
    a[i] = static_cast<float>(i + 1);
    b[i] = -static_cast<float>(i + 1);
  }
  const auto upper = [](float x) { return static_cast<std::uint16_t>(bits(x) >> 16); };
  std::array<std::uint16_t, 2 * lanes> stored{};
  simd::store_parts(stored.data(), simd::load(a.data()), simd::load(b.data()));
  for (std::size_t i = 0; i < lanes; ++i) {
    EXPECT_EQ(stored[i], upper(a[i]));
    EXPECT_EQ(stored[lanes + i], upper(b[i]));
  }
  simd::store_part_pairs(stored.data(), simd::load(a.data()), simd::load(b.data()));
  for (std::size_t i = 0; i < lanes; ++i) {
    EXPECT_EQ(stored[2 * i], upper(a[i]));
    EXPECT_EQ(stored[2 * i + 1], upper(b[i]));
  }
  vec first, second;
  simd::load_part_pairs(stored.data(), first, second);
  row a_again, b_again;
  simd::store(a_again.data(), first);
  simd::store(b_again.data(), second);
  EXPECT_EQ(a_again, a);
  EXPECT_EQ(b_again, b);
}

TEST(MagnitudeRange, OfEveryLane) {
  std::vector<float> x(4 * lanes, -1.0f);
  const std::uint32_t one = bits(1.0f);
  for (std::size_t i = 0; i < x.size(); ++i)
    for (const std::uint32_t other :
         {0u, 0x8000'0000u, 1u, 0x8000'0001u, 0x3f00'0000u, 0xc000'0000u, 0x7f80'0000u, 0xff80'0000u, 0x7fc0'0000u}) {
      x[i] = number<float>(other);
      simd::magnitude_range seen;
      seen.see(x.data(), static_cast<index_t>(lanes));
      seen.see(x.data() + lanes, static_cast<index_t>(x.size() - lanes));
      const std::uint32_t magnitude = other & 0x7fff'ffffu;
      EXPECT_EQ(seen.largest(), std::max(magnitude, one)) << std::hex << other;
      EXPECT_EQ(seen.smallest(), magnitude == 0 ? one : std::min(magnitude, one)) << std::hex << other;
      x[i] = -1.0f;
    }
  const simd::magnitude_range none;
  EXPECT_EQ(none.largest(), 0u);
  EXPECT_EQ(none.smallest(), ~0u);
}

TEST(BitsSeen, InEveryLaneOfBoth) {
  for (std::size_t i = 0; i < lanes; ++i)
    for (const bool second : {false, true}) {
      row zero{}, one{};
      one[i] = number<float>(1);
      simd::bits_seen seen;
      EXPECT_FALSE(seen.any());
      seen.see(simd::load(zero.data()), simd::load(zero.data()));
      EXPECT_FALSE(seen.any());
      seen.see(simd::load(second ? zero.data() : one.data()), simd::load(second ? one.data() : zero.data()));
      EXPECT_TRUE(seen.any());
    }
}

#if defined(POSENC_ISA_AMX)

struct operands {
  std::vector<std::uint16_t> a = std::vector<std::uint16_t>(512), b = std::vector<std::uint16_t>(512);
  std::vector<float> sums = std::vector<float>(256);

  /// b as the unit reads it.
  std::uint16_t& b_at(std::size_t k, std::size_t j) { return b[k / 2 * 32 + 2 * j + k % 2]; }
  void multiply() {
    const simd::matrix_session session;
    simd::load_matrix<0>(sums.data(), 16);
    simd::load_matrix<1>(a.data(), 32);
    simd::load_matrix<2>(b.data(), 32);
    simd::multiply_matrices<0, 1, 2>();
    simd::store_matrix<0>(sums.data(), 16);
  }
};

class MatrixUnit : public testing::Test {
  void SetUp() override {
    if (!simd::matrix_unit_allowed()) GTEST_SKIP() << "this process may not use the matrix unit";
  }
};

TEST_F(MatrixUnit, MultipliesAndAdds) {
  std::mt19937 random(7);
  operands x;
  const auto small_number = [&] { return static_cast<float>(static_cast<int>(random() % 33) - 16); };
  const auto half_of = [](float f) { return static_cast<std::uint16_t>(bits(f) >> 16); };
  for (auto& i : x.a) i = half_of(small_number());
  for (auto& i : x.b) i = half_of(small_number());
  for (auto& i : x.sums) i = small_number();
  const operands before = x;
  x.multiply();
  const auto value = [](std::uint16_t h) {
    return static_cast<double>(number<float>(static_cast<std::uint32_t>(h) << 16));
  };
  for (std::size_t i = 0; i < 16; ++i)
    for (std::size_t j = 0; j < 16; ++j) {
      double exact = static_cast<double>(before.sums[i * 16 + j]);
      for (std::size_t k = 0; k < 32; ++k) exact += value(before.a[i * 32 + k]) * value(x.b_at(k, j));
      EXPECT_EQ(static_cast<double>(x.sums[i * 16 + j]), exact) << i << " " << j;
    }
}

TEST_F(MatrixUnit, ClearsAndLeavesOtherMemoryAlone) {
  std::vector<float> memory(18 * 20, 3.0f);
  {
    const simd::matrix_session session;
    simd::load_matrix<5>(memory.data(), 16);
    simd::clear_matrix<5>();
    simd::store_matrix<5>(memory.data() + 20 + 2, 20);
  }
  for (std::size_t i = 0; i < 18; ++i)
    for (std::size_t j = 0; j < 20; ++j)
      EXPECT_EQ(memory[i * 20 + j], i >= 1 && i < 17 && j >= 2 && j < 18 ? 0.0f : 3.0f) << i << " " << j;
}

TEST_F(MatrixUnit, AddsNothingExactlyAndKeepsNaN) {
  operands x;
  x.sums[3] = 0x1.fffffep-100f;
  x.sums[20] = number<float>(0x7fc0'0000u);
  x.a[7 * 32] = 0x7fc0u;
  const float before = x.sums[3];
  x.multiply();
  EXPECT_EQ(bits(x.sums[3]), bits(before));
  EXPECT_GT(bits(x.sums[20]) & ~sign_bit<float>, infinity_bits<float>);
  for (std::size_t j = 0; j < 16; ++j)
    EXPECT_GT(bits(x.sums[7 * 16 + j]) & ~sign_bit<float>, infinity_bits<float>) << "NaN times 0";
  EXPECT_EQ(bits(x.sums[0]), 0u);
}

#endif

}  // namespace
