// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_TILE_SHAPE_HPP
#define POSENC_ATTENTION_TILE_SHAPE_HPP

#include <cstdint>

#include "../core/platform.hpp"
#include "../encoding/score_keys.hpp"
#include "../simd/simd.hpp"

/// The one table of sizes that the kernels are made from.
namespace posenc::inline POSENC_ABI::detail {

template <class Real>
struct tile_shape {
  static constexpr int lanes = simd::vec<Real>::lanes;
  // A register tile is `rows` x `vectors`. Accumulators, one row of operands and a broadcast must leave two or three
  // registers free: 32 registers with AVX-512 and NEON, 16 elsewhere. Of the tiles that do, those with the fewest loads for
  // each multiply-add win, all the more where a neighbour shares the core's caches. `panel_vectors` divides `vectors`:
  // narrower panels waste less where they do not divide a head dim.
#if defined(POSENC_ISA_AVX512)
  static constexpr int rows = 6, vectors = 4, panel_vectors = 2;
#elif defined(POSENC_ISA_AVX2)
  static constexpr int rows = 6, vectors = 2, panel_vectors = 2;
#elif defined(__ARM_NEON)
  static constexpr int rows = 6, vectors = 4, panel_vectors = 4;
#else
  static constexpr int rows = 3, vectors = 4, panel_vectors = 4;
#endif
  /// Columns of a panel of values.
  static constexpr int width = panel_vectors * lanes;
  static_assert(block_keys % (vectors * lanes) == 0 && vectors % panel_vectors == 0);
};

/// How many parts (`simd::split`) floats have that are not 0: 1 of bfloat16 numbers, 2 of binary16 ones.
struct split_parts {
  std::uint8_t keys = 3, values = 3;
};

/// Rows of a score tile: queries times heads that share a KV head. A multiple of every register tile's rows.
inline constexpr index_t tile_rows = 192;

/// Rows whose scores of one block stay in L1 beside its keys. A multiple of every register tile's rows.
inline constexpr index_t warm_rows = 48;

/// The most key blocks that one score tile spans. tile_rows x chunk_blocks x block_keys scores stay in L2.
inline constexpr index_t chunk_blocks = 4;

/// Key blocks that a tile of many rows spans: the panels of values that one register tile reads, and the next reads again,
/// fill at most two thirds of an L1 cache of 48 KiB.
template <class Real>
constexpr index_t chunk_of_many_rows() noexcept {
  constexpr index_t bytes = block_keys * tile_shape<Real>::vectors * simd::vec<Real>::lanes * index_t{sizeof(Real)};
  constexpr index_t fitting = 32 * 1024 / bytes;
  return fitting < 1 ? 1 : fitting < chunk_blocks ? fitting : chunk_blocks;
}

/// At most this many rows stream: they read each block once.
inline constexpr index_t split_rows = 16;

/// With at most this many rows, the keys of a sequence are split into ranges that can run in parallel: few rows always, one
/// tile where there are few KV heads to run in parallel instead.
constexpr index_t most_split_rows(index_t kv_heads) noexcept { return kv_heads < 4 ? tile_rows : split_rows; }

/// Blocks of one such range.
inline constexpr index_t split_blocks = 32;

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ATTENTION_TILE_SHAPE_HPP
