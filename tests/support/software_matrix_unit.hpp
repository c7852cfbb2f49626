// SPDX-License-Identifier: Apache-2.0
// The matrix registers of x86 in software, in the place of posenc/simd/backend/amx.hpp: what is built on them can then be
// tested on processors that have none. Include it before everything else, in all of a program.
#ifndef POSENC_TESTS_SUPPORT_SOFTWARE_MATRIX_UNIT_HPP
#define POSENC_TESTS_SUPPORT_SOFTWARE_MATRIX_UNIT_HPP

#include <posenc/core/platform.hpp>

#if !defined(POSENC_ISA_AMX)
#error "compile for x86 with -mamx-tile -mamx-bf16 and AVX-512 with bfloat16"
#endif
#if defined(POSENC_SIMD_BACKEND_AMX_HPP)
#error "include software_matrix_unit.hpp before the library"
#endif
#define POSENC_SIMD_BACKEND_AMX_HPP

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace posenc::inline POSENC_ABI::simd::backend {

using tile_words = std::uint32_t __attribute__((vector_size(64)));
using tile_floats = float __attribute__((vector_size(64)));

/// A thread's registers, which only exist between `shape_tiles` and `release_tiles`.
struct software_tiles {
  bool shaped = false;
  tile_words row[8][16];

  tile_words* rows_of(int tile) noexcept {
    if (!shaped) std::abort();
    return row[tile];
  }
};
inline thread_local software_tiles tiles;

inline void shape_tiles() noexcept {
  if (tiles.shaped) std::abort();
  tiles.shaped = true;
  std::memset(tiles.row, 0, sizeof tiles.row);
}
inline void release_tiles() noexcept { tiles.shaped = false; }

template <int Tile>
void clear_tile() noexcept {
  std::memset(tiles.rows_of(Tile), 0, sizeof tiles.row[Tile]);
}
template <int Tile>
void load_tile(const void* from, index_t stride) noexcept {
  for (int i = 0; i < 16; ++i)
    std::memcpy(&tiles.rows_of(Tile)[i], static_cast<const char*>(from) + i * stride, sizeof(tile_words));
}
template <int Tile>
void store_tile(void* to, index_t stride) noexcept {
  for (int i = 0; i < 16; ++i)
    std::memcpy(static_cast<char*>(to) + i * stride, &tiles.rows_of(Tile)[i], sizeof(tile_words));
}

/// Denormal numbers count as 0.
inline tile_floats flushed(tile_words x) noexcept {
  return reinterpret_cast<tile_floats>((x & 0x7f80'0000u) == 0 ? x & 0x8000'0000u : x);
}
inline tile_floats flushed(tile_floats x) noexcept { return flushed(reinterpret_cast<tile_words>(x)); }

/// As the manual defines TDPBF16PS: numbers with even and with odd places are summed up apart. Products are exact.
template <int Sum, int A, int B>
void multiply_tiles() noexcept {
  const tile_words *a = tiles.rows_of(A), *b = tiles.rows_of(B);
  for (int i = 0; i < 16; ++i) {
    tile_floats even{}, odd{};
    for (int k = 0; k < 16; ++k) {
      const tile_words pair = tile_words{} + a[i][k];
      even = flushed(even + flushed(pair << 16) * flushed(b[k] << 16));
      odd = flushed(odd + flushed(pair & 0xffff'0000u) * flushed(b[k] & 0xffff'0000u));
    }
    tile_words& sum = tiles.rows_of(Sum)[i];
    sum = reinterpret_cast<tile_words>(flushed(flushed(sum) + flushed(even + odd)));
  }
}

inline bool ask_for_tiles() noexcept { return true; }

}  // namespace posenc::inline POSENC_ABI::simd::backend

#endif  // POSENC_TESTS_SUPPORT_SOFTWARE_MATRIX_UNIT_HPP
