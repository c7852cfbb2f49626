// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_CORE_FINITE_HPP
#define POSENC_CORE_FINITE_HPP

#include <bit>
#include <cstdint>
#include <type_traits>

#include "platform.hpp"

namespace posenc::inline POSENC_ABI::detail {

// Under -ffast-math `std::isfinite(x)` is folded to true. These read the bits instead. Compilers go on to recognise that,
// too: they merge `finite(bits of x) && x > 0` into one comparison that may assume that x is no NaN. So the bits pass
// through an empty instruction, after which nothing connects them with x. And the arguments are references, because a
// floating-point argument by value is assumed to be finite as well. Meant for parameters, not for inner loops.

/// The bits of x, which the compiler cannot trace back to x.
template <class Bits, class Real>
constexpr Bits untraced_bits(const Real& x) noexcept {
  static_assert(sizeof(Bits) == sizeof(Real));
  Bits bits = std::bit_cast<Bits>(x);
  if (!std::is_constant_evaluated()) __asm__("" : "+r"(bits));
  return bits;
}

/// Whether x is neither infinite nor NaN, in every floating-point mode.
constexpr bool is_finite(const double& x) noexcept {
  constexpr std::uint64_t exponent = 0x7ff0'0000'0000'0000;
  return (untraced_bits<std::uint64_t>(x) & exponent) != exponent;
}

constexpr bool is_finite(const float& x) noexcept {
  constexpr std::uint32_t exponent = 0x7f80'0000;
  return (untraced_bits<std::uint32_t>(x) & exponent) != exponent;
}

/// Whether x is 0 of either sign, in every floating-point mode: there, a comparison may take NaN for 0.
constexpr bool is_zero(const double& x) noexcept { return (untraced_bits<std::uint64_t>(x) << 1) == 0; }

constexpr bool is_zero(const float& x) noexcept { return (untraced_bits<std::uint32_t>(x) << 1) == 0; }

/// Whether x is NaN, in every floating-point mode.
constexpr bool is_nan(const double& x) noexcept {
  return (untraced_bits<std::uint64_t>(x) & 0x7fff'ffff'ffff'ffff) > 0x7ff0'0000'0000'0000;
}

constexpr bool is_nan(const float& x) noexcept { return (untraced_bits<std::uint32_t>(x) & 0x7fff'ffff) > 0x7f80'0000; }

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_CORE_FINITE_HPP
