// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_VERSION_HPP
#define POSENC_VERSION_HPP

/// The single source of the version; the build system and the package files read these three lines.
#define POSENC_VERSION_MAJOR 0
#define POSENC_VERSION_MINOR 1
#define POSENC_VERSION_PATCH 0

/// What the including file is compiled for, as one token. It is part of the inline namespace below, so that translation
/// units that are compiled for different instruction sets or floating-point modes share no symbol.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && defined(__FMA__)
#define POSENC_ISA_AVX512 1
// Clang 14 has names of its own.
#if ((defined(__AMX_TILE__) && defined(__AMX_BF16__)) || (defined(__AMXTILE__) && defined(__AMXBF16__))) && \
    defined(__AVX512BF16__) && defined(__x86_64__) && defined(__linux__) && !defined(POSENC_NO_AMX)
#define POSENC_ISA_AMX 1
#define POSENC_ISA avx512amx
#elif defined(__AVX512BF16__)
#define POSENC_ISA avx512bf16
#else
#define POSENC_ISA avx512
#endif
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define POSENC_ISA_AVX2 1
#define POSENC_ISA avx2
#elif defined(__AVX__)
// AVX without one of AVX2, FMA and F16C: vectors stay 128 bits wide, since 256-bit integers are missing.
#define POSENC_ISA avx
#elif defined(__SSE4_1__)
#define POSENC_ISA sse4
#elif defined(__SSE2__)
#define POSENC_ISA sse2
#elif defined(__ARM_NEON) && defined(__aarch64__)
#define POSENC_ISA neon
#else
#define POSENC_ISA generic
#endif

#if defined(__cpp_exceptions)
#define POSENC_EXCEPTIONS 1
#define POSENC_ABI_EXCEPTIONS
#else
#define POSENC_EXCEPTIONS 0
#define POSENC_ABI_EXCEPTIONS _noexcept
#endif

#if defined(__FAST_MATH__)
#define POSENC_ABI_MATH _fastmath
#elif defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0
#define POSENC_ABI_MATH _finitemath
#else
#define POSENC_ABI_MATH
#endif

// What compilers use on their own account, beyond the ISA that the library's own code asks for.
#if !defined(POSENC_ISA_AVX512) && !defined(POSENC_ISA_AVX2) && defined(__FMA__)
#define POSENC_ABI_FMA _fma
#else
#define POSENC_ABI_FMA
#endif
#if defined(__BMI2__)
#define POSENC_ABI_BITS _bmi2
#elif defined(__POPCNT__)
#define POSENC_ABI_BITS _popcnt
#else
#define POSENC_ABI_BITS
#endif
#if defined(__AVX512FP16__)
#define POSENC_ABI_AVX512 _fp16
#elif defined(__AVX512VBMI2__)
#define POSENC_ABI_AVX512 _vbmi2
#else
#define POSENC_ABI_AVX512
#endif

#define POSENC_DETAIL_JOIN7(a, b, c, d, e, f, g) a##b##c##d##e##f##g
#define POSENC_DETAIL_JOIN(a, b, c, d, e, f, g) POSENC_DETAIL_JOIN7(a, b, c, d, e, f, g)

/// The inline namespace of everything: version, ISA, exceptions, floating-point mode.
#define POSENC_ABI                                                                                                 \
  POSENC_DETAIL_JOIN(v0_1_, POSENC_ISA, POSENC_ABI_FMA, POSENC_ABI_BITS, POSENC_ABI_AVX512, POSENC_ABI_EXCEPTIONS, \
                     POSENC_ABI_MATH)

#define POSENC_DETAIL_TEXT2(x) #x
#define POSENC_DETAIL_TEXT(x) POSENC_DETAIL_TEXT2(x)

namespace posenc::inline POSENC_ABI {

/// "major.minor.patch".
inline constexpr const char* version = POSENC_DETAIL_TEXT(POSENC_VERSION_MAJOR) "." POSENC_DETAIL_TEXT(
    POSENC_VERSION_MINOR) "." POSENC_DETAIL_TEXT(POSENC_VERSION_PATCH);

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_VERSION_HPP
