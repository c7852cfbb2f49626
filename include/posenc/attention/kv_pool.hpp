// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_KV_POOL_HPP
#define POSENC_ATTENTION_KV_POOL_HPP

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../core/number_list.hpp"
#include "attention.hpp"
#include "fingerprint.hpp"

namespace posenc::inline POSENC_ABI {

/// Shape of a `kv_pool`.
struct kv_pool_shape {
  index_t kv_heads = 0;   ///< key and value heads
  index_t head_dim = 0;   ///< of keys
  index_t value_dim = 0;  ///< of values; 0: as head_dim
  index_t axes = 1;       ///< position axes of the tokens
  index_t blocks = 0;     ///< blocks that there are from the start
};

namespace detail {

/// A block of keys and values of all KV heads, and what is known of them.
template <class T>
struct kv_block {
  key_tokens tokens;
  number_list<double> positions;
  aligned_array<T> data;
  number_list<std::uint8_t> finite;
  number_list<double> longest;
  bool whole_positions = true;
};

/// Tokens on their way into blocks: keys still to be rotated, and room for one block's rows in `scratch`.
template <class T, class K, class V>
struct kv_rows {
  using real = compute_type<T>;

  tensor_view<K> k;
  tensor_view<V> v;
  token_view tokens;
  encoding_policy<real> policy;
  rotation_shape rotation;
  index_t rotation_size = 0, room = 0;
  real* rows = nullptr;

  template <class E>
  kv_rows(const tensor_view<K>& keys, const tensor_view<V>& values, const token_view& t, const E& encoding,
          number_list<real>& scratch)
      : k(keys), v(values), tokens(t), policy(encoding_policy_of<real>(encoding)), rotation{k.dim(), k.heads()} {
    if (policy.rotation != nullptr) rotation_size = policy.rotation->size(policy.encoding, rotation);
    room = k.tokens() < block_keys ? k.tokens() : block_keys;
    scratch.clear();
    rows = scratch.extend(static_cast<std::size_t>(room * ((std::max)(k.dim(), v.dim()) + rotation_size)));
  }
};

/// The tokens of one sequence in the rows that are appended: of a batch, or ragged.
struct kv_segment {
  index_t row = 0, first = 0, count = 0;

  kv_segment(const token_view& tokens, index_t i) noexcept : row(i), count(tokens.count()) {
    if (!tokens.has_cu_seqlens()) return;
    row = 0;
    first = tokens.sequence_begin(i);
    count = tokens.sequence_begin(i + 1) - first;
  }

  /// f(slot, first, n) for the tokens [first, first + n) that go to each block of a sequence of `length` tokens.
  template <class F>
  void for_each_block(index_t length, F&& f) const {
    for (index_t at = 0, n = 0; at < count; at += n) {
      const index_t slot = (length + at) % block_keys;
      n = (std::min)(block_keys - slot, count - at);
      f(slot, at, n);
    }
  }
};

template <class T, class K, class V, class E>
consteval bool check_kv_types() {
  if constexpr (check_viewable<K>() && check_viewable<V>())
    if constexpr (check_attention_dtypes<T, view_element<K>, view_element<V>, T>())
      return check_attention_encoding<E>();
  return false;
}

inline void require_extent(const char* name, index_t has, index_t most = index_t{1} << 40) {
  if (has < 1 || has > most) raise(make_error(errc::invalid_shape, name, "is %td; allowed: 1 to %td", has, most));
}

}  // namespace detail

/// Blocks of keys and values by number, each of up to `block_keys` tokens, in the layout that attention reads
/// (`kv_layout`). `kv_cache` takes its blocks from one; those who keep block tables of their own fill the blocks here and
/// read them through a `kv_view`. Keys are rotated once, when they are written, and a pool remembers by which encoding:
/// another one is an error. T is float, double, half or bfloat16.
/// Writing and reading at the same time is not allowed; several readers are.
template <scalar T>
class kv_pool {
 public:
  using value_type = T;
  using real = compute_type<T>;

  /// Errors: invalid_shape for an extent below 1 (value_dim and blocks: below 0), or too many axes.
  explicit kv_pool(const kv_pool_shape& shape) : shape_(shape) {
    if (shape_.value_dim == 0) shape_.value_dim = shape_.head_dim;
    detail::require_extent("kv_pool_shape.kv_heads", shape_.kv_heads);
    detail::require_extent("kv_pool_shape.head_dim", shape_.head_dim);
    detail::require_extent("kv_pool_shape.value_dim", shape_.value_dim);
    detail::require_extent("kv_pool_shape.axes", shape_.axes, max_position_axes);
    if (shape_.blocks < 0)
      raise(make_error(errc::invalid_shape, "kv_pool_shape.blocks", "is %td; allowed: 0 and more", shape_.blocks));
    for (index_t i = 0; i < shape_.blocks; ++i) add_block();
  }

  const kv_pool_shape& shape() const noexcept { return shape_; }
  kv_layout<T> layout() const noexcept { return {shape_.head_dim, shape_.value_dim}; }
  /// Blocks that there are; they are numbered from 0.
  index_t blocks() const noexcept { return static_cast<index_t>(blocks_.size()); }
  /// Tokens in all blocks.
  index_t tokens() const noexcept { return tokens_; }
  bool has_documents() const noexcept { return has_documents_; }
  /// Whether every position is a whole number.
  bool whole_positions() const noexcept { return fractional_blocks_ == 0; }

  /// Makes one more block, empty; gives its number.
  index_t add_block() {
    detail::kv_block<T> block;
    const auto heads = static_cast<std::size_t>(shape_.kv_heads);
    block.positions.extend(static_cast<std::size_t>(shape_.axes * block_keys));
    block.data = detail::make_aligned_array<T>(shape_.kv_heads * layout().elements());
    block.finite.extend(heads);
    block.longest.extend(heads);
    blocks_.push_back(std::move(block));
    return blocks() - 1;
  }

  /// Forgets the tokens of a block. With the last token of a pool its encoding is forgotten, too. Errors: out_of_range.
  void clear(index_t block) {
    require_block(block);
    detail::kv_block<T>& cleared = at(block);
    tokens_ -= cleared.tokens.count;
    cleared.tokens.count = 0;
    set_whole_positions(cleared, true);
    if (tokens_ == 0) has_fingerprint_ = false;
  }

  /// Appends tokens to one block: k [1, kv_heads, tokens, head_dim] and v [1, kv_heads, tokens, value_dim] of any dtype that
  /// goes with T, unrotated; `tokens` describes them; `encoding` rotates the keys. `first_index` is the index of the
  /// block's first token in its sequence, by which dense masks go.
  /// Errors: as for `kv_cache::append`, and out_of_range for more tokens than fit. Nothing is appended then.
  template <class K, class V, class E>
  void append(index_t block, index_t first_index, const K& k, const V& v, const token_view& tokens, const E& encoding) {
    if constexpr (detail::check_kv_types<T, const K, const V, E>()) {
      const auto k_view = as_view(k);
      const auto v_view = as_view(v);
      if (first_index < 0 || first_index > index_t{1} << 48)
        raise(make_error(errc::out_of_range, "first_index", "is %td; allowed: 0 to 2^48", first_index));
      raise_if(check_append(block, k_view, v_view, tokens, encoding));
      if (k_view.tokens() == 0) return;
      if (at(block).tokens.count == 0) open(block, first_index);
      detail::kv_rows<T, typename decltype(k_view)::element_type, typename decltype(v_view)::element_type> rows(
          k_view, v_view, tokens, encoding, scratch_);
      write(block, at(block).tokens.count, rows, 0, 0, k_view.tokens());
      remember(encoding, tokens);
      publish(block, tokens, 0, 0, k_view.tokens());
    }
  }

  /// What append would raise, as a value.
  template <class K, class V, attention_encoding E>
  maybe_error check_append(index_t block, const tensor_view<K>& k, const tensor_view<V>& v, const token_view& tokens,
                           const E& encoding) const noexcept {
    if (block < 0 || block >= blocks()) return no_block(block);
    if (tokens.has_cu_seqlens())
      return make_error(errc::mismatch, "tokens", "has cu_seqlens; append to one block at a time");
    if (maybe_error e = check_rows(k, v, 1, "the one block", tokens, encoding)) return e;
    const index_t count = at(block).tokens.count;
    if (k.tokens() > block_keys - count)
      return make_error(errc::out_of_range, "k", "has %td tokens for block %td, which has %td; allowed: %td more",
                        k.tokens(), block, count, block_keys - count);
    return {};
  }

  /// An error if the keys here were rotated by another encoding.
  template <attention_encoding E>
  maybe_error check_fingerprint(const E& encoding) const noexcept {
    if (!has_fingerprint_ || fingerprint_of(encoding) == fingerprint_) return {};
    return make_error(errc::mismatch, "encoding",
                      "does not rotate keys as the encoding did that the cache was filled with; keys are rotated once, "
                      "when appended: use the same encoding, or clear the cache and append the keys anew");
  }

  /// One KV head of a block, keys then values as `kv_layout` says.
  const T* block_data(index_t block, index_t kv_head) const noexcept {
    return at(block).data.get() + kv_head * layout().elements();
  }
  /// Tokens in a block. Errors: out_of_range.
  index_t count(index_t block) const {
    require_block(block);
    return at(block).tokens.count;
  }

  // ---- for the library ----

  const detail::kv_block<T>& at(index_t block) const noexcept { return blocks_[static_cast<std::size_t>(block)]; }

  /// What is wrong with tokens for these blocks: shapes against `batch` rows, documents, the encoding.
  template <class K, class V, attention_encoding E>
  maybe_error check_rows(const tensor_view<K>& k, const tensor_view<V>& v, index_t batch, const char* rows,
                         const token_view& tokens, const E& encoding) const noexcept {
    if (maybe_error e = detail::check_layout(k, "k", false)) return e;
    if (maybe_error e = detail::check_layout(v, "v", false)) return e;
    if (maybe_error e = detail::check_extent(k, "k", 0, batch, rows)) return e;
    if (maybe_error e = detail::check_extent(k, "k", 1, shape_.kv_heads, "the cache")) return e;
    if (maybe_error e = detail::check_extent(k, "k", 3, shape_.head_dim, "the cache")) return e;
    if (maybe_error e = detail::check_extent(v, "v", 0, batch, rows)) return e;
    if (maybe_error e = detail::check_extent(v, "v", 1, shape_.kv_heads, "the cache")) return e;
    if (maybe_error e = detail::check_extent(v, "v", 2, k.tokens(), "k")) return e;
    if (maybe_error e = detail::check_extent(v, "v", 3, shape_.value_dim, "the cache")) return e;
    if (maybe_error e = detail::check_tokens(tokens, k.batch(), k.tokens(), "tokens")) return e;
    if (tokens.axes() != shape_.axes)
      return make_error(errc::invalid_shape, "tokens", "has %td position axes; allowed: the cache's %td", tokens.axes(),
                        shape_.axes);
    if (tokens_ > 0 && k.tokens() > 0 && tokens.has_documents() != has_documents_)
      return make_error(errc::mismatch, "tokens", "has %s document ids; allowed: as the tokens already in the cache",
                        tokens.has_documents() ? "" : "no");
    // The cache does not know the number of query heads.
    if (maybe_error e = detail::check_encoding(encoding, {0, shape_.kv_heads, shape_.head_dim, nullptr, &tokens}))
      return e;
    return check_fingerprint(encoding);
  }

  /// What tokens pass through on their way into blocks; kept, so that appending allocates nothing.
  detail::number_list<real>& scratch() noexcept { return scratch_; }

  /// Makes a block ready for the token `first_index` of a sequence.
  void open(index_t block, index_t first_index) noexcept {
    detail::kv_block<T>& opened = at(block);
    opened.tokens = detail::key_tokens{};
    opened.tokens.first_index = first_index;
    std::fill_n(opened.finite.data(), shape_.kv_heads, std::uint8_t{1});
    std::fill_n(opened.longest.data(), shape_.kv_heads, 0.0);
    std::memset(static_cast<void*>(opened.data.get()), 0,
                static_cast<std::size_t>(shape_.kv_heads * layout().elements()) * sizeof(T));
  }

  /// Writes tokens [first, first + n) of a row to slots from `slot` on, which nobody sees before `publish`.
  template <class K, class V>
  void write(index_t block, index_t slot, detail::kv_rows<T, K, V>& from, index_t row, index_t first, index_t n) {
    detail::kv_block<T>& to = at(block);
    const bool turns = from.policy.rotation != nullptr;
    const index_t head_dim = shape_.head_dim, value_dim = shape_.value_dim, size = from.rotation_size;
    real* rows = from.rows;
    real* rotations = rows + from.room * (std::max)(head_dim, value_dim);
    for (index_t j = 0; j < n && turns; ++j)
      detail::prepare_rotation_of(from.policy, from.rotation, from.tokens, row, first + j, token_role::key,
                                  rotations + j * size);
    for (index_t h = 0; h < shape_.kv_heads; ++h) {
      T* keys = to.data.get() + h * layout().elements();
      T* values = keys + layout().key_elements();
      for (index_t j = 0; j < n; ++j) {
        simd::load_row(from.k.row(row, h, first + j), head_dim, rows + j * head_dim);
        if (turns) from.policy.rotate(from.rotation, rotations + j * size, h, rows + j * head_dim);
      }
      detail::pack_keys(rows, head_dim, n, slot, head_dim, keys);
      bool finite = true;
      for (index_t j = 0; j < n; ++j) {
        simd::load_row(from.v.row(row, h, first + j), value_dim, rows);
        detail::pack_value(rows, slot + j, layout(), values);
        // What is stored decides: a large float overflows in half.
        for (index_t d = 0; d < layout().padded_value_dim(); d += layout().width)
          finite = detail::all_finite(values + layout().value_index(slot + j, d), layout().width) && finite;
      }
      // Decoding fills a block key by key: its bound is made when it is full.
      to.longest[static_cast<std::size_t>(h)] = slot + n == block_keys ? detail::longest_key_of(keys, head_dim) : -1;
      std::uint8_t& flag = to.finite[static_cast<std::size_t>(h)];
      flag = static_cast<std::uint8_t>(flag != 0 && finite);
    }
  }

  /// Makes what was written visible.
  void publish(index_t block, const token_view& tokens, index_t row, index_t first, index_t n) noexcept {
    detail::kv_block<T>& to = at(block);
    to.tokens.append(tokens, row, first, n, to.positions.data());
    tokens_ += n;
    find_whole_positions(to);
  }

  /// Remembers what tokens are written by, before the first of them is published.
  template <attention_encoding E>
  void remember(const E& encoding, const token_view& tokens) {
    if (!has_fingerprint_) fingerprint_ = fingerprint_of(encoding);
    has_fingerprint_ = true;
    has_documents_ = tokens.has_documents();
  }

  /// Makes block `to`, which is empty, a copy of the first `count` tokens of `from`; `to == from` cuts a block short.
  void copy(index_t from, index_t to, index_t count) noexcept {
    const detail::kv_block<T>& source = at(from);
    detail::kv_block<T>& target = at(to);
    const auto elements = static_cast<std::size_t>(shape_.kv_heads * layout().elements());
    if (from != to) std::memcpy(static_cast<void*>(target.data.get()), source.data.get(), elements * sizeof(T));
    tokens_ += count - (from == to ? source.tokens.count : 0);
    target.tokens.copy_first(source.tokens, count, shape_.axes, target.positions.data());
    find_whole_positions(target);
    for (index_t h = 0; h < shape_.kv_heads; ++h) {
      T* keys = target.data.get() + h * layout().elements();
      T* values = keys + layout().key_elements();
      detail::clear_slots(count, block_keys, layout(), keys, values);
      target.finite[static_cast<std::size_t>(h)] = detail::all_finite(values, layout().value_elements()) ? 1 : 0;
      target.longest[static_cast<std::size_t>(h)] =
          count == block_keys ? source.longest[static_cast<std::size_t>(h)] : -1;
    }
  }

 private:
  detail::kv_block<T>& at(index_t block) noexcept { return blocks_[static_cast<std::size_t>(block)]; }

  maybe_error no_block(index_t block) const noexcept {
    return make_error(errc::out_of_range, "block", "is %td; allowed: 0 to %td", block, blocks() - 1);
  }
  void require_block(index_t block) const {
    if (block < 0 || block >= blocks()) raise_if(no_block(block));
  }

  template <attention_encoding E>
  std::uint64_t fingerprint_of(const E& encoding) const noexcept {
    return detail::key_fingerprint<real>(encoding, shape_.head_dim, shape_.kv_heads, shape_.axes);
  }

  /// Slots without a key repeat the last one's position.
  void find_whole_positions(detail::kv_block<T>& block) noexcept {
    bool whole = true;
    for (const double position : block.positions) whole = whole && position == std::floor(position);
    set_whole_positions(block, whole);
  }
  void set_whole_positions(detail::kv_block<T>& block, bool whole) noexcept {
    fractional_blocks_ += static_cast<index_t>(block.whole_positions) - static_cast<index_t>(whole);
    block.whole_positions = whole;
  }

  kv_pool_shape shape_;
  std::vector<detail::kv_block<T>> blocks_;
  detail::number_list<real> scratch_;
  index_t tokens_ = 0, fractional_blocks_ = 0;
  std::uint64_t fingerprint_ = 0;
  bool has_fingerprint_ = false, has_documents_ = false;
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ATTENTION_KV_POOL_HPP
