// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTS_ATTENTION_ATTENTION_SUPPORT_HPP
#define POSENC_TESTS_ATTENTION_ATTENTION_SUPPORT_HPP

#include <gtest/gtest.h>
#include <posenc/core/eigen.hpp>
#include <posenc/core/finite.hpp>
#include <posenc/core/minus_infinity.hpp>
#include <posenc/core/tensor_view.hpp>
#include <posenc/core/token_builders.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

/// Buffers, random numbers and tolerances that the tests of attention share.
namespace attention_test {

using posenc::index_t;
using posenc::tensor_view;
using random_engine = std::mt19937_64;

inline index_t pick(random_engine& random, index_t low, index_t high) {
  return std::uniform_int_distribution<index_t>(low, high)(random);
}
template <class T>
T one_of(random_engine& random, std::initializer_list<T> values) {
  return values.begin()[pick(random, 0, static_cast<index_t>(values.size()) - 1)];
}
inline bool chance(random_engine& random, index_t one_in) { return pick(random, 1, one_in) == 1; }

/// The seed of the random tests: POSENC_TEST_SEED, or a fixed one. It is part of every failure's text.
inline std::uint64_t test_seed() {
  static const std::uint64_t seed = [] {
    const char* const given = std::getenv("POSENC_TEST_SEED");
    const std::uint64_t value = given == nullptr ? 20240229 : std::strtoull(given, nullptr, 10);
    std::printf("POSENC_TEST_SEED=%llu\n", static_cast<unsigned long long>(value));
    return value;
  }();
  return seed;
}

/// The engine of one case, so that a case can be run again alone.
inline random_engine engine_of(std::uint64_t family, std::uint64_t number) {
  std::seed_seq seeds{test_seed() & 0xffffffffu, test_seed() >> 32, family, number};
  return random_engine(seeds);
}

/// A multiple of 1/64 within +-2: exact in every element type.
inline double random_number(random_engine& random) { return static_cast<double>(pick(random, -128, 128)) / 64; }

// ---- numbers by their bits, so that -ffast-math cannot change them ----

template <class T>
T from_double(double x) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(x);
  } else {
    return static_cast<T>(static_cast<float>(x));
  }
}
template <class T>
double to_double(const T& x) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<double>(x);
  } else {
    return static_cast<double>(static_cast<float>(x));
  }
}

template <class T>
using bits_of =
    std::conditional_t<sizeof(T) == 2, std::uint16_t, std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;

template <class T>
constexpr bits_of<T> infinity_bits() {
  if constexpr (std::is_same_v<T, double>) return 0x7ff0'0000'0000'0000u;
  if constexpr (std::is_same_v<T, float>) return 0x7f80'0000u;
  if constexpr (std::is_same_v<T, posenc::half>) return 0x7c00u;
  if constexpr (std::is_same_v<T, posenc::bfloat16>) return 0x7f80u;
}

/// Writes NaN, infinity or minus infinity.
template <class T>
void poison(T& x, random_engine& random) {
  using bits = bits_of<T>;
  bits b = infinity_bits<T>();
  switch (pick(random, 0, 3)) {
    case 0: b = static_cast<bits>(b | 1u); break;                                // signalling NaN
    case 1: b = static_cast<bits>(b | (bits{1} << (8 * sizeof(T) - 1))); break;  // minus infinity
    case 2: break;
    default: b = static_cast<bits>(~bits{0}); break;  // quiet NaN
  }
  std::memcpy(static_cast<void*>(&x), &b, sizeof x);
}

template <class T>
bool is_finite(const T& x) {
  bits_of<T> b;
  std::memcpy(&b, &x, sizeof b);
  __asm__("" : "+r"(b));  // else a compiler may know what -ffast-math says of x
  return (b & infinity_bits<T>()) != infinity_bits<T>();
}
template <class T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

// ---- buffers ----

enum class layout {
  heads_first,   ///< [batch, heads, tokens, dim]
  tokens_first,  ///< [batch, tokens, heads, dim]
  scattered      ///< axes in any order and direction, odd gaps, an unaligned start
};

/// Memory with a view of it; what lies between the elements is a pattern that nobody may touch.
template <class T>
struct buffer {
  std::vector<T> memory;
  tensor_view<T> view;
  std::vector<bool> used;  ///< which elements of the memory the view names

  static T filler() {
    T x;
    std::memset(static_cast<void*>(&x), 0x5a, sizeof x);
    return x;
  }

  /// Whether everything outside of the view is as it was.
  bool gaps_untouched() const {
    for (std::size_t i = 0; i < memory.size(); ++i)
      if (!used[i] && !same_bits(memory[i], filler())) return false;
    return true;
  }

  tensor_view<const T> read_only() const { return tensor_view<const T>(view); }

  template <class F>
  void for_each(F&& f) const {
    for (index_t b = 0; b < view.batch(); ++b)
      for (index_t h = 0; h < view.heads(); ++h)
        for (index_t t = 0; t < view.tokens(); ++t)
          for (index_t d = 0; d < view.dim(); ++d) f(b, h, t, d);
  }

  /// [batch][heads][tokens][dim] of the elements, in double.
  std::vector<double> numbers() const {
    std::vector<double> result;
    for_each([&](index_t b, index_t h, index_t t, index_t d) { result.push_back(to_double(view(b, h, t, d))); });
    return result;
  }
};

template <class T>
buffer<T> make_buffer(random_engine& random, layout how, index_t batch, index_t heads, index_t tokens, index_t dim) {
  const std::array<index_t, 4> extents{batch, heads, tokens, dim};
  std::array<std::size_t, 3> order{0, 1, 2};  // outermost first
  const bool scattered = how == layout::scattered;
  if (how == layout::tokens_first) order = {0, 2, 1};
  if (scattered) std::shuffle(order.begin(), order.end(), random);
  std::array<index_t, 4> strides{0, 0, 0, 1};
  index_t size = dim, first = scattered ? pick(random, 0, 15) : 0;
  for (std::size_t i = 3; i-- > 0;) {
    if (scattered) size += pick(random, 0, 5);
    const std::size_t axis = order[i];
    const index_t extent = extents[axis];
    strides[axis] = size;
    size *= extent > 0 ? extent : 1;
    if (scattered && extent > 0 && chance(random, 3)) {
      first += (extent - 1) * strides[axis];
      strides[axis] = -strides[axis];
    }
  }
  buffer<T> result;
  result.memory.assign(static_cast<std::size_t>(size + 16), buffer<T>::filler());
  result.view = tensor_view<T>(result.memory.data() + first, extents, strides);
  result.used.assign(result.memory.size(), false);
  result.for_each([&](index_t b, index_t h, index_t t, index_t d) {
    result.used[static_cast<std::size_t>(&result.view(b, h, t, d) - result.memory.data())] = true;
  });
  return result;
}

/// Contiguous [batch, heads, tokens, dim].
template <class T>
buffer<T> make_buffer(index_t batch, index_t heads, index_t tokens, index_t dim) {
  random_engine random;
  return make_buffer<T>(random, layout::heads_first, batch, heads, tokens, dim);
}

template <class T>
void fill(const buffer<T>& to, random_engine& random) {
  to.for_each(
      [&](index_t b, index_t h, index_t t, index_t d) { to.view(b, h, t, d) = from_double<T>(random_number(random)); });
}
template <class T>
buffer<T> random_buffer(random_engine& random, index_t batch, index_t heads, index_t tokens, index_t dim) {
  auto result = make_buffer<T>(batch, heads, tokens, dim);
  fill(result, random);
  return result;
}

/// Bit for bit the same elements.
template <class T>
testing::AssertionResult same_elements(const buffer<T>& a, const buffer<T>& b) {
  testing::AssertionResult result = testing::AssertionSuccess();
  a.for_each([&](index_t i, index_t h, index_t t, index_t d) {
    if (result && !same_bits(a.view(i, h, t, d), b.view(i, h, t, d)))
      result = testing::AssertionFailure()
               << "differ at [" << i << ", " << h << ", " << t << ", " << d << "]: " << to_double(a.view(i, h, t, d))
               << " and " << to_double(b.view(i, h, t, d));
  });
  return result;
}

// ---- tolerances ----

/// How far an output may be off, relative to the largest |v| that is seen; lse relative to 1 + |lse|.
template <class T>
constexpr double tolerance() {
  if constexpr (std::is_same_v<T, double>) return 1e-12;
  if constexpr (std::is_same_v<T, float>) return 2e-6;
  if constexpr (std::is_same_v<T, posenc::half>) return 2e-3;
  if constexpr (std::is_same_v<T, posenc::bfloat16>) return 1e-2;
}

/// The widest tolerance of several element types.
template <class... T>
constexpr double widest_tolerance() {
  return (std::max)({tolerance<T>()...});
}

/// "is finite and within the bound", safe under -ffast-math.
template <class T>
bool within(const T& value, double expected, double bound) {
  return is_finite(value) && std::fabs(to_double(value) - expected) <= bound;
}

}  // namespace attention_test

#endif  // POSENC_TESTS_ATTENTION_ATTENTION_SUPPORT_HPP
