// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_KV_CACHE_HPP
#define POSENC_ATTENTION_KV_CACHE_HPP

#include <span>
#include <utility>
#include <vector>

#include "kv_allocator.hpp"
#include "kv_view.hpp"

namespace posenc::inline POSENC_ABI {

/// Shape of a `kv_cache`, and what it may hold.
struct kv_cache_shape {
  index_t kv_heads = 0;    ///< key and value heads
  index_t head_dim = 0;    ///< of keys
  index_t value_dim = 0;   ///< of values; 0: as head_dim
  index_t sequences = 1;   ///< sequences, which grow on their own
  index_t axes = 1;        ///< position axes of the tokens
  index_t max_blocks = 0;  ///< blocks of 64 tokens that all sequences together may take; 0: any number
  /// Appending tokens first forgets the blocks that none of them sees through `window_of(keep_last)`; 0: none.
  index_t keep_last = 0;
  index_t keep_first = 0;  ///< blocks with the first so many tokens of a sequence are never forgotten
};

/// Keys and values of the tokens so far, for decoding. A sequence is a list of blocks of one pool (paged: its blocks may lie
/// anywhere, several sequences may share some), in the layout that attention reads, so that a step packs nothing. Blocks
/// that no sequence needs any more are used again; memory is kept until the cache is destroyed. Keys are rotated once, when
/// they are appended, and the cache remembers by which encoding: attention with another one is an error.
/// T is float, double, half or bfloat16. Changing and reading at the same time is not allowed; several readers are.
template <scalar T>
class kv_cache {
 public:
  using value_type = T;
  using real = compute_type<T>;

  /// Errors: invalid_shape for an extent below 1 (those that 0 is allowed for: below 0), or too many axes.
  explicit kv_cache(const kv_cache_shape& shape)
      : shape_(checked(shape)),
        blocks_({shape_.kv_heads, shape_.head_dim, shape_.value_dim, shape_.axes}, shape_.max_blocks) {
    sequences_.resize(static_cast<std::size_t>(shape_.sequences));
  }

  const kv_cache_shape& shape() const noexcept { return shape_; }
  const kv_pool<T>& pool() const noexcept { return blocks_.pool(); }
  /// As many as the shape says; none after the cache was moved from.
  index_t sequences() const noexcept { return static_cast<index_t>(sequences_.size()); }
  /// Tokens of a sequence, forgotten ones included. Errors: out_of_range.
  index_t length(index_t sequence = 0) const {
    require_sequence("sequence", sequence);
    return list(sequence).length;
  }
  index_t longest() const noexcept { return all().longest(); }
  /// Blocks that sequences hold, and what is left of max_blocks (without it: of those made so far).
  index_t used_blocks() const noexcept { return blocks_.used_blocks(); }
  index_t free_blocks() const noexcept { return blocks_.free_blocks(); }
  /// Makes blocks until there are `count`, used or not, and touches their memory, so that no step has to wait for it.
  /// Errors: out_of_range (more than max_blocks).
  void reserve_blocks(index_t count) {
    if (shape_.max_blocks > 0 && count > shape_.max_blocks)
      raise(
          make_error(errc::out_of_range, "count", "is %td; allowed: up to max_blocks, %td", count, shape_.max_blocks));
    blocks_.reserve(count);
  }

  /// Forgets the tokens of a sequence. Blocks that no other one shares are free then. Errors: out_of_range.
  void clear(index_t sequence) {
    require_sequence("sequence", sequence);
    blocks_.shrink(list(sequence), 0);
    list(sequence).length = list(sequence).dropped = 0;
  }

  /// Forgets blocks from the start of a sequence (behind those that keep_first protects) as long as every order in them is
  /// below `order`; the block that is being filled stays. Nobody sees a forgotten key: under masks that would not see it
  /// anyway results stay as they were, to the bit. Errors: out_of_range.
  void forget_before(index_t sequence, double order) {
    require_sequence("sequence", sequence);
    detail::kv_sequence& from = list(sequence);
    const index_t count = forgettable(from, order);
    if (count == 0) return;
    const auto first = from.blocks.begin() + kept();
    for (auto block = first; block != first + count; ++block) blocks_.release(*block);
    from.blocks.erase(first, first + count);
    from.dropped += count;
  }

  /// Makes `to` the first `count` tokens of `from`, by sharing its blocks: a common prompt, a beam. What `to` held is
  /// forgotten. A block of which a part is taken is copied; one that is shared is copied before somebody appends to it.
  /// Errors: out_of_range for sequences, for a count that `from` does not have or whose end it has forgotten, and for a
  /// copy that max_blocks leaves no room for; mismatch for from == to.
  void fork(index_t from, index_t to, index_t count) {
    require_sequence("from", from);
    require_sequence("to", to);
    if (from == to) raise(make_error(errc::mismatch, "to", "is from, %td; allowed: another sequence", to));
    const detail::kv_sequence& source = list(from);
    require_tokens(from, count);
    const bool copies = count < source.length && count % block_keys != 0;
    const std::vector<index_t>& former = list(to).blocks;
    raise_if(blocks_.check_room("fork", copies ? 1 : 0, blocks_.owned(former, 0, static_cast<index_t>(former.size()))));

    std::vector<index_t> blocks(source.blocks.begin(), source.blocks.begin() + blocks_of(source, count));
    clear(to);
    const index_t copy = copies ? blocks_.copy_of(blocks.back(), count % block_keys) : 0;
    for (const index_t block : blocks) blocks_.share(block);
    if (copies) {
      blocks_.release(blocks.back());
      blocks.back() = copy;
    }
    list(to) = {std::move(blocks), count, detail::ceil_div(count, block_keys) > kept() ? source.dropped : 0};
  }
  void fork(index_t from, index_t to) { fork(from, to, length(from)); }

  /// Forgets the tokens of a sequence from `count` on: guesses that were not taken. Errors: as for fork.
  void truncate(index_t sequence, index_t count) {
    require_sequence("sequence", sequence);
    require_tokens(sequence, count);
    detail::kv_sequence& cut = list(sequence);
    if (count == cut.length) return;
    const index_t left = blocks_of(cut, count), part = count % block_keys;
    const bool copies = part != 0 && blocks_.shared(cut.blocks[static_cast<std::size_t>(left - 1)]);
    raise_if(blocks_.check_room("sequence", copies ? 1 : 0,
                                blocks_.owned(cut.blocks, left, static_cast<index_t>(cut.blocks.size()))));
    blocks_.shrink(cut, left);
    cut.length = (std::min)(cut.length, (left + cut.dropped) * block_keys);
    if (copies) {
      blocks_.own_last_block(cut, part);
    } else if (part != 0) {
      blocks_.pool().copy(cut.blocks.back(), cut.blocks.back(), part);
    }
    cut.length = count;
    if (detail::ceil_div(count, block_keys) <= kept()) cut.dropped = 0;
  }

  /// Appends tokens to one sequence: k [1, kv_heads, tokens, head_dim] and v [1, kv_heads, tokens, value_dim] of any dtype
  /// that goes with T, unrotated; `tokens` describes them; `encoding` rotates the keys.
  /// Errors: shapes, another encoding, documents where there were none (or the reverse), and out_of_range where max_blocks
  /// leaves too little room. Nothing is appended then, nor where the encoding throws or memory runs out; but what keep_last
  /// forgets to make room is forgotten by then.
  template <class K, class V, class E>
  void append(index_t sequence, const K& k, const V& v, const token_view& tokens, const E& encoding) {
    if constexpr (detail::check_kv_types<T, const K, const V, E>()) {
      const auto k_view = as_view(k);
      const auto v_view = as_view(v);
      raise_if(check_append(sequence, k_view, v_view, tokens, encoding));
      append_to({&sequence, 1}, k_view, v_view, tokens, encoding);
    }
  }
  /// Appends to several sequences at once: row i of the batch, or ragged sequence i, to `sequences[i]`; each of them once.
  /// Errors as above; either all sequences grow or none does.
  template <class K, class V, class E>
  void append(std::span<const index_t> sequences, const K& k, const V& v, const token_view& tokens, const E& encoding) {
    if constexpr (detail::check_kv_types<T, const K, const V, E>()) {
      const auto k_view = as_view(k);
      const auto v_view = as_view(v);
      raise_if(check_append(sequences, k_view, v_view, tokens, encoding));
      append_to(listed(sequences), k_view, v_view, tokens, encoding);
    }
  }
  /// Appends to all sequences, in their order.
  template <class K, class V, class E>
  void append(const K& k, const V& v, const token_view& tokens, const E& encoding) {
    if constexpr (detail::check_kv_types<T, const K, const V, E>()) {
      const auto k_view = as_view(k);
      const auto v_view = as_view(v);
      raise_if(check_append(k_view, v_view, tokens, encoding));
      append_to({nullptr, sequences()}, k_view, v_view, tokens, encoding);
    }
  }

  /// What append would raise, as a value.
  template <class K, class V, attention_encoding E>
  maybe_error check_append(index_t sequence, const tensor_view<K>& k, const tensor_view<V>& v, const token_view& tokens,
                           const E& encoding) const noexcept {
    if (sequence < 0 || sequence >= sequences()) return no_sequence("sequence", sequence);
    if (tokens.has_cu_seqlens())
      return make_error(errc::mismatch, "tokens", "has cu_seqlens; append one sequence at a time, or to all of them");
    if (maybe_error e = pool().check_rows(k, v, 1, "the one sequence", tokens, encoding)) return e;
    return check_room({&sequence, 1}, tokens);
  }
  template <class K, class V, attention_encoding E>
  maybe_error check_append(std::span<const index_t> sequences, const tensor_view<K>& k, const tensor_view<V>& v,
                           const token_view& tokens, const E& encoding) const noexcept {
    return check_append_to(listed(sequences), k, v, tokens, encoding);
  }
  template <class K, class V, attention_encoding E>
  maybe_error check_append(const tensor_view<K>& k, const tensor_view<V>& v, const token_view& tokens,
                           const E& encoding) const noexcept {
    return check_append_to({nullptr, sequences()}, k, v, tokens, encoding);
  }

  /// An error if the keys here were rotated by another encoding.
  template <attention_encoding E>
  maybe_error check_fingerprint(const E& encoding) const noexcept {
    return pool().check_fingerprint(encoding);
  }

  /// All sequences, and some of them, for attention. `sequences` must live as long as the view.
  kv_view<T> all() const noexcept { return {pool(), sequences_.data(), sequences(), {nullptr, sequences()}, kept()}; }
  kv_view<T> select(std::span<const index_t> sequences) const noexcept {
    return {pool(), sequences_.data(), this->sequences(), listed(sequences), kept()};
  }

  bool has_documents() const noexcept { return pool().has_documents(); }
  /// Whether every cached position is a whole number.
  bool whole_positions() const noexcept { return pool().whole_positions(); }
  kv_layout<T> layout() const noexcept { return pool().layout(); }

  /// Blocks that a sequence holds.
  index_t blocks(index_t sequence) const {
    require_sequence("sequence", sequence);
    return static_cast<index_t>(list(sequence).blocks.size());
  }
  /// One KV head of one block of a sequence, keys then values as `kv_layout` says.
  const T* block_data(index_t sequence, index_t block, index_t kv_head) const noexcept {
    return pool().block_data(block_number(sequence, block), kv_head);
  }
  /// Which block of the pool it is.
  index_t block_number(index_t sequence, index_t block) const noexcept {
    return list(sequence).blocks[static_cast<std::size_t>(block)];
  }
  /// For the library: the block's tokens, and whether a head's values are all finite.
  const detail::key_tokens& block_tokens(index_t sequence, index_t block) const noexcept {
    return pool().at(block_number(sequence, block)).tokens;
  }
  bool finite_values(index_t sequence, index_t block, index_t kv_head) const noexcept {
    return pool().at(block_number(sequence, block)).finite[static_cast<std::size_t>(kv_head)] != 0;
  }

 private:
  static kv_cache_shape checked(kv_cache_shape shape) {
    if (shape.value_dim == 0) shape.value_dim = shape.head_dim;
    detail::require_extent("kv_cache_shape.kv_heads", shape.kv_heads);
    detail::require_extent("kv_cache_shape.head_dim", shape.head_dim);
    detail::require_extent("kv_cache_shape.value_dim", shape.value_dim);
    detail::require_extent("kv_cache_shape.sequences", shape.sequences);
    detail::require_extent("kv_cache_shape.axes", shape.axes, max_position_axes);
    const auto require = [](const char* name, index_t has) {
      if (has < 0) raise(make_error(errc::invalid_shape, name, "is %td; allowed: 0 and more", has));
    };
    require("kv_cache_shape.max_blocks", shape.max_blocks);
    require("kv_cache_shape.keep_last", shape.keep_last);
    require("kv_cache_shape.keep_first", shape.keep_first);
    return shape;
  }

  static detail::sequence_list listed(std::span<const index_t> sequences) noexcept {
    static constexpr index_t nothing = 0;  // an empty list is not all of them
    return {sequences.data() == nullptr ? &nothing : sequences.data(), static_cast<index_t>(sequences.size())};
  }

  detail::kv_sequence& list(index_t sequence) noexcept { return sequences_[static_cast<std::size_t>(sequence)]; }
  const detail::kv_sequence& list(index_t sequence) const noexcept {
    return sequences_[static_cast<std::size_t>(sequence)];
  }
  /// Blocks at the start of a sequence that are never forgotten.
  index_t kept() const noexcept { return detail::ceil_div(shape_.keep_first, block_keys); }

  maybe_error no_sequence(const char* name, index_t sequence) const noexcept {
    return make_error(errc::out_of_range, name, "is %td; allowed: 0 to %td", sequence, sequences() - 1);
  }
  void require_sequence(const char* name, index_t sequence) const {
    if (sequence < 0 || sequence >= sequences()) raise_if(no_sequence(name, sequence));
  }
  void require_tokens(index_t sequence, index_t count) const {
    const detail::kv_sequence& from = list(sequence);
    if (count < 0 || count > from.length)
      raise(make_error(errc::out_of_range, "count", "is %td; allowed: 0 to the sequence's %td", count, from.length));
    if (from.dropped > 0 && count < from.length && count > kept() * block_keys &&
        count <= (kept() + from.dropped) * block_keys)
      raise(make_error(errc::out_of_range, "count",
                       "is %td, and tokens %td to %td are forgotten; allowed: an end among the others", count,
                       kept() * block_keys, (kept() + from.dropped) * block_keys - 1));
  }
  /// Blocks that hold the first `count` tokens.
  index_t blocks_of(const detail::kv_sequence& from, index_t count) const noexcept {
    const index_t blocks = detail::ceil_div(count, block_keys);
    return blocks > kept() ? blocks - from.dropped : blocks;
  }

  index_t forgettable(const detail::kv_sequence& from, double order) const noexcept {
    const auto size = static_cast<index_t>(from.blocks.size());
    index_t i = kept();
    for (; i < size; ++i) {
      const detail::key_tokens& tokens = pool().at(from.blocks[static_cast<std::size_t>(i)]).tokens;
      if (tokens.count < block_keys || !(tokens.all_padding() || tokens.last_order < order)) break;
    }
    return i > kept() ? i - kept() : 0;
  }

  /// The smallest order that tokens about to be appended still look back on; false: they look at everything.
  bool looks_back_to(const token_view& tokens, const detail::kv_segment& some, double& order) const noexcept {
    if (shape_.keep_last == 0) return false;
    bool any = false;
    for (index_t j = some.first; j < some.first + some.count; ++j) {
      if (tokens.document(some.row, j) == -1) continue;
      const double at = tokens.order(some.row, j);
      order = !any || at < order ? at : order;
      any = true;
    }
    order -= static_cast<double>(shape_.keep_last - 1);
    return any;
  }

  template <class K, class V, attention_encoding E>
  maybe_error check_append_to(detail::sequence_list to, const tensor_view<K>& k, const tensor_view<V>& v,
                              const token_view& tokens, const E& encoding) const noexcept {
    for (index_t i = 0; i < to.count && to.numbers != nullptr; ++i) {
      if (to[i] < 0 || to[i] >= sequences()) return no_sequence("sequences", to[i]);
      for (index_t j = 0; j < i; ++j)
        if (to[j] == to[i])
          return make_error(errc::mismatch, "sequences", "names %td twice; allowed: each once", to[i]);
    }
    const bool ragged = tokens.has_cu_seqlens();
    if (maybe_error e = pool().check_rows(k, v, ragged ? 1 : to.count, ragged ? "ragged sequences" : "the sequences",
                                          tokens, encoding))
      return e;
    if (ragged && tokens.sequences() != to.count)
      return make_error(errc::mismatch, "tokens", "has cu_seqlens of %td sequences; allowed: %td", tokens.sequences(),
                        to.count);
    return check_room(to, tokens);
  }

  maybe_error check_room(detail::sequence_list to, const token_view& tokens) const noexcept {
    if (shape_.max_blocks == 0) return {};
    index_t needed = 0, freed = 0;
    for (index_t i = 0; i < to.count; ++i) {
      const detail::kv_segment some(tokens, i);
      if (some.count == 0) continue;
      const detail::kv_sequence& grown = list(to[i]);
      needed += detail::ceil_div(grown.length + some.count, block_keys) - detail::ceil_div(grown.length, block_keys);
      if (grown.length % block_keys != 0 && blocks_.shared(grown.blocks.back())) {
        // Who shares a block copies it before appending to it; the last one need not.
        index_t left = blocks_.uses(grown.blocks.back());
        for (index_t j = 0; j < i; ++j) {
          const std::vector<index_t>& other = list(to[j]).blocks;
          if (detail::kv_segment(tokens, j).count > 0 && !other.empty() && other.back() == grown.blocks.back()) --left;
        }
        needed += left > 1 ? 1 : 0;
      }
      double order = 0;
      if (!looks_back_to(tokens, some, order)) continue;
      const index_t count = forgettable(grown, order);
      freed += blocks_.owned(grown.blocks, kept(), kept() + count);
    }
    return blocks_.check_room("tokens", needed, freed);
  }

  /// Takes back the blocks of tokens that were not appended after all.
  struct undo {
    kv_cache& cache;
    detail::sequence_list to;
    bool done = false;

    ~undo() {
      for (index_t i = 0; i < to.count && !done; ++i) {
        detail::kv_sequence& grown = cache.list(to[i]);
        cache.blocks_.shrink(grown, detail::ceil_div(grown.length, block_keys) - grown.dropped);
      }
    }
  };

  template <class K, class V, class E>
  void append_to(detail::sequence_list to, const tensor_view<K>& k, const tensor_view<V>& v, const token_view& tokens,
                 const E& encoding) {
    if (k.tokens() == 0 || to.count == 0) return;
    detail::kv_rows<T, K, V> rows(k, v, tokens, encoding, blocks_.pool().scratch());
    for (index_t i = 0; i < to.count; ++i)
      if (double order = 0; looks_back_to(tokens, {tokens, i}, order)) forget_before(to[i], order);
    // First the data, which nobody looks at yet: encodings and memory may fail. Then the tokens and the lengths.
    undo guard{*this, to};
    for (index_t i = 0; i < to.count; ++i) {
      const detail::kv_segment some(tokens, i);
      detail::kv_sequence& grown = list(to[i]);
      if (some.count > 0 && grown.length % block_keys != 0 && blocks_.shared(grown.blocks.back()))
        blocks_.own_last_block(grown, grown.length % block_keys);
      some.for_each_block(grown.length, [&](index_t slot, index_t first, index_t n) {
        if (slot == 0) {
          if (grown.blocks.size() == grown.blocks.capacity()) grown.blocks.reserve(2 * grown.blocks.size() + 8);
          grown.blocks.push_back(blocks_.take());
          blocks_.pool().open(grown.blocks.back(), grown.length + first);
        }
        blocks_.pool().write(grown.blocks.back(), slot, rows, some.row, some.first + first, n);
      });
    }
    blocks_.pool().remember(encoding, tokens);
    guard.done = true;
    for (index_t i = 0; i < to.count; ++i) {
      const detail::kv_segment some(tokens, i);
      detail::kv_sequence& grown = list(to[i]);
      some.for_each_block(grown.length, [&](index_t, index_t first, index_t n) {
        const index_t at = (grown.length + first) / block_keys - grown.dropped;
        blocks_.pool().publish(grown.blocks[static_cast<std::size_t>(at)], tokens, some.row, some.first + first, n);
      });
      grown.length += some.count;
    }
  }

  kv_cache_shape shape_;
  detail::kv_allocator<T> blocks_;
  std::vector<detail::kv_sequence> sequences_;
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ATTENTION_KV_CACHE_HPP
