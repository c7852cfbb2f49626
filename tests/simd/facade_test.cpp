// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <posenc/simd/simd.hpp>

#include <random>
#include <string>
#include <vector>

#include "accuracy.hpp"

// Every operation of the facade against a plain model of one lane. Numbers are compared by bits, so that signed zeros
// count and -ffast-math has nothing to assume.
namespace {

using namespace posenc_test;
namespace simd = posenc::simd;

template <class T>
class Facade : public testing::Test {
 public:
  using vec = simd::vec<T>;
  using word = bits_of<T>;
  static constexpr int lanes = vec::lanes;

  /// One register's worth of bit patterns.
  struct row {
    word lane[lanes];
    vec load() const {
      T numbers[lanes];
      std::memcpy(numbers, lane, sizeof numbers);
      return simd::load(numbers);
    }
  };
  static row from(vec v) {
    T numbers[lanes];
    simd::store(numbers, v);
    row result;
    std::memcpy(result.lane, numbers, sizeof numbers);
    return result;
  }
  /// A mask as 0 and 1; also that a lane has all of its bits or none.
  static std::vector<bool> from(simd::mask<T> m) {
    std::vector<bool> result;
    const row ones = from(simd::select(m, vec(T(1)), vec(T(0))));
    for (int i = 0; i < lanes; ++i) {
      EXPECT_TRUE(m.r[i] == 0 || m.r[i] == -1);
      result.push_back(ones.lane[i] != 0);
    }
    return result;
  }

  /// Zeros, normal numbers of all sizes, and the largest ones; no denormals, since -ffast-math flushes them.
  static std::vector<word> finite() {
    std::vector<word> result;
    for (const T x : {T(0), T(1), T(1.5), T(-3.25), T(1e-30), T(7e30), T(0.1), T(123456.789)}) {
      result.push_back(bits<T>(x));
      result.push_back(bits<T>(x) ^ sign_bit<T>);
    }
    for (const T& x : {(std::numeric_limits<T>::max)(), (std::numeric_limits<T>::min)()}) {
      result.push_back(bits<T>(x));
      result.push_back(bits<T>(x) ^ sign_bit<T>);
    }
    std::mt19937_64 random(1);
    std::uniform_real_distribution<double> unit(-4, 4);
    for (int i = 0; i < 44; ++i) result.push_back(bits<T>(static_cast<T>(unit(random))));
    return result;
  }
  static std::vector<word> with_special() {
    std::vector<word> result = finite();
    result.push_back(infinity_bits<T>);
    result.push_back(infinity_bits<T> | sign_bit<T>);
    for (const word w : nan_bits<T>()) result.push_back(w);
    return result;
  }

  /// Calls f(a, b) with registers that hold all pairs of the given numbers.
  template <class F>
  static void for_pairs(const std::vector<word>& numbers, F f) {
    for (const word a : numbers)
      for (std::size_t j = 0; j < numbers.size(); j += lanes) {
        row x, y;
        for (int i = 0; i < lanes; ++i) {
          x.lane[i] = a;
          y.lane[i] = numbers[(j + static_cast<std::size_t>(i)) % numbers.size()];
        }
        f(x, y);
        f(y, x);
      }
  }
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Facade, Types);

/// Keeps the model from being merged with anything.
template <class T>
T settled(T x) {
  volatile T y = x;
  return y;
}

TYPED_TEST(Facade, Isa) {
  const std::string isa = simd::isa();
#if defined(__AMX_BF16__) && defined(__linux__) && !defined(POSENC_NO_AMX)
  EXPECT_EQ(isa, "avx512amx");
#elif defined(__AVX512BF16__)
  EXPECT_EQ(isa, "avx512bf16");
#elif defined(__AVX512F__)
  EXPECT_EQ(isa, "avx512");
#elif defined(__AVX2__)
  EXPECT_EQ(isa, "avx2");
#elif defined(__aarch64__)
  EXPECT_EQ(isa, "neon");
#else
  EXPECT_FALSE(isa.empty());
#endif
  EXPECT_EQ(static_cast<std::size_t>(TestFixture::lanes) * sizeof(TypeParam), sizeof(simd::vec<TypeParam>));
}

TYPED_TEST(Facade, LoadsAndStoresWithoutAlignment) {
  using T = TypeParam;
  constexpr std::size_t n = TestFixture::lanes;
  std::vector<T> memory(3 * n), out(3 * n, T(-1));
  for (std::size_t i = 0; i < 3 * n; ++i) memory[i] = static_cast<T>(i);
  for (std::size_t offset = 0; offset <= n; ++offset) {
    simd::store(out.data() + offset, simd::load(memory.data() + offset));
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(out[offset + i], memory[offset + i]);
    EXPECT_EQ(out[offset + n], T(-1));
  }
}

TYPED_TEST(Facade, Arithmetic) {
  using T = TypeParam;
  using F = TestFixture;
  F::for_pairs(F::finite(), [](typename F::row a, typename F::row b) {
    const auto sum = F::from(a.load() + b.load()), difference = F::from(a.load() - b.load());
    const auto product = F::from(a.load() * b.load()), negative = F::from(-a.load()),
               magnitude = F::from(simd::abs(a.load()));
    for (int i = 0; i < F::lanes; ++i) {
      const T x = number<T>(a.lane[i]), y = number<T>(b.lane[i]);
      EXPECT_EQ(sum.lane[i], bits<T>(settled<T>(x + y)));
      EXPECT_EQ(difference.lane[i], bits<T>(settled<T>(x - y)));
      EXPECT_EQ(product.lane[i], bits<T>(settled<T>(x * y)));
      EXPECT_EQ(negative.lane[i], a.lane[i] ^ sign_bit<T>);
      EXPECT_EQ(magnitude.lane[i], a.lane[i] & ~sign_bit<T>);
    }
  });
}

TYPED_TEST(Facade, DivisionIsCorrectlyRounded) {
  using T = TypeParam;
  using F = TestFixture;
  F::for_pairs(F::finite(), [](typename F::row a, typename F::row b) {
    const auto quotient = F::from(a.load() / b.load());
    for (int i = 0; i < F::lanes; ++i) {
      const T y = number<T>(b.lane[i]);
      if (y == 0) continue;
      const wide_of<T> exact = static_cast<wide_of<T>>(number<T>(a.lane[i])) / static_cast<wide_of<T>>(y);
      const wide_of<T> size = exact < 0 ? -exact : exact;
      if (size > wide_of<T>((std::numeric_limits<T>::max)()) || size < wide_of<T>((std::numeric_limits<T>::min)()))
        continue;
      EXPECT_LE(ulps<T>(number<T>(quotient.lane[i]), exact), 0.50001);
    }
  });
}

TYPED_TEST(Facade, FusedMultiplyAdd) {
  using T = TypeParam;
  using F = TestFixture;
  // (1 + e)^2 - 1 - 2 e is e^2 rounded once and 0 rounded twice.
  const T e = std::numeric_limits<T>::epsilon();
  const T result =
      number<T>(F::from(simd::fma(simd::vec<T>(1 + e), simd::vec<T>(1 + e), simd::vec<T>(-1 - 2 * e))).lane[0]);
  EXPECT_EQ(result, simd::has_fma ? e * e : T(0));
  F::for_pairs(F::finite(), [](typename F::row a, typename F::row b) {
    const auto got = F::from(simd::fma(a.load(), b.load(), simd::vec<T>(T(2))));
    for (int i = 0; i < F::lanes; ++i) {
      const T x = number<T>(a.lane[i]), y = number<T>(b.lane[i]);
      if (simd::has_fma) {
        const wide_of<T> exact = static_cast<wide_of<T>>(x) * static_cast<wide_of<T>>(y) + 2;
        if ((exact < 0 ? -exact : exact) > wide_of<T>((std::numeric_limits<T>::max)())) continue;
        EXPECT_LE(ulps<T>(number<T>(got.lane[i]), exact), 0.501);
      } else {
        EXPECT_EQ(got.lane[i], bits<T>(settled<T>(settled<T>(x * y) + 2)));
      }
    }
  });
}

TYPED_TEST(Facade, Comparisons) {
  using T = TypeParam;
  using F = TestFixture;
#if defined(__FAST_MATH__)
  const auto numbers = F::finite();  // comparisons with NaN are the compiler's
#else
  const auto numbers = F::with_special();
#endif
  F::for_pairs(numbers, [](typename F::row a, typename F::row b) {
    const auto x = a.load(), y = b.load();
    const auto less = F::from(x < y), less_equal = F::from(x <= y), greater = F::from(x > y);
    const auto greater_equal = F::from(x >= y), equal = F::from(x == y);
    const auto both = F::from((x <= y) & (x >= y)), either = F::from((x < y) | (x > y)), neither = F::from(~(x == y));
    for (int i = 0; i < F::lanes; ++i) {
      const auto lane = static_cast<std::size_t>(i);
      const T p = number<T>(a.lane[i]), q = number<T>(b.lane[i]);
      EXPECT_EQ(less[lane], p < q);
      EXPECT_EQ(less_equal[lane], p <= q);
      EXPECT_EQ(greater[lane], p > q);
      EXPECT_EQ(greater_equal[lane], p >= q);
      EXPECT_EQ(equal[lane], p == q);
      EXPECT_EQ(both[lane], p == q);
      EXPECT_EQ(either[lane], p < q || p > q);
      EXPECT_EQ(neither[lane], !(p == q));
    }
  });
}

TYPED_TEST(Facade, MinimumAndMaximumGiveTheSecondIfOneIsNan) {
  using T = TypeParam;
  using F = TestFixture;
  F::for_pairs(F::with_special(), [](typename F::row a, typename F::row b) {
    const auto largest = F::from(simd::max(a.load(), b.load())), smallest = F::from(simd::min(a.load(), b.load()));
    for (int i = 0; i < F::lanes; ++i) {
      const auto p = a.lane[i], q = b.lane[i];
      if (is_nan_bits<T>(p) || is_nan_bits<T>(q)) {
        EXPECT_EQ(largest.lane[i], q);
        EXPECT_EQ(smallest.lane[i], q);
      } else {
        // Bits of floating-point numbers are ordered like signed magnitudes.
        const auto key = [](bits_of<T> w) {
          const auto magnitude = static_cast<simd::integer_of<T>>(w & ~sign_bit<T>);
          return w & sign_bit<T> ? -magnitude : magnitude;
        };
        EXPECT_EQ(key(largest.lane[i]), (std::max)(key(p), key(q)));
        EXPECT_EQ(key(smallest.lane[i]), (std::min)(key(p), key(q)));
      }
    }
  });
}

TYPED_TEST(Facade, SelectMovesBits) {
  using T = TypeParam;
  using F = TestFixture;
  F::for_pairs(F::with_special(), [](typename F::row a, typename F::row b) {
    const std::uint64_t chosen = a.lane[0] * 0x9e37'79b9'7f4a'7c15 >> 40;
    const auto got = F::from(simd::select(simd::mask_from_bits<T>(chosen), a.load(), b.load()));
    for (int i = 0; i < F::lanes; ++i) EXPECT_EQ(got.lane[i], chosen >> i & 1 ? a.lane[i] : b.lane[i]);
  });
}

TYPED_TEST(Facade, MaskFromBits) {
  using F = TestFixture;
  for (int i = 0; i < F::lanes; ++i) {
    const auto one = F::from(simd::mask_from_bits<TypeParam>(std::uint64_t{1} << i));
    const auto others = F::from(simd::mask_from_bits<TypeParam>(~(std::uint64_t{1} << i)));
    for (int j = 0; j < F::lanes; ++j) {
      EXPECT_EQ(one[static_cast<std::size_t>(j)], i == j);
      EXPECT_EQ(others[static_cast<std::size_t>(j)], i != j);
    }
  }
}

TYPED_TEST(Facade, BitsAndIntegers) {
  using T = TypeParam;
  using F = TestFixture;
  F::for_pairs(F::with_special(), [](typename F::row a, typename F::row) {
    const auto back = F::from(simd::from_bits<T>(simd::as_integer(a.load())));
    const auto opaque = F::from(simd::opaque(a.load()));
    for (int i = 0; i < F::lanes; ++i) {
      EXPECT_EQ(back.lane[i], a.lane[i]);
      EXPECT_EQ(opaque.lane[i], a.lane[i]);
      EXPECT_EQ(simd::as_integer(a.load())[i], static_cast<simd::integer_of<T>>(a.lane[i]));
    }
  });
  const auto counted = F::from(simd::iota<T>());
  typename simd::vec<T>::integer integers;
  for (int i = 0; i < F::lanes; ++i) integers[i] = (i % 2 ? -1 : 1) * (i * 1234567 + 1);
  const auto reals = F::from(simd::to_real<T>(integers));
  for (int i = 0; i < F::lanes; ++i) {
    EXPECT_EQ(counted.lane[i], bits<T>(static_cast<T>(i)));
    EXPECT_EQ(reals.lane[i], bits<T>(static_cast<T>(integers[i])));
  }
}

TYPED_TEST(Facade, Shuffles) {
  using T = TypeParam;
  using F = TestFixture;
  constexpr int n = F::lanes;
  F::for_pairs(F::with_special(), [](typename F::row a, typename F::row b) {
    for (int i = 0; i < n; ++i) a.lane[i] ^= static_cast<bits_of<T>>(i);  // tells the lanes apart
    const auto swapped = F::from(simd::swap_pairs(a.load())), negated = F::from(simd::negate_even(a.load()));
    const auto lower_twice = F::from(simd::twice<0>(a.load())), upper_twice = F::from(simd::twice<1>(a.load()));
    const auto lower = F::from(simd::zip<0>(a.load(), b.load())), upper = F::from(simd::zip<1>(a.load(), b.load()));
    for (int i = 0; i < n; ++i) {
      EXPECT_EQ(swapped.lane[i], a.lane[i % 2 == 0 ? i + 1 : i - 1]);
      EXPECT_EQ(negated.lane[i], i % 2 == 0 ? a.lane[i] ^ sign_bit<T> : a.lane[i]);
      EXPECT_EQ(lower_twice.lane[i], a.lane[i / 2]);
      EXPECT_EQ(upper_twice.lane[i], a.lane[n / 2 + i / 2]);
      EXPECT_EQ(lower.lane[i], (i % 2 == 0 ? a : b).lane[i / 2]);
      EXPECT_EQ(upper.lane[i], (i % 2 == 0 ? a : b).lane[n / 2 + i / 2]);
    }
  });
}

TYPED_TEST(Facade, TransposeOfASquare) {
  using T = TypeParam;
  constexpr int n = TestFixture::lanes;
  simd::vec<T> rows[n];
  for (int i = 0; i < n; ++i) rows[i] = simd::iota<T>() + simd::vec<T>(100 * i);
  simd::transpose(rows);
  for (int i = 0; i < n; ++i) {
    const auto transposed = TestFixture::from(rows[i]);
    for (int j = 0; j < n; ++j) EXPECT_EQ(transposed.lane[j], bits<T>(static_cast<T>(100 * j + i)));
  }
}

TYPED_TEST(Facade, Reductions) {
  using T = TypeParam;
  using F = TestFixture;
  std::mt19937 random(3);
  std::uniform_real_distribution<T> unit(-1, 1);
  for (int trial = 0; trial < 200; ++trial) {
    T x[F::lanes], tree[F::lanes];
    for (int i = 0; i < F::lanes; ++i) x[i] = tree[i] = unit(random);
    for (int half = F::lanes / 2; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) tree[i] = settled<T>(tree[i] + tree[i + half]);
    EXPECT_EQ(simd::reduce_add(simd::load(x)), tree[0]);
    EXPECT_EQ(simd::reduce_max(simd::load(x)), *std::max_element(x, x + F::lanes));
  }
}

TYPED_TEST(Facade, UnrollCountsUp) {
  int expected = 0;
  simd::unroll<7>([&](auto i) { EXPECT_EQ(decltype(i)::value, expected++); });
  EXPECT_EQ(expected, 7);
  simd::unroll<0>([&](auto) { ADD_FAILURE(); });
}

#if defined(__FAST_MATH__)
// What the library's own functions rely on.
TYPED_TEST(Facade, FastMathDoesNotReassociate) {
  using T = TypeParam;
  const simd::vec<T> big(sizeof(T) == 4 ? T(0x1.8p23) : T(0x1.8p52)), x(T(0.3));
  EXPECT_EQ(number<T>(TestFixture::from((x + big) - big).lane[0]), T(0));
}
#endif

}  // namespace
