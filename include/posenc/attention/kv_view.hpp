// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_KV_VIEW_HPP
#define POSENC_ATTENTION_KV_VIEW_HPP

#include <algorithm>
#include <cstdint>

#include "kv_allocator.hpp"

namespace posenc::inline POSENC_ABI {

namespace detail {

/// The sequences of an argument: those of a list, or 0, 1, 2, ...
struct sequence_list {
  const index_t* numbers = nullptr;  ///< null: all
  index_t count = 0;

  index_t operator[](index_t i) const noexcept { return numbers == nullptr ? i : numbers[i]; }
};

}  // namespace detail

/// Block tables that the caller keeps, as int32 or int64: sequence s has `lengths[s]` tokens in the blocks
/// `blocks[s * stride]`, `blocks[s * stride + 1]`, ..., numbers of a `kv_pool`, each but the last one full. A block may be
/// in several tables.
class block_table {
 public:
  template <id_number Block, id_number Length>
  block_table(const Block* blocks, index_t stride, const Length* lengths, index_t sequences) noexcept
      : blocks_(blocks, 0, stride, 1), lengths_(lengths, 0, 0, 1), stride_(stride), sequences_(sequences) {}

  index_t sequences() const noexcept { return sequences_; }
  /// Blocks that a sequence can have.
  index_t stride() const noexcept { return stride_; }
  index_t length(index_t sequence) const noexcept { return static_cast<index_t>(lengths_.id(0, sequence)); }
  index_t block(index_t sequence, index_t i) const noexcept { return static_cast<index_t>(blocks_.id(sequence, i)); }
  bool null() const noexcept { return sequences_ > 0 && (blocks_.is_null() || lengths_.is_null()); }

 private:
  detail::number_view blocks_, lengths_;
  index_t stride_, sequences_;
};

/// What attention over blocks reads: for each sequence of the call a list of blocks of one pool. A `kv_cache` is read as all
/// of its sequences; `cache.select(...)` names some of them, in any order, and one may come more than once; a pool and a
/// `block_table` are the caller's own. A view refers to what it was made from; that must not change while it is read.
template <scalar T>
class kv_view {
 public:
  using value_type = T;

  kv_view(const kv_pool<T>& pool, const block_table& table) noexcept
      : pool_(&pool), table_(table), own_table_(true), sequences_{nullptr, table.sequences()} {}

  /// For the library: the sequences `chosen` of a cache that has `available` ones.
  kv_view(const kv_pool<T>& pool, const detail::kv_sequence* lists, index_t available, detail::sequence_list chosen,
          index_t kept) noexcept
      : pool_(&pool), lists_(lists), available_(available), kept_(kept), sequences_(chosen) {}

  const kv_pool<T>& pool() const noexcept { return *pool_; }
  index_t sequences() const noexcept { return sequences_.count; }
  /// Tokens of a sequence, forgotten ones included: indices of its keys are below.
  index_t length(index_t s) const noexcept { return own_table_ ? table_.length(s) : list(s).length; }
  index_t longest() const noexcept {
    index_t most = 0;
    for (index_t s = 0; s < sequences(); ++s) most = (std::max)(most, length(s));
    return most;
  }
  /// Indices of keys, as dense masks go by, are below. In a table of one's own they are what the blocks were written with.
  index_t end_index() const noexcept {
    index_t end = longest();
    for (index_t s = 0; own_table_ && s < sequences(); ++s)
      for (index_t i = 0; i < blocks(s); ++i) {
        const detail::key_tokens& tokens = block(s, i).tokens;
        end = (std::max)(end, tokens.first_index + tokens.count);
      }
    return end;
  }
  index_t blocks(index_t s) const noexcept {
    return own_table_ ? detail::ceil_div(table_.length(s), block_keys) : static_cast<index_t>(list(s).blocks.size());
  }
  const detail::kv_block<T>& block(index_t s, index_t i) const noexcept {
    return pool_->at(own_table_ ? table_.block(s, i) : list(s).blocks[static_cast<std::size_t>(i)]);
  }
  /// Blocks that have been forgotten, behind the first `kept()`.
  index_t dropped(index_t s) const noexcept { return own_table_ ? 0 : list(s).dropped; }
  index_t kept() const noexcept { return kept_; }

  /// What is wrong with the numbers of sequences or with the block tables, before anything is read through them.
  maybe_error check() const noexcept {
    if (!own_table_) {
      for (index_t s = 0; s < sequences(); ++s)
        if (sequences_[s] < 0 || sequences_[s] >= available_)
          return make_error(errc::out_of_range, "sequences", "names %td; allowed: 0 to %td", sequences_[s],
                            available_ - 1);
      return {};
    }
    if (table_.null()) return make_error(errc::invalid_layout, "block_table", "is null");
    for (index_t s = 0; s < sequences(); ++s) {
      if (length(s) < 0 || blocks(s) > (std::max)(table_.stride(), index_t{0}))
        return make_error(errc::out_of_range, "block_table",
                          "has %td tokens for sequence %td; allowed: 0 to %td, in %td blocks", length(s), s,
                          table_.stride() * block_keys, table_.stride());
      for (index_t i = 0, left = length(s); i < blocks(s); ++i, left -= block_keys) {
        if (const index_t b = table_.block(s, i); b < 0 || b >= pool_->blocks())
          return make_error(errc::out_of_range, "block_table",
                            "has block %td at place %td of sequence %td; allowed: 0 to %td", b, i, s,
                            pool_->blocks() - 1);
        const index_t has = block(s, i).tokens.count, wanted = left < block_keys ? left : block_keys;
        if (has != wanted)
          return make_error(errc::mismatch, "block_table",
                            "has %td tokens for sequence %td, and its block %td has %td; allowed: %td", length(s), s,
                            table_.block(s, i), has, wanted);
      }
    }
    return {};
  }

 private:
  const detail::kv_sequence& list(index_t s) const noexcept { return lists_[sequences_[s]]; }

  const kv_pool<T>* pool_;
  const detail::kv_sequence* lists_ = nullptr;
  block_table table_{static_cast<const std::int64_t*>(nullptr), 0, static_cast<const std::int64_t*>(nullptr), 0};
  bool own_table_ = false;
  index_t available_ = 0, kept_ = 0;
  detail::sequence_list sequences_;
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ATTENTION_KV_VIEW_HPP
