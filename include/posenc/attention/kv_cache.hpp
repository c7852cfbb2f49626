// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_KV_CACHE_HPP
#define POSENC_ATTENTION_KV_CACHE_HPP

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../core/number_list.hpp"
#include "attention.hpp"
#include "fingerprint.hpp"

namespace posenc::inline POSENC_ABI {

/// Shape of a `kv_cache`.
struct kv_cache_shape {
  index_t kv_heads = 0;   ///< key and value heads
  index_t head_dim = 0;   ///< of keys
  index_t value_dim = 0;  ///< of values; 0: as head_dim
  index_t sequences = 1;  ///< sequences, which grow on their own
  index_t axes = 1;       ///< position axes of the tokens
};

/// Keys and values of the tokens so far, for decoding. A sequence is a list of blocks in the layout that attention reads
/// (`kv_layout`), so that a step packs nothing. Keys are rotated once, when they are appended, and the cache remembers by
/// which encoding: attention with another one is an error. T is float, double, half or bfloat16.
/// Appending and reading at the same time is not allowed; several readers are.
template <scalar T>
class kv_cache {
 public:
  using value_type = T;
  using real = compute_type<T>;

  /// Errors: invalid_shape for an extent below 1 (value_dim: below 0), or too many axes.
  explicit kv_cache(const kv_cache_shape& shape) : shape_(shape) {
    if (shape_.value_dim == 0) shape_.value_dim = shape_.head_dim;
    const auto require = [](const char* name, index_t has, index_t most) {
      if (has < 1 || has > most) raise(make_error(errc::invalid_shape, name, "is %td; allowed: 1 to %td", has, most));
    };
    constexpr index_t many = index_t{1} << 40;
    require("kv_cache_shape.kv_heads", shape_.kv_heads, many);
    require("kv_cache_shape.head_dim", shape_.head_dim, many);
    require("kv_cache_shape.value_dim", shape_.value_dim, many);
    require("kv_cache_shape.sequences", shape_.sequences, many);
    require("kv_cache_shape.axes", shape_.axes, max_position_axes);
    sequences_.resize(static_cast<std::size_t>(shape_.sequences));
  }

  const kv_cache_shape& shape() const noexcept { return shape_; }
  /// As many as the shape says; none after the cache was moved from.
  index_t sequences() const noexcept { return static_cast<index_t>(sequences_.size()); }
  /// Tokens of a sequence. Errors: out_of_range.
  index_t length(index_t sequence = 0) const {
    require_sequence(sequence);
    return sequences_[static_cast<std::size_t>(sequence)].length;
  }
  index_t longest() const noexcept {
    index_t most = 0;
    for (const one_sequence& s : sequences_) most = s.length > most ? s.length : most;
    return most;
  }

  /// Forgets the tokens of a sequence and keeps its memory. Errors: out_of_range.
  void clear(index_t sequence) {
    require_sequence(sequence);
    one_sequence& cleared = sequences_[static_cast<std::size_t>(sequence)];
    cleared.length = 0;
    cleared.whole_positions = true;
    if (longest() == 0) has_fingerprint_ = false;
  }

  /// Appends tokens to one sequence: k [1, kv_heads, tokens, head_dim] and v [1, kv_heads, tokens, value_dim] of any dtype
  /// that goes with T, unrotated; `tokens` describes them; `encoding` rotates the keys.
  /// Errors: shapes, another encoding or documents where there were none (or the reverse). Nothing is appended then, nor
  /// where the encoding throws or memory runs out.
  template <class K, class V, class E>
  void append(index_t sequence, const K& k, const V& v, const token_view& tokens, const E& encoding) {
    if constexpr (detail::check_viewable<const K>() && detail::check_viewable<const V>()) {
      if constexpr (detail::check_attention_dtypes<T, view_element<const K>, view_element<const V>, T>()) {
        if constexpr (detail::check_attention_encoding<E>()) {
          const auto k_view = as_view(k);
          const auto v_view = as_view(v);
          raise_if(check_append(sequence, k_view, v_view, tokens, encoding));
          do_append(sequence, k_view, v_view, tokens, encoding);
        }
      }
    }
  }
  /// The same for a cache of one sequence.
  template <class K, class V, class E>
  void append(const K& k, const V& v, const token_view& tokens, const E& encoding) {
    append(0, k, v, tokens, encoding);
  }

  /// What append would raise, as a value.
  template <class K, class V, attention_encoding E>
  maybe_error check_append(index_t sequence, const tensor_view<K>& k, const tensor_view<V>& v, const token_view& tokens,
                           const E& encoding) const noexcept {
    if (sequence < 0 || sequence >= sequences())
      return make_error(errc::out_of_range, "sequence", "is %td; allowed: 0 to %td", sequence, sequences() - 1);
    if (maybe_error e = detail::check_layout(k, "k", false)) return e;
    if (maybe_error e = detail::check_layout(v, "v", false)) return e;
    if (maybe_error e = detail::check_extent(k, "k", 0, 1, "the one sequence")) return e;
    if (maybe_error e = detail::check_extent(k, "k", 1, shape_.kv_heads, "the cache")) return e;
    if (maybe_error e = detail::check_extent(k, "k", 3, shape_.head_dim, "the cache")) return e;
    if (maybe_error e = detail::check_extent(v, "v", 0, 1, "the one sequence")) return e;
    if (maybe_error e = detail::check_extent(v, "v", 1, shape_.kv_heads, "the cache")) return e;
    if (maybe_error e = detail::check_extent(v, "v", 2, k.tokens(), "k")) return e;
    if (maybe_error e = detail::check_extent(v, "v", 3, shape_.value_dim, "the cache")) return e;
    if (maybe_error e = detail::check_tokens(tokens, 1, k.tokens(), "tokens")) return e;
    if (tokens.axes() != shape_.axes)
      return make_error(errc::invalid_shape, "tokens", "has %td position axes; allowed: the cache's %td", tokens.axes(),
                        shape_.axes);
    if (tokens.has_cu_seqlens())
      return make_error(errc::mismatch, "tokens", "has cu_seqlens; append one sequence at a time");
    if (longest() > 0 && k.tokens() > 0 && tokens.has_documents() != has_documents_)
      return make_error(errc::mismatch, "tokens", "has %s document ids; allowed: as the tokens already in the cache",
                        tokens.has_documents() ? "" : "no");
    // The cache does not know the number of query heads.
    if (maybe_error e = detail::check_encoding(encoding, {0, shape_.kv_heads, shape_.head_dim, nullptr, &tokens}))
      return e;
    return check_fingerprint(encoding);
  }

  /// An error if the keys here were rotated by another encoding.
  template <attention_encoding E>
  maybe_error check_fingerprint(const E& encoding) const noexcept {
    if (!has_fingerprint_ ||
        detail::key_fingerprint<real>(encoding, shape_.head_dim, shape_.kv_heads, shape_.axes) == fingerprint_)
      return {};
    return make_error(errc::mismatch, "encoding",
                      "does not rotate keys as the encoding did that the cache was filled with; keys are rotated once, "
                      "when appended: use the same encoding, or clear the cache and append the keys anew");
  }

  bool has_documents() const noexcept { return has_documents_; }
  /// Whether every cached position is a whole number.
  bool whole_positions() const noexcept {
    bool all = true;
    for (const one_sequence& s : sequences_) all = all && s.whole_positions;
    return all;
  }
  kv_layout<T> layout() const noexcept { return {shape_.head_dim, shape_.value_dim}; }

  /// One KV head of one block of a sequence, keys then values as `kv_layout` says.
  const T* block_data(index_t sequence, index_t block, index_t kv_head) const noexcept {
    return block_at(sequence, block).data.get() + kv_head * layout().elements();
  }
  index_t blocks(index_t sequence) const noexcept { return detail::ceil_div(length(sequence), block_keys); }

  /// For the kernel: the blocks' tokens, and whether a head's values are all finite.
  const detail::key_tokens& block_tokens(index_t sequence, index_t block) const noexcept {
    return block_at(sequence, block).tokens;
  }
  bool finite_values(index_t sequence, index_t block, index_t kv_head) const noexcept {
    return block_at(sequence, block).finite[static_cast<std::size_t>(kv_head)] != 0;
  }
  /// No key of the block is longer; negative if that is not known.
  double longest_key(index_t sequence, index_t block, index_t kv_head) const noexcept {
    return block_at(sequence, block).longest[static_cast<std::size_t>(kv_head)];
  }

 private:
  struct cache_block {
    detail::key_tokens tokens;
    detail::number_list<double> positions;
    detail::aligned_array<T> data;
    detail::number_list<std::uint8_t> finite;
    detail::number_list<double> longest;
  };
  struct one_sequence {
    std::vector<cache_block> blocks;
    index_t length = 0;
    bool whole_positions = true;
  };

  void require_sequence(index_t sequence) const {
    if (sequence < 0 || sequence >= sequences())
      raise(make_error(errc::out_of_range, "sequence", "is %td; allowed: 0 to %td", sequence, sequences() - 1));
  }

  const cache_block& block_at(index_t sequence, index_t block) const noexcept {
    return sequences_[static_cast<std::size_t>(sequence)].blocks[static_cast<std::size_t>(block)];
  }

  /// The block that takes token `length` of the sequence, emptied if that is its first one.
  cache_block& open_block(one_sequence& sequence, index_t length) {
    const auto at = static_cast<std::size_t>(length / block_keys);
    if (at == sequence.blocks.size()) {
      cache_block block;
      const auto heads = static_cast<std::size_t>(shape_.kv_heads);
      block.positions.extend(static_cast<std::size_t>(shape_.axes * block_keys));
      block.data = detail::make_aligned_array<T>(shape_.kv_heads * layout().elements());
      block.finite.extend(heads);
      block.longest.extend(heads);
      sequence.blocks.push_back(std::move(block));
    }
    cache_block& block = sequence.blocks[at];
    if (length % block_keys == 0) {
      block.tokens = detail::key_tokens{};
      block.tokens.first_index = length;
      std::fill(block.finite.begin(), block.finite.end(), std::uint8_t{1});
      std::memset(static_cast<void*>(block.data.get()), 0,
                  static_cast<std::size_t>(shape_.kv_heads * layout().elements()) * sizeof(T));
    }
    return block;
  }

  template <class K, class V, class E>
  void do_append(index_t sequence, const tensor_view<K>& k, const tensor_view<V>& v, const token_view& tokens,
                 const E& encoding) {
    one_sequence& to = sequences_[static_cast<std::size_t>(sequence)];
    const detail::encoding_policy<real> policy = detail::encoding_policy_of<real>(encoding);
    const rotation_shape rotation{shape_.head_dim, shape_.kv_heads};
    const index_t size = policy.rotation == nullptr ? 0 : policy.rotation->size(policy.encoding, rotation);
    const index_t widest = shape_.head_dim > shape_.value_dim ? shape_.head_dim : shape_.value_dim;
    const index_t most = k.tokens() < block_keys ? k.tokens() : block_keys;
    std::vector<real> scratch(static_cast<std::size_t>(most * (widest + size)));
    real* rows = scratch.data();
    real* rotations = rows + most * widest;

    // First the data, which nobody looks at yet: encodings and memory may fail. Then the tokens and the length.
    std::uint64_t fingerprint = fingerprint_;
    if (k.tokens() > 0 && !has_fingerprint_)
      fingerprint = detail::key_fingerprint<real>(encoding, shape_.head_dim, shape_.kv_heads, shape_.axes);
    for (index_t first = 0, n = 0; first < k.tokens(); first += n) {
      const index_t slot = (to.length + first) % block_keys, left = k.tokens() - first;
      cache_block& block = open_block(to, to.length + first);
      n = left < block_keys - slot ? left : block_keys - slot;
      for (index_t j = 0; j < n && policy.rotation != nullptr; ++j) {
        double position[max_position_axes] = {};
        for (index_t axis = 0; axis < shape_.axes; ++axis) position[axis] = tokens.position(axis, 0, first + j);
        policy.rotation->prepare(policy.encoding, rotation,
                                 position_span(position, static_cast<std::size_t>(shape_.axes)),
                                 {token_role::key, rotation_op::rotate}, rotations + j * size);
      }
      for (index_t h = 0; h < shape_.kv_heads; ++h) {
        T* keys = block.data.get() + h * layout().elements();
        T* values = keys + layout().key_elements();
        for (index_t j = 0; j < n; ++j) {
          simd::load_row(k.row(0, h, first + j), shape_.head_dim, rows + j * shape_.head_dim);
          if (policy.rotation != nullptr)
            policy.rotation->apply(policy.encoding, rotation, rotations + j * size, h, rows + j * shape_.head_dim);
        }
        detail::pack_keys(rows, shape_.head_dim, n, slot, shape_.head_dim, keys);
        bool finite = true;
        for (index_t j = 0; j < n; ++j) {
          simd::load_row(v.row(0, h, first + j), shape_.value_dim, rows);
          detail::pack_value(rows, slot + j, layout(), values);
          // What is stored decides: a large float overflows in half.
          for (index_t d = 0; d < layout().padded_value_dim(); d += layout().width)
            finite = detail::all_finite(values + layout().value_index(slot + j, d), layout().width) && finite;
        }
        // Decoding fills a block key by key: its bound is made when it is full.
        block.longest[static_cast<std::size_t>(h)] =
            slot + n == block_keys ? detail::longest_key_of(keys, shape_.head_dim) : -1;
        std::uint8_t& flag = block.finite[static_cast<std::size_t>(h)];
        flag = static_cast<std::uint8_t>(flag != 0 && finite);
      }
    }
    if (k.tokens() == 0) return;
    fingerprint_ = fingerprint;
    has_fingerprint_ = true;
    has_documents_ = tokens.has_documents();
    for (index_t first = 0, n = 0; first < k.tokens(); first += n) {
      const index_t slot = to.length % block_keys, left = k.tokens() - first;
      cache_block& block = to.blocks[static_cast<std::size_t>(to.length / block_keys)];
      n = left < block_keys - slot ? left : block_keys - slot;
      block.tokens.append(tokens, 0, first, n, block.positions.data());
      for (index_t axis = 0; axis < shape_.axes; ++axis)
        for (index_t j = slot; j < slot + n; ++j) {
          const double position = block.positions[static_cast<std::size_t>(axis * block_keys + j)];
          to.whole_positions = to.whole_positions && position == std::floor(position);
        }
      to.length += n;
    }
  }

  kv_cache_shape shape_;
  std::vector<one_sequence> sequences_;
  std::uint64_t fingerprint_ = 0;
  bool has_fingerprint_ = false, has_documents_ = false;
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ATTENTION_KV_CACHE_HPP
