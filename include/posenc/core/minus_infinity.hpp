// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_CORE_MINUS_INFINITY_HPP
#define POSENC_CORE_MINUS_INFINITY_HPP

#include <bit>
#include <cstdint>

#include "finite.hpp"

namespace posenc::inline POSENC_ABI::detail {

/// Whether x is minus infinity, by its bits: the logarithm of a sum of nothing, in every floating-point mode.
constexpr bool is_minus_infinity(const double& x) noexcept {
  return untraced_bits<std::uint64_t>(x) == 0xfff0'0000'0000'0000;
}
constexpr bool is_minus_infinity(const float& x) noexcept { return untraced_bits<std::uint32_t>(x) == 0xff80'0000; }

/// Minus infinity as a value that is only stored, never computed with.
template <class T>
constexpr T minus_infinity() noexcept {
  if constexpr (sizeof(T) == 8) {
    return std::bit_cast<T>(std::uint64_t{0xfff0'0000'0000'0000});
  } else {
    return std::bit_cast<T>(std::uint32_t{0xff80'0000});
  }
}

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_CORE_MINUS_INFINITY_HPP
