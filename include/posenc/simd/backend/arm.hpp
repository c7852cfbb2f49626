// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_SIMD_BACKEND_ARM_HPP
#define POSENC_SIMD_BACKEND_ARM_HPP

#include "vectors.hpp"

#if defined(__aarch64__) && defined(__ARM_NEON)
#include <arm_neon.h>

/// AArch64 instructions that compiler vectors do not name: fused multiply-add.
namespace posenc::inline POSENC_ABI::simd::backend {

#define POSENC_DETAIL_HAS_FMA 1
POSENC_ALWAYS_INLINE vector<float> fma(vector<float> a, vector<float> b, vector<float> c) noexcept {
  return (vector<float>)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
POSENC_ALWAYS_INLINE vector<double> fma(vector<double> a, vector<double> b, vector<double> c) noexcept {
  return (vector<double>)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
}

#define POSENC_DETAIL_HAS_HALF 1
POSENC_ALWAYS_INLINE vector<float> half_to_float(const std::uint16_t* from) noexcept {
  return (vector<float>)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
}
POSENC_ALWAYS_INLINE void float_to_half(std::uint16_t* to, vector<float> v) noexcept {
  vst1_u16(to, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)v)));
}

}  // namespace posenc::inline POSENC_ABI::simd::backend

#endif

#endif  // POSENC_SIMD_BACKEND_ARM_HPP
