// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_TILE_HPP
#define POSENC_ATTENTION_TILE_HPP

#include <cstdint>

#include "call.hpp"
#include "micro_kernel.hpp"
#include "reach_limit.hpp"
#include "score_pass.hpp"
#include "tile_scratch.hpp"
#include "workspace.hpp"

/// One score tile: some rows (queries times the heads of a group) of one KV head against a range of key blocks.
namespace posenc::inline POSENC_ABI::detail {

/// Rows [first, end) of a tile.
struct row_span {
  index_t first = 0, end = 0;
};

/// What masks may know of the tile's queries together.
struct query_summary {
  token_block block;
  std::int64_t first_document = 0, last_document = 0;
  bool any = false, padding = false;
};

template <class Real>
class tile_runner {
 public:
  tile_runner(const attention_call<Real>& call, tile_scratch<Real>& scratch) : call_(call), scratch_(scratch) {}

  /// Leaves the weighted sums in scratch.sums and the softmax state in scratch.state; the caller finishes the rows.
  void run(const tile_job& job, index_t kv_head) {
    const attention_sequence& sequence = call_.sequences[job.sequence];
    describe_rows(sequence, job, kv_head);
    pack_queries(sequence, job, kv_head);
    const query_summary queries = summarise(sequence.batch, job.rows);
    const index_t padded = call_.layout().padded_value_dim();
    scratch_.state->reset();
    for (index_t i = 0; i < job.rows * padded; ++i) scratch_.sums[i] = 0;
    if (!queries.any) return;

    const bool split = call_.keys.split && split_queries(job.rows);
    // Register tiles stay where they are for all rows.
    rows_together_ = split ? parts_layout::side : tile_shape<Real>::rows;
    const index_t most = split || job.rows <= split_rows ? chunk_blocks : chunk_of_many_rows<Real>();
    index_t filled = 0, places = 0;
    kv_pointer<Real> chunk[chunk_blocks];
    const reach_limit<Real> reach(call_, scratch_, job, kv_head);
    for (index_t step = 0; step < job.blocks; ++step) {
      const index_t b = reach.nearest_first(step);
      const index_t block = sequence.first_block + job.first_block + b;
      const key_tokens& keys = call_.keys.tokens(call_.keys.context, block);
      const row_span seen = see(sequence.batch, job.rows, queries, keys, filled);
      if (seen.first >= seen.end) continue;
      // What is left out keeps its place, so that sums are made of the same parts.
      ++places;
      if (!reach.beyond(block, keys)) {
        chunk[filled] = call_.keys.block(call_.keys.context, block, kv_head, {job.rows, split},
                                         scratch_.blocks + filled * call_.keys.scratch_elements);
        score(seen, chunk[filled], keys, filled);
        ++filled;
      }
      if (places == most) {
        if (filled > 0) accumulate(job, kv_head, reach, step + 1, chunk, filled);
        filled = places = 0;
      }
    }
    if (filled > 0) accumulate(job, kv_head, reach, job.blocks, chunk, filled);
  }

 private:
  void describe_rows(const attention_sequence& sequence, const tile_job& job, index_t kv_head) const {
    const index_t group = call_.group(), axes = call_.q_tokens.axes();
    const index_t first_query = job.first_row / group;
    for (index_t r = 0; r < job.rows; ++r) {
      tile_row& row = scratch_.rows[r];
      const index_t query = (job.first_row + r) / group;
      double* position = scratch_.positions + (query - first_query) * axes;
      row.head = kv_head * group + (job.first_row + r) % group;
      row.position = position;
      if (r > 0 && scratch_.rows[r - 1].query == sequence.q_begin + query) {
        row.query = scratch_.rows[r - 1].query;
        row.order = scratch_.rows[r - 1].order;
        row.document = scratch_.rows[r - 1].document;
        continue;
      }
      row.query = sequence.q_begin + query;
      row.order = call_.q_tokens.order(sequence.batch, row.query);
      row.document = call_.q_tokens.document(sequence.batch, row.query);
      for (index_t axis = 0; axis < axes; ++axis)
        position[axis] = call_.q_tokens.position(axis, sequence.batch, row.query);
    }
  }

  /// Loads, rotates and scales the rows: [rows][query_stride], filled up with zeros.
  void pack_queries(const attention_sequence& sequence, const tile_job& job, index_t kv_head) {
    const index_t group = call_.group(), first_query = job.first_row / group;
    const index_t size = call_.rotation_size();
    const Real* rotations = call_.encoding.rotation == nullptr ? nullptr : rotations_of(sequence, job, size);
    const simd::vec<Real> scale(call_.softcap > 0 ? call_.scale / call_.softcap : call_.scale);
    const index_t stride = scratch_.query_stride;
    for (index_t first = 0, end = 0; first < job.rows; first = end) {
      // The heads of one query turn together.
      const index_t query = (job.first_row + first) / group, last = (query + 1) * group - job.first_row;
      end = last < job.rows ? last : job.rows;
      Real* rows = scratch_.queries + first * stride;
      for (index_t r = first; r < end; ++r) {
        const tile_row& row = scratch_.rows[r];
        call_.load_q(call_.q.row(sequence.batch, row.head, row.query), call_.head_dim, scratch_.queries + r * stride);
      }
      // Nobody sees what padding holds; as zeros it does not say either what the tile's numbers are like.
      const bool padding = scratch_.rows[first].document == -1;
      for (index_t i = 0; padding && i < (end - first) * stride; ++i) rows[i] = 0;
      if (rotations != nullptr)
        call_.encoding.rotate(call_.rotation(), rotations + (query - first_query) * size, kv_head, rows, end - first,
                              stride);
      for (Real* to = rows; to < rows + (end - first) * stride; to += stride) {
        for (index_t d = call_.head_dim; d < stride; ++d) to[d] = 0;
        for (index_t d = 0; d < stride; d += simd::vec<Real>::lanes) simd::store(to + d, simd::load(to + d) * scale);
      }
    }
  }

  /// Splits the packed queries for a matrix unit, if their parts do.
  bool split_queries(index_t rows) const {
    if constexpr (std::is_same_v<Real, float>) {
      simd::magnitude_range seen;
      seen.see(scratch_.queries, rows * scratch_.query_stride);
      if (!parts_do(seen)) return false;
      const index_t steps = parts_layout{call_.head_dim, 0}.key_steps();
      split_rows_of(scratch_.queries, scratch_.query_stride, rows, 0, steps, steps, scratch_.query_parts);
      return true;
    } else {
      return false;
    }
  }

  /// The rotations of the tile's queries, one after another.
  const Real* rotations_of(const attention_sequence& sequence, const tile_job& job, index_t size) {
    if (scratch_.all_rotations != nullptr) {
      const index_t row = call_.q_tokens.batch() == 1 ? 0 : sequence.batch;
      const index_t query = sequence.q_begin + job.first_row / call_.group();
      return scratch_.all_rotations + (row * call_.q_tokens.count() + query) * size;
    }
    prepare_rotations(sequence, job, size);
    return scratch_.rotations;
  }

  /// Prepares them here; they are kept from one KV head to the next.
  void prepare_rotations(const attention_sequence& sequence, const tile_job& job, index_t size) {
    const index_t group = call_.group();
    const index_t first = job.first_row / group, count = (job.first_row + job.rows - 1) / group - first + 1;
    if (scratch_.prepared_sequence == job.sequence && scratch_.prepared_query == first &&
        scratch_.prepared_count == count)
      return;
    for (index_t query = 0; query < count; ++query)
      prepare_rotation_of(call_.encoding, call_.rotation(), call_.q_tokens, sequence.batch,
                          sequence.q_begin + first + query, token_role::query, scratch_.rotations + query * size);
    scratch_.prepared_sequence = job.sequence;
    scratch_.prepared_query = first;
    scratch_.prepared_count = count;
  }

  query_summary summarise(index_t batch, index_t rows) const {
    query_summary all;
    for (index_t r = 0; r < rows; ++r) {
      const tile_row& row = scratch_.rows[r];
      if (row.document == -1) {
        all.padding = true;
        continue;
      }
      if (!all.any) {
        all.block = {row.order, row.order, row.query, row.query + 1, batch, row.head};
        all.first_document = all.last_document = row.document;
        all.any = true;
      }
      all.block.first_order = row.order < all.block.first_order ? row.order : all.block.first_order;
      all.block.last_order = row.order > all.block.last_order ? row.order : all.block.last_order;
      all.block.end = row.query + 1;
      all.first_document = row.document < all.first_document ? row.document : all.first_document;
      all.last_document = row.document > all.last_document ? row.document : all.last_document;
    }
    return all;
  }

  /// Fills the bits of one block for all rows; gives the rows that see something of it, and some of their neighbours.
  row_span see(index_t batch, index_t rows, const query_summary& queries, const key_tokens& keys, index_t slot) const {
    if (keys.count == 0 || keys.all_padding()) return {};
    if (keys.last_document < queries.first_document || keys.first_document > queries.last_document) return {};
    const visibility seen = classify(queries.block, keys.summary(batch));
    if (seen == visibility::none) return {};
    const bool one_document =
        !queries.padding && queries.first_document == queries.last_document && keys.one_document();
    std::uint64_t* bits = scratch_.bits + slot;
    if (seen == visibility::all && one_document) {
      for (index_t r = 0; r < rows; ++r) bits[r * chunk_blocks] = low_bits(keys.count);
      return {0, rows};
    }
    row_span seeing{rows, 0};
    for (index_t r = 0; r < rows; ++r) {
      const tile_row& row = scratch_.rows[r];
      std::uint64_t& mine = bits[r * chunk_blocks];
      if (r > 0 && row.query == scratch_.rows[r - 1].query && !call_.mask.functions->per_head) {
        mine = bits[(r - 1) * chunk_blocks];
        if (mine != 0) seeing.end = r + 1;
        continue;
      }
      mine = one_document ? low_bits(keys.count) : document_bits(row.document, keys);
      if (seen != visibility::all && mine != 0) {
        const token query{row.order, row.document,
                          row.query, batch,
                          row.head,  position_span(row.position, static_cast<std::size_t>(call_.q_tokens.axes()))};
        mine = call_.mask.functions->row_bits(call_.mask.mask, query, keys, mine);
      }
      if (mine == 0) continue;
      seeing.first = r < seeing.first ? r : seeing.first;
      seeing.end = r + 1;
    }
    seeing.first -= seeing.first % rows_together_;
    return seeing;
  }

  /// What the mask says of the tile's queries; where it differs between heads, of all heads of the group.
  visibility classify(token_block queries, token_block keys) const {
    const index_t group = call_.mask.functions->per_head ? call_.group() : 1;
    const index_t first_head = queries.head / group * group;
    queries.head = keys.head = group == 1 ? queries.head : first_head;
    const visibility all = call_.mask.functions->classify(call_.mask.mask, queries, keys);
    for (index_t h = 1; h < group; ++h) {
      queries.head = keys.head = first_head + h;
      if (call_.mask.functions->classify(call_.mask.mask, queries, keys) != all) return visibility::some;
    }
    return all;
  }

  void score(row_span seen, const kv_pointer<Real>& block, const key_tokens& keys, index_t slot) const {
    constexpr index_t stride = tile_scratch<Real>::score_stride;
    const index_t q_stride = scratch_.query_stride, q_parts = parts_layout{call_.head_dim, 0}.row_elements();
    // With more to do for each score, some rows at a time, so that they are still in the first cache.
    const bool split = scratch_.query_parts != nullptr;
    const bool plain = !(call_.softcap > 0) && call_.encoding.bias == nullptr;
    for (index_t first = seen.first; first < seen.end; first += plain ? tile_rows : warm_rows) {
      const index_t left = seen.end - first, rows = plain || left < warm_rows ? left : warm_rows;
      Real* scores = scratch_.scores + first * stride + slot * block_keys;
      block.kernels->score(
          {scratch_.queries + first * q_stride, q_stride, split ? scratch_.query_parts + first * q_parts : nullptr},
          scratch_.bits + first * chunk_blocks + slot, rows, block, call_.head_dim, scores, stride);
      if (call_.softcap > 0) softcap_block(scores, stride, rows, call_.softcap);
      if (call_.encoding.bias != nullptr)
        call_.encoding.bias->add(call_.encoding.encoding, scores, stride, scratch_.rows + first, rows, keys);
    }
  }

  /// What is read at a step: the keys of that block, past the last one those of the next KV head; or `otherwise`.
  const void* upcoming(const tile_job& job, index_t kv_head, const reach_limit<Real>& reach, index_t step,
                       const void* otherwise) const {
    if (call_.keys.address == nullptr) return otherwise;
    if (step >= job.blocks) {
      step -= job.blocks;
      ++kv_head;
      if (step >= job.blocks || kv_head >= call_.kv_heads) return otherwise;
    }
    const index_t first = call_.sequences[job.sequence].first_block + job.first_block;
    const void* at = call_.keys.address(call_.keys.context, first + reach.nearest_first(step), kv_head);
    return at == nullptr ? otherwise : at;
  }

  /// Softmax and values of the blocks of a chunk; step `next` of the job is the first one after it.
  void accumulate(const tile_job& job, index_t kv_head, const reach_limit<Real>& reach, index_t next,
                  const kv_pointer<Real>* chunk, index_t blocks) const {
    constexpr index_t stride = tile_scratch<Real>::score_stride;
    const index_t rows = job.rows, padded = call_.layout().padded_value_dim();
    softmax_step(scratch_.scores, stride, rows, blocks, scratch_.bits, *scratch_.state);
    const void* ahead[chunk_blocks];
    bool together = true;
    for (index_t b = 0; b < blocks; ++b) {
      ahead[b] = rows <= split_rows ? upcoming(job, kv_head, reach, next + b, chunk[b].values) : chunk[b].values;
      together = together && chunk[b].finite_values && chunk[b].kernels == chunk[0].kernels;
    }
    if (together) {
      chunk[0].kernels->values(scratch_.scores, stride, scratch_.bits, rows, chunk, ahead, blocks, padded,
                               scratch_.state->rescale, scratch_.sums, padded, scratch_.weight_parts);
      return;
    }
    rescale_rows(scratch_.state->rescale, rows, padded, scratch_.sums, padded);
    for (index_t r = 0; r < rows; ++r) scratch_.state->rescale[r] = 1;
    for (index_t b = 0; b < blocks; ++b) {
      const Real* weights = scratch_.scores + b * block_keys;
      const block_kernels<Real>& kernels = *chunk[b].kernels;
      if (chunk[b].finite_values) {
        kernels.values(weights, stride, scratch_.bits + b, rows, chunk + b, ahead + b, 1, padded,
                       scratch_.state->rescale, scratch_.sums, padded, scratch_.weight_parts);
      } else {
        kernels.values_with_holes(weights, stride, rows, chunk[b], padded, scratch_.sums, padded);
      }
    }
  }

  const attention_call<Real>& call_;
  tile_scratch<Real>& scratch_;
  index_t rows_together_ = 1;
};

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ATTENTION_TILE_HPP
