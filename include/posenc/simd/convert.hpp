// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_SIMD_CONVERT_HPP
#define POSENC_SIMD_CONVERT_HPP

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../core/dtype.hpp"
#include "simd.hpp"

/// Between the types that buffers have and the registers that kernels compute in. Conversions to 16 bits round to
/// nearest even; too large is infinite; NaN stays NaN; denormal numbers are as exact as others, whatever the caller's
/// floating-point mode flushes: they are made of integers. All forms, scalar, vector and whole rows, on every ISA
/// give the same bits.
namespace posenc::inline POSENC_ABI::simd {

/// One IEEE binary16 number, given by its bits, as a float: exact.
constexpr float half_to_float(std::uint16_t half) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16, magnitude = half & 0x7fffu;
  std::uint32_t bits = 0;
  if (magnitude >= 0x7c00u) {
    bits = 0x7f80'0000u | (magnitude << 13) | (magnitude > 0x7c00u ? 0x40'0000u : 0);
  } else if (magnitude >= 0x400u) {
    bits = (magnitude << 13) + (112u << 23);
  } else if (magnitude != 0) {
    const auto shift = static_cast<std::uint32_t>(std::countl_zero(magnitude)) - 21;  // the leading bit moves to bit 10
    bits = ((113u - shift) << 23) | (((magnitude << shift) & 0x3ffu) << 13);
  }
  return std::bit_cast<float>(sign | bits);
}

/// The bits of the nearest binary16 number. (The argument is a reference since, with -ffast-math, some compilers assume
/// that no floating-point argument by value is NaN or infinite.)
constexpr std::uint16_t float_to_half(const float& x) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fff'ffffu;
  std::uint32_t half = 0;
  if (magnitude > 0x7f80'0000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x477f'f000u) {  // 65520, half way between the largest number and the next power of two
    half = 0x7c00u;
  } else if (magnitude >= 0x3880'0000u) {  // 2^-14, the smallest normal number
    half = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  } else if (magnitude >= 0x3300'0000u) {  // 2^-25, half of the smallest number; this one rounds to even, 0
    const std::uint32_t mantissa = (magnitude & 0x7f'ffffu) | 0x80'0000u, shift = 126u - (magnitude >> 23);
    half = (mantissa + (1u << (shift - 1)) - 1u + ((mantissa >> shift) & 1u)) >> shift;
  }
  return static_cast<std::uint16_t>(sign | half);
}

/// One bfloat16 number, given by its bits, as a float: exact.
constexpr float bfloat16_to_float(std::uint16_t bfloat16) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bfloat16) << 16);
}

/// The bits of the nearest bfloat16 number.
constexpr std::uint16_t float_to_bfloat16(const float& x) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fff'ffffu) > 0x7f80'0000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

namespace detail {

/// A vector with as many lanes as vec<Real> has, of another type.
template <class T, class Real>
using lanes_like = backend::vector<T, vec<Real>::lanes* static_cast<int>(sizeof(T))>;
template <class T, class Real>
using unaligned_lanes_like = typename backend::vector_type<T, vec<Real>::lanes* static_cast<int>(sizeof(T))>::unaligned;

template <class Real>
using words = lanes_like<std::uint32_t, Real>;
template <class Real>
using floats = lanes_like<float, Real>;

template <class Real>
POSENC_ALWAYS_INLINE words<Real> load_words(const std::uint16_t* from) noexcept {
#if defined(POSENC_DETAIL_HAS_WIDEN)
  if constexpr (sizeof(Real) == sizeof(float)) return backend::widen(from);
#endif
  return __builtin_convertvector(backend::load<lanes_like<std::uint16_t, Real>>(from), words<Real>);
}
POSENC_ALWAYS_INLINE void store_words(std::uint16_t* to, words<float> v) noexcept {
#if defined(POSENC_DETAIL_HAS_NARROW)
  backend::narrow(to, v);
#else
  backend::store(to, __builtin_convertvector(v, lanes_like<std::uint16_t, float>));
#endif
}

template <class Real>
POSENC_ALWAYS_INLINE floats<Real> load_half(const std::uint16_t* from) noexcept {
#if defined(POSENC_DETAIL_HAS_HALF)
  if constexpr (sizeof(Real) == sizeof(float)) return backend::half_to_float(from);
#endif
  const words<Real> half = load_words<Real>(from);
  const words<Real> sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu;
  // Infinities and NaN keep the largest exponent: 112 is added once more. Denormal numbers are whole multiples of
  // 2^-24.
  words<Real> normal = (magnitude << 13) + (112u << 23);
  normal += backend::bit_cast_vector<words<Real>>(magnitude >= 0x7c00u) & (112u << 23);
  normal |= backend::bit_cast_vector<words<Real>>(magnitude > 0x7c00u) & 0x40'0000u;
  using integers = lanes_like<std::int32_t, Real>;
  const auto denormal = __builtin_convertvector(backend::bit_cast_vector<integers>(magnitude), floats<Real>) * 0x1p-24f;
  const words<Real> bits = magnitude < 0x400u ? backend::bit_cast_vector<words<Real>>(denormal) : normal;
  return backend::bit_cast_vector<floats<Real>>(sign | bits);
}

POSENC_ALWAYS_INLINE void store_half(std::uint16_t* to, vec<float> v) noexcept {
#if defined(POSENC_DETAIL_HAS_HALF)
  backend::float_to_half(to, v.r);
#else
  using bits_type = words<float>;
  const auto bits = backend::bit_cast_vector<bits_type>(v.r);
  const bits_type sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fff'ffffu;
  const bits_type normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Added to 1/2, whose last bit is 2^-24, a number below 2^-14 is rounded to multiples of that.
  const auto shifted =
      opaque(vec<float>(backend::bit_cast_vector<backend::vector<float>>(magnitude)) + vec<float>(0.5f));
  const bits_type denormal = backend::bit_cast_vector<bits_type>(shifted.r) - 0x3f00'0000u;
  const bits_type nan = ((magnitude >> 13) & 0x3ffu) | 0x7e00u;
  bits_type half = magnitude < 0x3880'0000u ? denormal : normal;
  half = magnitude >= 0x477f'f000u ? bits_type{} + 0x7c00u : half;
  half = magnitude > 0x7f80'0000u ? nan : half;
  store_words(to, sign | half);
#endif
}

template <class Real>
POSENC_ALWAYS_INLINE floats<Real> load_bfloat16(const std::uint16_t* from) noexcept {
  return backend::bit_cast_vector<floats<Real>>(load_words<Real>(from) << 16);
}

/// The bits of the nearest bfloat16 numbers, in the lower halves.
POSENC_ALWAYS_INLINE words<float> bfloat16_words(vec<float> v) noexcept {
  using bits_type = words<float>;
  const auto bits = backend::bit_cast_vector<bits_type>(v.r);
  const bits_type nearest = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16, nan = (bits >> 16) | 0x40u;
  return (bits & 0x7fff'ffffu) > 0x7f80'0000u ? nan : nearest;
}

POSENC_ALWAYS_INLINE void store_bfloat16(std::uint16_t* to, vec<float> v) noexcept {
#if defined(POSENC_DETAIL_HAS_BFLOAT16)
  if (lanes_like<std::uint16_t, float> nearest; backend::to_bfloat16(v.r, nearest)) return backend::store(to, nearest);
#endif
  store_words(to, bfloat16_words(v));
}

/// Two registers one after the other.
POSENC_ALWAYS_INLINE void store_bfloat16(std::uint16_t* to, vec<float> low, vec<float> high) noexcept {
#if defined(POSENC_DETAIL_HAS_BFLOAT16)
  if (backend::vector<std::uint16_t> nearest; backend::to_bfloat16(low.r, high.r, nearest))
    return backend::store(to, nearest);
#endif
  store_words(to, bfloat16_words(low));
  store_words(to + vec<float>::lanes, bfloat16_words(high));
}

/// even[0], odd[0], even[1], odd[1], ...: the two numbers of a pair share a word.
POSENC_ALWAYS_INLINE void store_bfloat16_pairs(std::uint16_t* to, vec<float> even, vec<float> odd) noexcept {
#if defined(POSENC_DETAIL_HAS_BFLOAT16)
  if (backend::vector<std::uint16_t> nearest; backend::to_bfloat16(even.r, odd.r, nearest)) {
    constexpr int n = vec<float>::lanes;
    return [&]<int... Index>(std::integer_sequence<int, Index...>) POSENC_INLINE_LAMBDA {
      using lanes = backend::vector<std::uint16_t>;
      backend::store(to, lanes(__builtin_shufflevector(nearest, nearest, (Index / 2 + Index % 2 * n)...)));
    }(std::make_integer_sequence<int, 2 * n>{});
  }
#endif
  const words<float> both = bfloat16_words(even) | (bfloat16_words(odd) << 16);
  backend::store(to, backend::bit_cast_vector<backend::vector<std::uint16_t>>(both));
}

POSENC_ALWAYS_INLINE void load_bfloat16_pairs(const std::uint16_t* from, vec<float>& even, vec<float>& odd) noexcept {
  const auto both = backend::bit_cast_vector<words<float>>(backend::load<backend::vector<std::uint16_t>>(from));
  even = vec<float>(backend::bit_cast_vector<backend::vector<float>>(both << 16));
  odd = vec<float>(backend::bit_cast_vector<backend::vector<float>>(both & 0xffff'0000u));
}

/// 16-bit elements as integers; through a type that may alias them.
template <class T>
const std::uint16_t* as_words(const T* from) noexcept {
  static_assert(sizeof(T) == 2);
  return reinterpret_cast<const std::uint16_t*>(from);
}
template <class T>
std::uint16_t* as_words(T* to) noexcept {
  static_assert(sizeof(T) == 2);
  return reinterpret_cast<std::uint16_t*>(to);
}

}  // namespace detail

/// vec<Real>::lanes elements of any type, without alignment. Exact, except from double to float.
template <std::floating_point Real, scalar T>
POSENC_ALWAYS_INLINE vec<Real> load_as(const T* from) noexcept {
  if constexpr (dtype_of<T> == dtype_of<Real>) {
    return load(from);
  } else if constexpr (dtype_of<T> == dtype::half) {
    return vec<Real>(__builtin_convertvector(detail::load_half<Real>(detail::as_words(from)), backend::vector<Real>));
  } else if constexpr (dtype_of<T> == dtype::bfloat16) {
    return vec<Real>(
        __builtin_convertvector(detail::load_bfloat16<Real>(detail::as_words(from)), backend::vector<Real>));
  } else {
    // Not by a function that returns the vector: it may be wider than a register.
    return vec<Real>(__builtin_convertvector(*reinterpret_cast<const detail::unaligned_lanes_like<T, Real>*>(from),
                                             backend::vector<Real>));
  }
}

/// The nearest elements of type T. From double there is none to 16-bit types, which are storage of float arithmetic.
template <scalar T, std::floating_point Real>
POSENC_ALWAYS_INLINE void store_as(T* to, vec<Real> v) noexcept {
  if constexpr (dtype_of<T> == dtype_of<Real>) {
    store(to, v);
  } else if constexpr (sizeof(T) == 2) {
    static_assert(std::same_as<Real, float>, "posenc: 16-bit types are storage of float arithmetic");
    if constexpr (dtype_of<T> == dtype::half)
      detail::store_half(detail::as_words(to), v);
    else
      detail::store_bfloat16(detail::as_words(to), v);
  } else {
    *reinterpret_cast<detail::unaligned_lanes_like<T, Real>*>(to) =
        __builtin_convertvector(v.r, detail::lanes_like<T, Real>);
  }
}

/// The same of two registers, `low` first.
template <scalar T, std::floating_point Real>
POSENC_ALWAYS_INLINE void store_as(T* to, vec<Real> low, vec<Real> high) noexcept {
  if constexpr (dtype_of<T> == dtype::bfloat16 && std::same_as<Real, float>) {
    detail::store_bfloat16(detail::as_words(to), low, high);
  } else {
    store_as(to, low);
    store_as(to + vec<Real>::lanes, high);
  }
}

/// Whether two neighbours, the numbers of a pair, come apart and go together again as halves of one word, without moving
/// lanes.
template <class T>
inline constexpr bool pairs_are_words = dtype_of<T> == dtype::bfloat16 && std::endian::native == std::endian::little;

/// 2 * lanes elements as those with even numbers and those with odd ones.
template <scalar T>
  requires pairs_are_words<T>
POSENC_ALWAYS_INLINE void load_pairs(const T* from, vec<float>& even, vec<float>& odd) noexcept {
  detail::load_bfloat16_pairs(detail::as_words(from), even, odd);
}
template <scalar T>
  requires pairs_are_words<T>
POSENC_ALWAYS_INLINE void store_pairs(T* to, vec<float> even, vec<float> odd) noexcept {
  detail::store_bfloat16_pairs(detail::as_words(to), even, odd);
}

/// Two registers of doubles as one of floats, rounded: a store of whole registers, which loads of whole registers can take
/// their numbers from before it is done.
POSENC_ALWAYS_INLINE vec<float> join(vec<double> low, vec<double> high) noexcept {
  using narrow = backend::vector<float, vec<double>::lanes* static_cast<int>(sizeof(float))>;
  const narrow a = __builtin_convertvector(low.r, narrow), b = __builtin_convertvector(high.r, narrow);
  return [&]<int... Index>(std::integer_sequence<int, Index...>) POSENC_INLINE_LAMBDA {
    return vec<float>(backend::vector<float>(__builtin_shufflevector(a, b, Index...)));
  }(std::make_integer_sequence<int, vec<float>::lanes>{});
}

/// What `store_as` does, past the caches, see `store_streaming`. `to` is aligned to lanes * sizeof(T) bytes.
template <scalar T, std::floating_point Real>
POSENC_ALWAYS_INLINE void store_streaming_as(T* to, vec<Real> v) noexcept {
  if constexpr (dtype_of<T> == dtype_of<Real>) {
    store_streaming(to, v);
  } else {
    constexpr int bytes = vec<Real>::lanes * static_cast<int>(sizeof(T));
    alignas(bytes) unsigned char elements[bytes];
    store_as(reinterpret_cast<T*>(elements), v);
#if defined(POSENC_DETAIL_HAS_STREAMING)
    // More than a register, where elements are wider than the register's.
    constexpr int piece = bytes < backend::register_bytes ? bytes : backend::register_bytes;
    for (int at = 0; at < bytes; at += piece)
      backend::store_streaming(reinterpret_cast<unsigned char*>(to) + at,
                               backend::load<backend::vector<unsigned char, piece>>(elements + at));
#else
    std::memcpy(static_cast<void*>(to), elements, sizeof elements);
#endif
  }
}

namespace detail {
/// Less than a register. A function of its own: GCC 12 fails to compile what it makes of a known n with -ffast-math.
template <scalar T, std::floating_point Real>
POSENC_NOINLINE void load_rest(const T* from, index_t n, Real* to) noexcept {
  constexpr index_t lanes = vec<Real>::lanes;
  alignas(T) unsigned char elements[lanes * sizeof(T)] = {};
  Real numbers[lanes];
  const auto rest = static_cast<std::size_t>(n);
  std::memcpy(elements, from, rest * sizeof(T));
  store(numbers, load_as<Real>(reinterpret_cast<const T*>(elements)));
  std::memcpy(to, numbers, rest * sizeof(Real));
}
}  // namespace detail

/// n elements of any type to n numbers. Nothing beyond them is read or written; the rows may not overlap, but they
/// may be the same one where T is Real.
template <scalar T, std::floating_point Real>
void load_row(const T* from, index_t n, Real* to) noexcept {
  constexpr index_t lanes = vec<Real>::lanes;
  index_t i = 0;
  for (; i + lanes <= n; i += lanes) store(to + i, load_as<Real>(from + i));
  if (i < n) detail::load_rest(from + i, n - i, to + i);
}

/// n numbers to n elements of any type, rounded. The same promises.
template <std::floating_point Real, scalar T>
void store_row(const Real* from, index_t n, T* to) noexcept {
  constexpr index_t lanes = vec<Real>::lanes;
  index_t i = 0;
  for (; i + lanes <= n; i += lanes) store_as(to + i, load(from + i));
  if (i < n) {
    Real numbers[lanes] = {};
    alignas(T) unsigned char elements[lanes * sizeof(T)];
    const auto rest = static_cast<std::size_t>(n - i);
    std::memcpy(numbers, from + i, rest * sizeof(Real));
    store_as(reinterpret_cast<T*>(elements), load(numbers));
    std::memcpy(static_cast<void*>(to + i), elements, rest * sizeof(T));
  }
}

}  // namespace posenc::inline POSENC_ABI::simd

#endif  // POSENC_SIMD_CONVERT_HPP
