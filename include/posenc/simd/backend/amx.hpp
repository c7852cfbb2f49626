// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_SIMD_BACKEND_AMX_HPP
#define POSENC_SIMD_BACKEND_AMX_HPP

#include "../../core/platform.hpp"

#if defined(POSENC_ISA_AMX)
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

/// The matrix registers of x86 (AMX, "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 1, chapter 18).
/// Written as instructions, since GCC 12's intrinsics do not tell the compiler that they read memory.
namespace posenc::inline POSENC_ABI::simd::backend {

/// What the instruction that shapes the registers reads: all of them 16 rows of 64 bytes.
struct alignas(64) tile_shapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

inline void shape_tiles() noexcept {
  const tile_shapes shapes;
  __asm__ volatile("ldtilecfg\t%0" ::"m"(shapes));
}
inline void release_tiles() noexcept { __asm__ volatile("tilerelease"); }

template <int Tile>
POSENC_ALWAYS_INLINE void clear_tile() noexcept {
  __asm__ volatile("{tilezero\t%%tmm%c0|tilezero\ttmm%c0}" ::"i"(Tile));
}
template <int Tile>
POSENC_ALWAYS_INLINE void load_tile(const void* from, index_t stride) noexcept {
  __asm__ volatile("{tileloadd\t(%0,%1,1), %%tmm%c2|tileloadd\ttmm%c2, [%0+%1*1]}" ::"r"(from), "r"(stride), "i"(Tile)
                   : "memory");
}
template <int Tile>
POSENC_ALWAYS_INLINE void store_tile(void* to, index_t stride) noexcept {
  __asm__ volatile("{tilestored\t%%tmm%c2, (%0,%1,1)|tilestored\t[%0+%1*1], tmm%c2}" ::"r"(to), "r"(stride), "i"(Tile)
                   : "memory");
}
/// Sum += A * B, of bfloat16 numbers.
template <int Sum, int A, int B>
POSENC_ALWAYS_INLINE void multiply_tiles() noexcept {
  __asm__ volatile("{tdpbf16ps\t%%tmm%c2, %%tmm%c1, %%tmm%c0|tdpbf16ps\ttmm%c0, tmm%c1, tmm%c2}" ::"i"(Sum), "i"(A),
                   "i"(B));
}

/// Asks Linux for the registers' use in this process (Documentation/arch/x86/xstate.rst): false from a processor without
/// them, an older kernel, or one that was told to refuse.
inline bool ask_for_tiles() noexcept {
  constexpr long request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

}  // namespace posenc::inline POSENC_ABI::simd::backend

#endif

#endif  // POSENC_SIMD_BACKEND_AMX_HPP
