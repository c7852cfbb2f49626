// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_CALL_HPP
#define POSENC_ATTENTION_CALL_HPP

#include "../core/finite.hpp"
#include "../core/minus_infinity.hpp"
#include "../core/tensor_view.hpp"
#include "../core/tokens.hpp"
#include "key_tokens.hpp"
#include "kv_block.hpp"
#include "matrix_kernel.hpp"
#include "micro_kernel.hpp"
#include "options.hpp"
#include "policies.hpp"

/// One attention call in the form that the engine runs: no type of the caller's is left, only the compute type.
namespace posenc::inline POSENC_ABI::detail {

/// A row of a batch, or one sequence of a ragged one: its queries against its own blocks of keys.
struct attention_sequence {
  index_t batch = 0;                    ///< row of the q tensor and of its token description
  index_t q_begin = 0, q_count = 0;     ///< queries, as indices in that row
  index_t first_block = 0, blocks = 0;  ///< key blocks, as the key source counts them
  index_t kept = 0, dropped = 0;        ///< a cache has forgotten so many blocks behind the first `kept`

  /// Whether the keys of `rows` rows are split into ranges: where tiles are so few that cores would wait.
  bool splits(index_t rows, index_t kv_heads) const noexcept {
    return rows <= most_split_rows(kv_heads) && blocks + dropped > split_blocks;
  }
  /// End of the range of keys that starts at a block. Forgotten blocks keep their places in ranges, so that the others stay
  /// in the same parts of the sum.
  index_t range_end(index_t block) const noexcept {
    const index_t place = block < kept ? block : block + dropped;
    const index_t end = (place / split_blocks + 1) * split_blocks;
    index_t here = end;
    if (end > kept) here = end - dropped > kept ? end - dropped : kept;
    return here < blocks ? here : blocks;
  }
};

/// The addresses of a tensor's rows: strides in bytes of batch, head and token.
template <class Void>
struct byte_rows {
  Void* data = nullptr;
  index_t batch = 0, head = 0, token = 0;

  Void* row(index_t b, index_t h, index_t t) const noexcept {
    using byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
    return static_cast<byte*>(data) + (b * batch + h * head + t * token);
  }
};

template <class T>
auto byte_rows_of(const tensor_view<T>& x) noexcept {
  using pointer = std::conditional_t<std::is_const_v<T>, const void, void>;
  constexpr auto size = static_cast<index_t>(sizeof(T));
  // Strides of axes with one entry may be anything.
  const auto bytes = [&](std::size_t axis) { return x.extent(axis) > 1 ? x.stride(axis) * size : 0; };
  return byte_rows<pointer>{x.data_handle(), bytes(0), bytes(1), bytes(2)};
}

/// Where blocks of keys come from: packed for the call, packed when asked for, or a cache.
template <class Real>
struct key_source {
  const void* context = nullptr;
  const key_tokens& (*tokens)(const void*, index_t block) = nullptr;
  /// One KV head of a block for a tile; it may stand in `scratch`, which has room for `scratch_elements` numbers.
  kv_pointer<Real> (*block)(const void*, index_t block, index_t kv_head, tile_use use, Real* scratch) = nullptr;
  /// Where a block's bytes are, to be fetched ahead; null if they are not known before they are asked for. It gives null
  /// for KV heads that are not packed yet.
  const void* (*address)(const void*, index_t block, index_t kv_head) = nullptr;
  /// At least the length of every key of a block; negative if that is not known.
  double (*longest_key)(const void*, index_t block, index_t kv_head) = nullptr;
  index_t scratch_elements = 0;
  bool split = false;  ///< blocks may come split for a matrix unit
};

template <class Real>
struct attention_call {
  index_t heads = 0, kv_heads = 0, head_dim = 0, value_dim = 0;
  byte_rows<const void> q;
  row_loader<Real> load_q = nullptr;
  byte_rows<void> out;
  row_storer<Real> store_out = nullptr;
  token_view q_tokens;
  const attention_sequence* sequences = nullptr;
  index_t sequence_count = 0;
  key_source<Real> keys;
  encoding_policy<Real> encoding;
  mask_policy mask;
  double scale = 1, softcap = 0;
  head_numbers sinks;
  lse_view lse;

  index_t group() const noexcept { return heads / kv_heads; }
  kv_layout<Real> layout() const noexcept { return {head_dim, value_dim}; }
  rotation_shape rotation() const noexcept { return {head_dim, kv_heads}; }
  index_t rotation_size() const {
    return encoding.rotation == nullptr ? 0 : encoding.rotation->size(encoding.encoding, rotation());
  }
};

/// Writes one finished row. `weighted` holds the sum of e^(score - base) v, `sum` that of e^(score - base); sum 0 means
/// that the row saw nothing. A sink enters the denominator here, once.
template <class Real>
void finish_row(const attention_call<Real>& call, index_t batch, const tile_row& row, const Real* weighted, double base,
                const double& sum, Real* scratch) noexcept {
  void* out = call.out.row(batch, row.head, row.query);
  const bool padding = row.document == -1, has_sink = call.sinks.size() > 0;
  if (padding || is_zero(sum)) {
    for (index_t d = 0; d < call.value_dim; ++d) scratch[d] = 0;
    call.store_out(scratch, call.value_dim, out);
    if (!call.lse) return;
    if (padding || !has_sink) {
      call.lse.set_minus_infinity(batch, row.head, row.query);
    } else {
      call.lse.set(batch, row.head, row.query, call.sinks[row.head]);
    }
    return;
  }
  double top = base, denominator = sum;
  if (has_sink) {
    const double sink = call.sinks[row.head];
    top = sink > base ? sink : base;
    denominator = sum * std::exp(base - top) + std::exp(sink - top);
  }
  const auto factor = static_cast<Real>(std::exp(base - top) / denominator);
  for (index_t d = 0; d < call.value_dim; ++d) scratch[d] = weighted[d] * factor;
  call.store_out(scratch, call.value_dim, out);
  if (call.lse) call.lse.set(batch, row.head, row.query, top + std::log(denominator));
}

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ATTENTION_CALL_HPP
