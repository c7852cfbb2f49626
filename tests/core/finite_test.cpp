// SPDX-License-Identifier: Apache-2.0
#include <posenc/core/finite.hpp>

#include <limits>

#include "ladder/ladder_support.hpp"

namespace {

using posenc::detail::is_finite;
using posenc::detail::is_nan;

// Also in constant expressions.
static_assert(is_finite(0.0) && is_finite(-1.5f) && !is_nan(0.0) && !is_nan(1.0f));

template <class Real>
struct Bits;
template <>
struct Bits<float> {
  using type = std::uint32_t;
  static constexpr type infinity = 0x7f80'0000, sign = 0x8000'0000;
};
template <>
struct Bits<double> {
  using type = std::uint64_t;
  static constexpr type infinity = 0x7ff0'0000'0000'0000, sign = 0x8000'0000'0000'0000;
};

template <class Real>
class FiniteBits : public testing::Test {};
using reals = testing::Types<float, double>;
TYPED_TEST_SUITE(FiniteBits, reals);

TYPED_TEST(FiniteBits, GoesByTheBits) {
  using bits = Bits<TypeParam>;
  struct {
    typename bits::type pattern;
    bool finite, nan;
  } const cases[] = {{0, true, false},
                     {1, true, false},
                     {bits::infinity - 1, true, false},
                     {bits::infinity, false, false},
                     {bits::infinity + 1, false, true},
                     {bits::infinity | bits::infinity >> 1, false, true},
                     {bits::sign - 1, false, true}};
  for (const auto& c : cases) {
    for (typename bits::type sign : {typename bits::type{0}, bits::sign}) {
      TypeParam x{};
      const typename bits::type pattern = c.pattern | sign;
      std::memcpy(&x, &pattern, sizeof x);
      EXPECT_EQ(is_finite(x), c.finite) << std::hex << pattern;
      EXPECT_EQ(is_nan(x), c.nan) << std::hex << pattern;
    }
  }
}

// What a check of a parameter does with it.
TEST(FiniteBeside, HoldsBesideComparisons) {
  for (const double& bad : ladder_test::not_finite()) {
    EXPECT_FALSE(is_finite(bad) && bad > 0);
    EXPECT_FALSE(is_finite(bad) && bad <= 0);
    EXPECT_TRUE(!is_finite(bad) || bad != 0);
    EXPECT_TRUE(!is_finite(bad) || bad == 0);
  }
}

}  // namespace
