// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_SIMD_BACKEND_VECTORS_HPP
#define POSENC_SIMD_BACKEND_VECTORS_HPP

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../../core/platform.hpp"

/// The compiler's own vectors (GCC and Clang): registers of the ISA's width, with the operators and conversions that
/// the language extension defines. What it lacks has a provider in x86.hpp or arm.hpp, else a plain one here.
namespace posenc::inline POSENC_ABI::simd::backend {

#if defined(POSENC_ISA_AVX512)
inline constexpr int register_bytes = 64;
#elif defined(POSENC_ISA_AVX2)
inline constexpr int register_bytes = 32;
#else
inline constexpr int register_bytes = 16;
#endif

/// A register of `Bytes` bytes of T. may_alias: rows of floats are also read as integers.
template <class T, int Bytes>
struct vector_type {
  typedef T type __attribute__((vector_size(Bytes), may_alias));
  typedef T unaligned __attribute__((vector_size(Bytes), may_alias, aligned(alignof(T))));
};

template <class T, int Bytes = register_bytes>
using vector = typename vector_type<T, Bytes>::type;

template <class V, class T>
POSENC_ALWAYS_INLINE V load(const T* from) noexcept {
  using unaligned = typename vector_type<T, static_cast<int>(sizeof(V))>::unaligned;
  return *reinterpret_cast<const unaligned*>(from);
}

template <class V, class T>
POSENC_ALWAYS_INLINE void store(T* to, V value) noexcept {
  using unaligned = typename vector_type<T, static_cast<int>(sizeof(V))>::unaligned;
  *reinterpret_cast<unaligned*>(to) = value;
}

/// The same bits as another vector type of the same size.
template <class To, class From>
POSENC_ALWAYS_INLINE To bit_cast_vector(From from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  return reinterpret_cast<To>(from);
}

/// v itself, as something that the compiler knows nothing about: it can neither reassociate across it nor assume that a
/// comparison came out as it does for numbers. Costs no instruction for numbers and whole registers.
template <class V>
POSENC_ALWAYS_INLINE V opaque(V v) noexcept {
#if defined(__SSE2__)
  if constexpr (std::is_arithmetic_v<V> || sizeof(V) >= 16) {
    __asm__("" : "+v"(v));
    return v;
  }
#elif defined(__aarch64__) && defined(__ARM_NEON)
  if constexpr (std::is_arithmetic_v<V> || sizeof(V) >= 16) {
    __asm__("" : "+w"(v));
    return v;
  }
#endif
  __asm__("" : "+m"(v));
  return v;
}

/// The result of one operation. With -ffast-math, the compiler could merge it with others differently at every place it
/// is inlined into, and the same numbers would give different results in the middle and in the tail of a row.
template <class V>
POSENC_ALWAYS_INLINE V rounded(V v) noexcept {
#if defined(__FAST_MATH__)
  return opaque(v);
#else
  return v;
#endif
}

/// Combines halves of halves: op(x[i], x[i + half]), until one lane is left.
template <class T, int Bytes, class Op>
POSENC_ALWAYS_INLINE T reduce(vector<T, Bytes> v, Op op) noexcept {
  if constexpr (Bytes == sizeof(T)) {
    return v[0];
  } else {
    using half = vector<T, Bytes / 2>;
    half parts[2];
    static_assert(sizeof parts == sizeof v);
    std::memcpy(parts, &v, sizeof v);
    return reduce<T, Bytes / 2>(op(parts[0], parts[1]), op);
  }
}

}  // namespace posenc::inline POSENC_ABI::simd::backend

#endif  // POSENC_SIMD_BACKEND_VECTORS_HPP
