// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_WORKSPACE_SIZE_HPP
#define POSENC_ATTENTION_WORKSPACE_SIZE_HPP

#include "engine.hpp"
#include "plain_keys.hpp"

namespace posenc::inline POSENC_ABI {

/// What the memory of a call depends on.
struct workspace_shape {
  index_t sequences = 1;  ///< rows of the batch, or ragged sequences
  index_t heads = 0, kv_heads = 0;
  index_t q_tokens = 0, k_tokens = 0;  ///< of all sequences together
  index_t head_dim = 0;
  index_t value_dim = 0;    ///< 0: as head_dim
  index_t axes = 1;         ///< position axes
  index_t concurrency = 1;  ///< of the executor
  bool cached = false;      ///< keys are in a `kv_cache`, which holds k_tokens
};

/// Bytes of a `workspace` that a call of this shape allocates nothing with, for keys and values of type T (double or
/// anything else), for up to 2^40 tokens. One that calls let grow may hold half as much again. It is the sum of
///
///   the packed keys and values, unless they are cached:  blocks * packed_heads * 64 * (head_dim + padded value_dim) numbers,
///                                                        1.5 times as much with a matrix unit (see `attention`), which
///                                                        wants head_dim filled up to a multiple of 32
///   rotations, if packed_heads < kv_heads:               (q_tokens + blocks * 64) * the encoding's rotation_size
///   their tokens:                                        blocks * (1.1 KiB + 512 B for each axis)
///   partial results of few queries over many keys:       (blocks / 32 + sequences) * rows * kv_heads * padded value_dim,
///                                                        rows: of a sequence's queries and a group, of up to 16, or of
///                                                        up to 192 with 3 KV heads and less
///                                                        (up to 2 * sequences more over caches that forget blocks)
///   what each of the executor's threads works in, which does not depend on the tokens; threads that would find nothing to
///   do are not counted
///
/// with blocks = k_tokens / 64 + sequences and numbers of the compute type. value_dim is padded to a panel (`kv_layout`).
/// packed_heads is 1 for one thread, else kv_heads or 16 * concurrency / (q_tokens * group / 192) rounded up, whichever is
/// less.
template <scalar T, attention_encoding E>
index_t workspace_size(const workspace_shape& shape, const E& encoding) {
  using real = compute_type<T>;
  const index_t value_dim = shape.value_dim == 0 ? shape.head_dim : shape.value_dim;
  const index_t blocks = shape.k_tokens / block_keys + shape.sequences;
  const index_t group = shape.kv_heads < 1 ? 1 : shape.heads / shape.kv_heads;
  const index_t concurrency = shape.concurrency < 1 ? 1 : shape.concurrency;
  constexpr index_t size = sizeof(real), slack = 64;  // of a piece's alignment

  detail::attention_call<real> call;
  call.heads = shape.heads;
  call.kv_heads = shape.kv_heads;
  call.head_dim = shape.head_dim;
  call.value_dim = value_dim;
  call.encoding = detail::encoding_policy_of<real>(encoding);
  const index_t widest = shape.head_dim > value_dim ? shape.head_dim : value_dim;
  const index_t rotation = call.rotation_size(), padded = call.layout().padded_value_dim();

  index_t bytes = shape.sequences * static_cast<index_t>(sizeof(detail::attention_sequence)) + slack;
  bytes += blocks * static_cast<index_t>(sizeof(typename detail::plain_keys<real>::block_place)) + slack;
  const index_t numbers = call.layout().elements();
  call.keys.split =
      shape.q_tokens * group > detail::split_rows && detail::uses_matrix_unit<real>(shape.head_dim, value_dim);
  const index_t parts = call.keys.split ? detail::parts_layout_of(call.layout()).floats() : 0;
  if (shape.cached) {
    call.keys.scratch_elements = numbers + parts;
  } else {
    bytes += blocks * (static_cast<index_t>(sizeof(detail::key_tokens)) + shape.axes * block_keys * 8) + 2 * slack;
    const index_t jobs = detail::ceil_div(shape.q_tokens * group, detail::tile_rows);
    const index_t heads = detail::heads_at_a_time(jobs, shape.kv_heads, concurrency);
    const auto packed = [&](index_t n) {
      return blocks * n * ((call.keys.split ? parts : numbers) * size + 16) + 5 * slack;
    };
    const index_t rotations = (shape.q_tokens + blocks * block_keys) * rotation * size;
    // Sequences of other lengths have more tiles, and may have fewer heads at a time.
    const index_t fewer = heads < shape.kv_heads ? heads : shape.kv_heads - 1;
    const index_t most_heads = packed(heads), less = fewer < 1 ? 0 : packed(fewer) + rotations;
    bytes += most_heads > less ? most_heads : less;
    const index_t packers = concurrency < blocks ? concurrency : blocks;
    bytes += packers * (block_keys * (widest + rotation) + (call.keys.split ? numbers : 0)) * size + slack;
    call.keys.scratch_elements = numbers + block_keys * widest + parts;
  }
  const index_t ranges = shape.cached                    ? blocks / detail::split_blocks + 3 * shape.sequences
                         : blocks > detail::split_blocks ? blocks / detail::split_blocks + shape.sequences
                                                         : 0;
  const index_t most = detail::most_split_rows(shape.kv_heads);
  const index_t split = shape.q_tokens * group < most ? shape.q_tokens * group : most;
  const index_t tiles = shape.q_tokens * group / detail::tile_rows + shape.sequences;
  bytes += (tiles + ranges) * static_cast<index_t>(sizeof(detail::tile_job) + sizeof(index_t)) + 2 * slack;
  bytes += ranges * split * shape.kv_heads * (padded * size + 16) + 3 * slack;
  detail::bump_allocator counter(nullptr);
  detail::tile_scratch<real> scratch;
  scratch.take(counter, call, shape.axes);
  const index_t tasks = (tiles + ranges) * shape.kv_heads;
  const index_t workers = concurrency < tasks ? concurrency : tasks;
  return bytes + slack + workers * (counter.used() + static_cast<index_t>(sizeof scratch));
}

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ATTENTION_WORKSPACE_SIZE_HPP
