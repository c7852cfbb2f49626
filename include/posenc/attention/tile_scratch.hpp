// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_TILE_SCRATCH_HPP
#define POSENC_ATTENTION_TILE_SCRATCH_HPP

#include <cstdint>

#include "call.hpp"
#include "score_pass.hpp"
#include "workspace.hpp"

/// A score tile's work and what it is done in.
namespace posenc::inline POSENC_ABI::detail {

/// A tile's work, before the KV head is chosen.
struct tile_job {
  index_t sequence = 0;
  index_t first_row = 0, rows = 0;      ///< row r is query r / group, head r % group of the KV head
  index_t first_block = 0, blocks = 0;  ///< relative to the sequence's
  index_t first_partial = -1;           ///< row of the partial results that it fills; -1: the tile finishes its rows
};

/// What one worker needs; reused from tile to tile.
template <class Real>
struct tile_scratch {
  static constexpr index_t score_stride = chunk_blocks * block_keys + 16;  // off a common 4 KiB phase

  softmax_state<Real>* state = nullptr;
  Real *queries = nullptr, *scores = nullptr, *sums = nullptr, *row = nullptr, *rotations = nullptr, *blocks = nullptr;
  Real* lengths = nullptr;              ///< of the queries, for reach_limit
  const Real* all_rotations = nullptr;  ///< of all queries of the call, where they are prepared ahead
  double* positions = nullptr;
  tile_row* rows = nullptr;
  std::uint64_t* bits = nullptr;
  std::uint16_t *query_parts = nullptr, *weight_parts = nullptr;  ///< for a matrix unit, of all queries and of 32 rows
  index_t query_stride =
      0;  ///< a multiple of a cache line, and not of several: rows of a register tile share no L1 set
  // The queries that `rotations` was prepared for.
  index_t prepared_sequence = -1, prepared_query = -1, prepared_count = 0;

  void take(bump_allocator& memory, const attention_call<Real>& call, index_t axes) {
    const index_t padded = call.layout().padded_value_dim();
    const index_t widest = call.head_dim > padded ? call.head_dim : padded;
    state = memory.take<softmax_state<Real>>(1);
    query_stride = (call.head_dim + 31) / 16 * 16;
    queries = memory.take<Real>(tile_rows * query_stride);
    scores = memory.take<Real>(tile_rows * score_stride);
    sums = memory.take<Real>(tile_rows * padded);
    row = memory.take<Real>(widest);
    rotations = memory.take<Real>(tile_rows * call.rotation_size());
    lengths = memory.take<Real>(tile_rows);
    positions = memory.take<double>(tile_rows * axes);
    rows = memory.take<tile_row>(tile_rows);
    bits = memory.take<std::uint64_t>(tile_rows * chunk_blocks);
    blocks = memory.take<Real>(chunk_blocks * call.keys.scratch_elements);
    if (call.keys.split) {
      query_parts = memory.take<std::uint16_t>(tile_rows * parts_layout{call.head_dim, 0}.row_elements());
      weight_parts = memory.take<std::uint16_t>(32 * parts_layout{chunk_blocks * block_keys, 0}.row_elements());
    }
    prepared_sequence = -1;
  }
};

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ATTENTION_TILE_SCRATCH_HPP
