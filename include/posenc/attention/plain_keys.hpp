// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_PLAIN_KEYS_HPP
#define POSENC_ATTENTION_PLAIN_KEYS_HPP

#include <atomic>
#include <cstdint>

#include "../core/executor.hpp"
#include "call.hpp"
#include "engine.hpp"

namespace posenc::inline POSENC_ABI::detail {

/// Keys and values in the caller's tensors as a source of blocks. With more rows than one score tile, or with keys to
/// rotate, all blocks are packed once, before the tiles, and shared by all tiles and heads of a group; else few rows read
/// them where they lie, and more have each packed into the worker's scratch when their one tile asks for it.
template <class Real>
class plain_keys {
 public:
  struct block_place {
    index_t batch, first, count;
    bool split;  ///< its queries are many
  };

  index_t kv_heads = 0, head_dim = 0, value_dim = 0;
  byte_rows<const void> k, v;
  row_loader<Real> load = nullptr;
  bool direct = false;  ///< the elements are of the compute type: rows need no loading
  const block_kernels<Real>* row_kernels = nullptr;
  index_t element_size = 0;
  token_view tokens;
  encoding_policy<Real> encoding;
  bool pack_ahead = true;
  bool split = false;           ///< for a matrix unit, where queries are many
  index_t heads_at_a_time = 0;  ///< KV heads that are packed at the same time

  kv_layout<Real> layout() const noexcept { return {head_dim, value_dim}; }
  rotation_shape rotation() const noexcept { return {head_dim, kv_heads}; }
  index_t rotation_size() const {
    return encoding.rotation == nullptr ? 0 : encoding.rotation->size(encoding.encoding, rotation());
  }
  index_t blocks() const noexcept { return block_count_; }

  /// Counts the blocks of one sequence's keys [first, first + count); the first one's number is returned.
  index_t add_sequence(index_t count) noexcept {
    const index_t at = block_count_;
    block_count_ += ceil_div(count, block_keys);
    return at;
  }

  void take(bump_allocator& memory, index_t workers) {
    key_tokens_ = memory.take<key_tokens>(block_count_);
    places_ = memory.take<block_place>(block_count_);
    positions_ = memory.take<double>(block_count_ * tokens.axes() * block_keys);
    if (pack_ahead) {
      packed_ = memory.take<Real>(block_count_ * heads_at_a_time * packed_elements());
      forms_ = memory.take<block_form>(block_count_ * heads_at_a_time);
      rows_ = memory.take<Real>((workers < block_count_ ? workers : block_count_) * rows_elements());
      if (bounds_biases()) longest_ = memory.take<double>(block_count_ * heads_at_a_time);
      if (keeps_rotations()) rotations_ = memory.take<Real>(block_count_ * block_keys * rotation_size());
    }
  }

  /// Describes the keys [first, first + count) of a row, from block `at` on; `rows` will look at them.
  void describe(index_t at, index_t batch, index_t first, index_t count, index_t rows) noexcept {
    for (index_t done = 0; done < count; done += block_keys, ++at) {
      const index_t n = count - done < block_keys ? count - done : block_keys;
      key_tokens_[at] = key_tokens{};
      key_tokens_[at].first_index = first + done;
      key_tokens_[at].append(tokens, batch, first + done, n, positions_ + at * tokens.axes() * block_keys);
      places_[at] = {batch, first + done, n, split && rows > split_rows};
    }
  }

  /// Packs KV heads [first, first + count), count <= heads_at_a_time, in the place of those before; the first ones first.
  template <executor X>
  void pack(X& executor, index_t workers, index_t first, index_t count) {
    if (!pack_ahead) return;
    first_head_ = first;
    packed_heads_ = count;
    std::atomic<index_t> next{0};
    executor.parallel_for(workers < block_count_ ? workers : block_count_, [&](index_t worker) {
      Real* rows = rows_ + worker * rows_elements();
      for (index_t b = next.fetch_add(1); b < block_count_; b = next.fetch_add(1)) {
        if (key_tokens_[b].all_padding()) continue;  // nobody will ask for it
        Real* rotations = keeps_rotations() ? rotations_ + b * block_keys * rotation_size()
                                            : rows + block_keys * widest() + unsplit_elements();
        if (first == 0 || !keeps_rotations()) prepare_rotations(b, rotations);
        for (index_t h = first; h < first + count; ++h) {
          const index_t at = place(b, h);
          Real* packed = packed_ + at * packed_elements();
          Real* numbers = places_[b].split ? rows + block_keys * widest() : packed;
          forms_[at] = {pack_block(b, h, numbers, rows, rotations), {0, 0}};
          if (bounds_biases()) longest_[at] = longest_key_of(numbers, head_dim);
          if (!places_[b].split) continue;
          if (forms_[at].finite)
            forms_[at].parts = split_if_parts_do(layout(), numbers, numbers + layout().key_elements(), packed);
          if (!forms_[at].split())
            for (index_t i = 0; i < layout().elements(); ++i) packed[i] = numbers[i];
        }
      }
    });
  }

  key_source<Real> source() const noexcept {
    key_source<Real> result;
    result.context = this;
    result.tokens = [](const void* self, index_t block) -> const key_tokens& {
      return static_cast<const plain_keys*>(self)->key_tokens_[block];
    };
    if (pack_ahead) {
      if (split) result.scratch_elements = layout().elements();
      result.block = [](const void* self, index_t block, index_t kv_head, tile_use use,
                        Real* scratch) -> kv_pointer<Real> {
        const auto& me = *static_cast<const plain_keys*>(self);
        const index_t at = me.place(block, kv_head);
        const Real* packed = me.packed_ + at * me.packed_elements();
        const block_form form = me.forms_[at];
        if (!form.split()) return number_pointer(me.layout(), packed, form.finite, use);
        if (use.split) return split_pointer(me.layout(), packed, form.parts);
        join_numbers(me.layout(), packed, scratch);
        return number_pointer(me.layout(), scratch, true, use);
      };
      result.address = [](const void* self, index_t block, index_t kv_head) -> const void* {
        const auto& me = *static_cast<const plain_keys*>(self);
        const bool there = kv_head - me.first_head_ < me.packed_heads_;
        return there ? me.packed_ + me.place(block, kv_head) * me.packed_elements() : nullptr;
      };
      if (bounds_biases())
        result.longest_key = [](const void* self, index_t block, index_t kv_head) -> double {
          const auto& me = *static_cast<const plain_keys*>(self);
          return me.longest_[me.place(block, kv_head)];
        };
    } else {
      result.address = [](const void* self, index_t block, index_t kv_head) -> const void* {
        const auto& me = *static_cast<const plain_keys*>(self);
        const block_place& place = me.places_[block];
        return me.k.row(place.batch, kv_head, place.first);
      };
      result.scratch_elements = scratch_elements();
      result.block = [](const void* self, index_t block, index_t kv_head, tile_use use,
                        Real* scratch) -> kv_pointer<Real> {
        const auto& me = *static_cast<const plain_keys*>(self);
        if (use.rows <= split_rows) return me.row_pointer(block, kv_head, scratch);
        Real* rows = scratch + me.layout().elements();
        const bool finite = me.pack_block(block, kv_head, scratch, rows, nullptr);
        return number_pointer(me.layout(), scratch, finite, use, rows + block_keys * me.widest());
      };
    }
    result.split = split;
    return result;
  }

  /// What a worker needs for a block that is packed when asked for: its numbers, rows of them, and its parts.
  index_t scratch_elements() const noexcept {
    return layout().elements() + block_keys * widest() + (split ? parts_layout_of(layout()).floats() : 0);
  }

 private:
  /// What a packed block is: numbers, whose values may not all be finite, or parts.
  struct block_form {
    bool finite = true;
    split_parts parts;

    bool split() const noexcept { return parts.keys > 0; }
  };

  bool bounds_biases() const noexcept { return encoding.bias != nullptr && encoding.bias->largest != nullptr; }
  bool keeps_rotations() const noexcept { return encoding.rotation != nullptr && heads_at_a_time < kv_heads; }
  index_t place(index_t block, index_t kv_head) const noexcept {
    return block * heads_at_a_time + kv_head - first_head_;
  }
  index_t widest() const noexcept { return head_dim > value_dim ? head_dim : value_dim; }
  /// What the packers of blocks need: rows, numbers of a block that is to be split, rotations.
  index_t rows_elements() const { return block_keys * (widest() + rotation_size()) + unsplit_elements(); }
  index_t unsplit_elements() const noexcept { return split ? layout().elements() : 0; }
  index_t packed_elements() const noexcept { return split ? parts_layout_of(layout()).floats() : layout().elements(); }

  /// The block where it lies.
  kv_pointer<Real> row_pointer(index_t block, index_t kv_head, Real* scratch) const noexcept {
    const block_place& place = places_[block];
    kv_pointer<Real> result{k.row(place.batch, kv_head, place.first), v.row(place.batch, kv_head, place.first), true,
                            row_kernels};
    result.count = place.count;
    result.key_stride = k.token / element_size;
    result.value_stride = v.token / element_size;
    result.key_dim = head_dim;
    result.value_dim = value_dim;
    result.scratch = scratch;
    return result;
  }

  void prepare_rotations(index_t block, Real* rotations) const {
    if (encoding.rotation == nullptr) return;
    const block_place& place = places_[block];
    for (index_t j = 0; j < place.count; ++j)
      prepare_rotation_of(encoding, rotation(), tokens, place.batch, place.first + j, token_role::key,
                          rotations + j * rotation_size());
  }

  /// Packs one KV head of one block; true if all values are finite. rows: [block_keys][widest()].
  bool pack_block(index_t block, index_t kv_head, Real* to, Real* rows, const Real* rotations) const {
    const block_place& place = places_[block];
    Real* values = to + layout().key_elements();
    const bool rotates = rotations != nullptr && encoding.rotation != nullptr;
    if (direct && !rotates) {
      pack_keys(static_cast<const Real*>(k.row(place.batch, kv_head, place.first)),
                k.token / static_cast<index_t>(sizeof(Real)), place.count, 0, head_dim, to);
    } else {
      for (index_t j = 0; j < place.count; ++j) {
        Real* row = rows + j * head_dim;
        load(k.row(place.batch, kv_head, place.first + j), head_dim, row);
        if (rotates) encoding.rotate(rotation(), rotations + j * rotation_size(), kv_head, row);
      }
      pack_keys(rows, head_dim, place.count, 0, head_dim, to);
    }
    bool finite = true;
    const key_tokens& described = key_tokens_[block];
    for (index_t j = 0; j < place.count; ++j) {
      // Nobody sees what padding holds; as zeros it does not say either what the block's numbers are like.
      if (described.document[j] == -1) {
        clear_slots(j, j + 1, layout(), to, values);
        continue;
      }
      const void* stored = v.row(place.batch, kv_head, place.first + j);
      if (!direct) load(stored, value_dim, rows);
      const Real* row = direct ? static_cast<const Real*>(stored) : rows;
      finite = all_finite(row, value_dim) && finite;
      pack_value(row, j, layout(), values);
    }
    clear_slots(place.count, block_keys, layout(), to, values);
    return finite;
  }

  index_t block_count_ = 0, first_head_ = 0, packed_heads_ = 0;
  key_tokens* key_tokens_ = nullptr;
  block_place* places_ = nullptr;
  double* positions_ = nullptr;
  Real* packed_ = nullptr;
  Real *rows_ = nullptr, *rotations_ = nullptr;
  block_form* forms_ = nullptr;
  double* longest_ = nullptr;
};

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ATTENTION_PLAIN_KEYS_HPP
