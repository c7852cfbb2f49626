// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_SIMD_TANH_HPP
#define POSENC_SIMD_TANH_HPP

#include "exp.hpp"

namespace posenc::inline POSENC_ABI::simd {

/// The hyperbolic tangent, within 3 ulp of the true value for every x, also for tiny ones (so that cap * tanh(s /
/// cap) is s for small scores). Never beyond -1 and 1, exactly those for large |x| and infinities; keeps signed zeros
/// and NaN.
///
/// tanh |x| = t / (t + 2) with t = e^(2 |x|) - 1 = 2^n (e^r - 1) + (2^n - 1): nothing cancels.
template <class T>
POSENC_ALWAYS_INLINE vec<T> tanh(vec<T> x) noexcept {
  constexpr auto sign_bit = static_cast<integer_of<T>>(std::make_unsigned_t<integer_of<T>>{1} << (sizeof(T) * 8 - 1));
  constexpr T all_one = sizeof(T) == 4 ? T(10) : T(20);  // from here on the result rounds to 1
  const vec<T> magnitude = (min)(vec<T>(all_one), abs(x));
  const detail::reduced<T> reduced = detail::reduce_by_ln2(magnitude + magnitude);
  const vec<T> power = detail::power_of_two<T>(reduced.n.bits);
  const vec<T> t = fma(power, detail::expm1_reduced(reduced.r), opaque(power - vec<T>(T(1))));
  const vec<T> result = t / (t + vec<T>(T(2)));
  return from_bits<T>(as_integer(result) | (as_integer(x) & sign_bit));
}

}  // namespace posenc::inline POSENC_ABI::simd

#endif  // POSENC_SIMD_TANH_HPP
