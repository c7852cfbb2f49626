// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_CORE_FINITE_HPP
#define POSENC_CORE_FINITE_HPP

#include <bit>
#include <cstdint>

#include "platform.hpp"

namespace posenc::inline POSENC_ABI::detail {

// Under -ffast-math `std::isfinite(x)` is folded to true. These read the bits instead. The argument is a reference,
// because some compilers then also assume that no floating-point *argument by value* is NaN or infinite.

/// Whether x is neither infinite nor NaN, in every floating-point mode.
constexpr bool is_finite(const double& x) noexcept {
  constexpr std::uint64_t exponent = 0x7ff0'0000'0000'0000;
  return (std::bit_cast<std::uint64_t>(x) & exponent) != exponent;
}

constexpr bool is_finite(const float& x) noexcept {
  constexpr std::uint32_t exponent = 0x7f80'0000;
  return (std::bit_cast<std::uint32_t>(x) & exponent) != exponent;
}

/// Whether x is NaN, in every floating-point mode.
constexpr bool is_nan(const double& x) noexcept {
  return (std::bit_cast<std::uint64_t>(x) & 0x7fff'ffff'ffff'ffff) > 0x7ff0'0000'0000'0000;
}

constexpr bool is_nan(const float& x) noexcept { return (std::bit_cast<std::uint32_t>(x) & 0x7fff'ffff) > 0x7f80'0000; }

/// Minus infinity, by its bits.
constexpr bool is_minus_infinity(double x) noexcept { return std::bit_cast<std::uint64_t>(x) == 0xfff0000000000000u; }

/// Minus infinity as a value that is only stored, never computed with.
template <class T>
constexpr T minus_infinity() noexcept {
  if constexpr (sizeof(T) == 8) {
    return std::bit_cast<T>(std::uint64_t{0xfff0000000000000u});
  } else {
    return std::bit_cast<T>(std::uint32_t{0xff800000u});
  }
}

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_CORE_FINITE_HPP
