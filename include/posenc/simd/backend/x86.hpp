// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_SIMD_BACKEND_X86_HPP
#define POSENC_SIMD_BACKEND_X86_HPP

#include "vectors.hpp"

#if defined(__SSE2__)
// No more than the ISA has: <immintrin.h> alone would take as long to compile as half of Eigen.
#if defined(__AVX__)
#include <immintrin.h>
#else
#include <emmintrin.h>
#endif

// Between vector types of the same size a cast in C's style is the one that keeps the bits and says nothing else.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"

/// x86 instructions that compiler vectors do not name: fused multiply-add, minimum and maximum, scaling by powers of
/// two, 16-bit conversions, stores past the caches.
namespace posenc::inline POSENC_ABI::simd::backend {

// The zero-masked forms with a full mask are the plain instructions; GCC 12 warns about the plain intrinsics.
#if defined(POSENC_ISA_AVX512)
#define POSENC_DETAIL_HAS_FMA 1
POSENC_ALWAYS_INLINE vector<float> fma(vector<float> a, vector<float> b, vector<float> c) noexcept {
  return (vector<float>)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
POSENC_ALWAYS_INLINE vector<double> fma(vector<double> a, vector<double> b, vector<double> c) noexcept {
  return (vector<double>)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
}

#define POSENC_DETAIL_HAS_SCALE 1
/// x - floor(x), rounded down: at least 0 and below 1; 0 for infinities.
POSENC_ALWAYS_INLINE vector<float> above_floor(vector<float> x) noexcept {
  return (vector<float>)_mm512_maskz_reduce_ps(static_cast<__mmask16>(-1), (__m512)x, _MM_FROUND_TO_NEG_INF);
}
POSENC_ALWAYS_INLINE vector<double> above_floor(vector<double> x) noexcept {
  return (vector<double>)_mm512_maskz_reduce_pd(static_cast<__mmask8>(-1), (__m512d)x, _MM_FROUND_TO_NEG_INF);
}
/// a * 2^floor(n), rounded once.
POSENC_ALWAYS_INLINE vector<float> scale(vector<float> a, vector<float> n) noexcept {
  return (vector<float>)_mm512_maskz_scalef_ps(static_cast<__mmask16>(-1), (__m512)a, (__m512)n);
}
POSENC_ALWAYS_INLINE vector<double> scale(vector<double> a, vector<double> n) noexcept {
  return (vector<double>)_mm512_maskz_scalef_pd(static_cast<__mmask8>(-1), (__m512d)a, (__m512d)n);
}
/// The same, but 0 where n <= limit. NaN is not below the limit.
POSENC_ALWAYS_INLINE vector<float> scale_above(vector<float> a, vector<float> n, float limit) noexcept {
  const __m512 bound = _mm512_set1_ps(limit);
  __mmask16 above;
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
  __asm__("vcmpnleps\t{%2, %1, %0|%0, %1, %2}" : "=Yk"(above) : "v"((__m512)n), "v"(bound));
#else
  above = _mm512_cmp_ps_mask((__m512)n, bound, _CMP_NLE_UQ);
#endif
  return (vector<float>)_mm512_maskz_scalef_ps(above, (__m512)a, (__m512)n);
}
POSENC_ALWAYS_INLINE vector<double> scale_above(vector<double> a, vector<double> n, double limit) noexcept {
  const __m512d bound = _mm512_set1_pd(limit);
  __mmask8 above;
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
  __asm__("vcmpnlepd\t{%2, %1, %0|%0, %1, %2}" : "=Yk"(above) : "v"((__m512d)n), "v"(bound));
#else
  above = _mm512_cmp_pd_mask((__m512d)n, bound, _CMP_NLE_UQ);
#endif
  return (vector<double>)_mm512_maskz_scalef_pd(above, (__m512d)a, (__m512d)n);
}

#define POSENC_DETAIL_HAS_HALF 1
POSENC_ALWAYS_INLINE vector<float> half_to_float(const std::uint16_t* from) noexcept {
  return (vector<float>)_mm512_maskz_cvtph_ps(static_cast<__mmask16>(-1),
                                              _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
// Stored as 16-bit lanes, and without a word on exceptions, compilers convert right into memory: an instruction less.
POSENC_ALWAYS_INLINE void float_to_half(std::uint16_t* to, vector<float> v) noexcept {
  store(to, (vector<std::uint16_t, 32>)_mm512_maskz_cvtps_ph(static_cast<__mmask16>(-1), (__m512)v,
                                                             _MM_FROUND_TO_NEAREST_INT));
}

#define POSENC_DETAIL_HAS_WIDEN 1
POSENC_ALWAYS_INLINE vector<std::uint32_t> widen(const std::uint16_t* from) noexcept {
  return (vector<std::uint32_t>)_mm512_maskz_cvtepu16_epi32(static_cast<__mmask16>(-1),
                                                            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
#define POSENC_DETAIL_HAS_NARROW 1
POSENC_ALWAYS_INLINE void narrow(std::uint16_t* to, vector<std::uint32_t> v) noexcept {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_maskz_cvtepi32_epi16(static_cast<__mmask16>(-1), (__m512i)v));
}

#if defined(__AVX512BF16__)
#define POSENC_DETAIL_HAS_BFLOAT16 1
/// By integers: where the mode takes denormal numbers for 0, the instruction that classifies numbers does so too.
POSENC_ALWAYS_INLINE bool has_denormal(vector<float> v) noexcept {
  const __m512i bits = _mm512_castps_si512((__m512)v);
  const __mmask16 low = _mm512_testn_epi32_mask(bits, _mm512_set1_epi32(0x7f80'0000));
  return _mm512_mask_test_epi32_mask(low, bits, _mm512_set1_epi32(0x007f'ffff)) != 0;
}
/// The nearest numbers of one register, or of two, `low` first, which takes fewer instructions than twice. False if there
/// is a denormal number: the instruction takes those for 0, and where nothing comes out as 0 there is none.
POSENC_ALWAYS_INLINE bool to_bfloat16(vector<float> v, vector<std::uint16_t, 32>& nearest) noexcept {
  const __m256i rounded = (__m256i)_mm512_cvtneps_pbh((__m512)v);
  nearest = (vector<std::uint16_t, 32>)rounded;
  const bool zeros = _mm256_testn_epi16_mask(rounded, _mm256_set1_epi16(0x7fff)) != 0;
  return !__builtin_expect(zeros, false) || !has_denormal(v);
}
POSENC_ALWAYS_INLINE bool to_bfloat16(vector<float> low, vector<float> high, vector<std::uint16_t>& nearest) noexcept {
  const __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
  nearest = (vector<std::uint16_t>)rounded;
  const bool zeros = _mm512_testn_epi16_mask(rounded, _mm512_set1_epi16(0x7fff)) != 0;
  return !__builtin_expect(zeros, false) || !(has_denormal(low) || has_denormal(high));
}
#endif
#elif defined(POSENC_ISA_AVX2)
#define POSENC_DETAIL_HAS_FMA 1
POSENC_ALWAYS_INLINE vector<float> fma(vector<float> a, vector<float> b, vector<float> c) noexcept {
  return (vector<float>)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
POSENC_ALWAYS_INLINE vector<double> fma(vector<double> a, vector<double> b, vector<double> c) noexcept {
  return (vector<double>)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
}
#define POSENC_DETAIL_HAS_HALF 1
POSENC_ALWAYS_INLINE vector<float> half_to_float(const std::uint16_t* from) noexcept {
  return (vector<float>)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
POSENC_ALWAYS_INLINE void float_to_half(std::uint16_t* to, vector<float> v) noexcept {
  store(to, (vector<std::uint16_t, 16>)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}
#define POSENC_DETAIL_HAS_WIDEN 1
POSENC_ALWAYS_INLINE vector<std::uint32_t> widen(const std::uint16_t* from) noexcept {
  return (vector<std::uint32_t>)_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
#else
#if defined(__FMA__)
#define POSENC_DETAIL_HAS_FMA 1
POSENC_ALWAYS_INLINE vector<float> fma(vector<float> a, vector<float> b, vector<float> c) noexcept {
  return (vector<float>)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c);
}
POSENC_ALWAYS_INLINE vector<double> fma(vector<double> a, vector<double> b, vector<double> c) noexcept {
  return (vector<double>)_mm_fmadd_pd((__m128d)a, (__m128d)b, (__m128d)c);
}
#endif
#endif

#define POSENC_DETAIL_HAS_STREAMING 1
/// To memory aligned to the size of v, past the caches; `streaming_fence` orders it before what follows.
template <class V>
POSENC_ALWAYS_INLINE void store_streaming(void* to, V v) noexcept {
#if defined(POSENC_ISA_AVX512)
  if constexpr (sizeof(V) == 64) return _mm512_stream_si512(static_cast<__m512i*>(to), (__m512i)v);
#endif
#if defined(__AVX__)
  if constexpr (sizeof(V) == 32) return _mm256_stream_si256(static_cast<__m256i*>(to), (__m256i)v);
#endif
  if constexpr (sizeof(V) == 16) {
    _mm_stream_si128(static_cast<__m128i*>(to), (__m128i)v);
  } else {
    std::memcpy(to, &v, sizeof v);
  }
}
inline void streaming_fence() noexcept { _mm_sfence(); }

#define POSENC_DETAIL_HAS_MINMAX 1
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
// Compilers that may assume that there is no NaN also swap the operands of minimum and maximum, which decide what a NaN
// gives; and with -ffast-math they divide floats by an approximate reciprocal, good to a few ulp.
#define POSENC_DETAIL_HAS_DIVIDE 1
#if defined(__AVX__)
#define POSENC_DETAIL_BINARY(name, type, instruction)                                     \
  POSENC_ALWAYS_INLINE vector<type>(name)(vector<type> a, vector<type> b) noexcept {      \
    vector<type> result;                                                                  \
    __asm__("v" instruction "\t{%2, %1, %0|%0, %1, %2}" : "=v"(result) : "v"(a), "v"(b)); \
    return result;                                                                        \
  }
#else
#define POSENC_DETAIL_BINARY(name, type, instruction)                                \
  POSENC_ALWAYS_INLINE vector<type>(name)(vector<type> a, vector<type> b) noexcept { \
    __asm__(instruction "\t{%1, %0|%0, %1}" : "+x"(a) : "x"(b));                     \
    return a;                                                                        \
  }
#endif
POSENC_DETAIL_BINARY(max, float, "maxps")
POSENC_DETAIL_BINARY(max, double, "maxpd")
POSENC_DETAIL_BINARY(min, float, "minps")
POSENC_DETAIL_BINARY(min, double, "minpd")
POSENC_DETAIL_BINARY(divide, float, "divps")
POSENC_DETAIL_BINARY(divide, double, "divpd")
#undef POSENC_DETAIL_BINARY
#elif defined(POSENC_ISA_AVX512)
POSENC_ALWAYS_INLINE vector<float>(max)(vector<float> a, vector<float> b) noexcept {
  return (vector<float>)_mm512_maskz_max_ps(static_cast<__mmask16>(-1), (__m512)a, (__m512)b);
}
POSENC_ALWAYS_INLINE vector<double>(max)(vector<double> a, vector<double> b) noexcept {
  return (vector<double>)_mm512_maskz_max_pd(static_cast<__mmask8>(-1), (__m512d)a, (__m512d)b);
}
POSENC_ALWAYS_INLINE vector<float>(min)(vector<float> a, vector<float> b) noexcept {
  return (vector<float>)_mm512_maskz_min_ps(static_cast<__mmask16>(-1), (__m512)a, (__m512)b);
}
POSENC_ALWAYS_INLINE vector<double>(min)(vector<double> a, vector<double> b) noexcept {
  return (vector<double>)_mm512_maskz_min_pd(static_cast<__mmask8>(-1), (__m512d)a, (__m512d)b);
}
#elif defined(POSENC_ISA_AVX2)
POSENC_ALWAYS_INLINE vector<float>(max)(vector<float> a, vector<float> b) noexcept {
  return (vector<float>)_mm256_max_ps((__m256)a, (__m256)b);
}
POSENC_ALWAYS_INLINE vector<double>(max)(vector<double> a, vector<double> b) noexcept {
  return (vector<double>)_mm256_max_pd((__m256d)a, (__m256d)b);
}
POSENC_ALWAYS_INLINE vector<float>(min)(vector<float> a, vector<float> b) noexcept {
  return (vector<float>)_mm256_min_ps((__m256)a, (__m256)b);
}
POSENC_ALWAYS_INLINE vector<double>(min)(vector<double> a, vector<double> b) noexcept {
  return (vector<double>)_mm256_min_pd((__m256d)a, (__m256d)b);
}
#else
POSENC_ALWAYS_INLINE vector<float>(max)(vector<float> a, vector<float> b) noexcept {
  return (vector<float>)_mm_max_ps((__m128)a, (__m128)b);
}
POSENC_ALWAYS_INLINE vector<double>(max)(vector<double> a, vector<double> b) noexcept {
  return (vector<double>)_mm_max_pd((__m128d)a, (__m128d)b);
}
POSENC_ALWAYS_INLINE vector<float>(min)(vector<float> a, vector<float> b) noexcept {
  return (vector<float>)_mm_min_ps((__m128)a, (__m128)b);
}
POSENC_ALWAYS_INLINE vector<double>(min)(vector<double> a, vector<double> b) noexcept {
  return (vector<double>)_mm_min_pd((__m128d)a, (__m128d)b);
}
#endif

}  // namespace posenc::inline POSENC_ABI::simd::backend

#pragma GCC diagnostic pop

#endif

#endif  // POSENC_SIMD_BACKEND_X86_HPP
