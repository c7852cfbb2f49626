// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_CORE_MINUS_INFINITY_HPP
#define POSENC_CORE_MINUS_INFINITY_HPP

#include <cstdint>
#include <cstring>

#include "finite.hpp"

namespace posenc::inline POSENC_ABI::detail {

/// Whether x is minus infinity, by its bits: the logarithm of a sum of nothing, in every floating-point mode.
constexpr bool is_minus_infinity(const double& x) noexcept {
  return untraced_bits<std::uint64_t>(x) == 0xfff0'0000'0000'0000;
}
constexpr bool is_minus_infinity(const float& x) noexcept { return untraced_bits<std::uint32_t>(x) == 0xff80'0000; }

/// Stores minus infinity as bits. Nothing here passes it by value: with -ffast-math, compilers take arguments, results and
/// choices of floating-point type for finite and make what they like of this one.
inline void set_minus_infinity(double& x) noexcept {
  constexpr std::uint64_t bits = 0xfff0'0000'0000'0000;
  std::memcpy(&x, &bits, sizeof x);
}
inline void set_minus_infinity(float& x) noexcept {
  constexpr std::uint32_t bits = 0xff80'0000;
  std::memcpy(&x, &bits, sizeof x);
}

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_CORE_MINUS_INFINITY_HPP
