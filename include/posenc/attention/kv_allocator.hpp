// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_KV_ALLOCATOR_HPP
#define POSENC_ATTENTION_KV_ALLOCATOR_HPP

#include <vector>

#include "kv_pool.hpp"

namespace posenc::inline POSENC_ABI::detail {

/// One sequence of a cache: blocks of a pool, in the order of their tokens. After the first `kept` (the same number for
/// all sequences of a cache), `dropped` blocks have been forgotten.
struct kv_sequence {
  std::vector<index_t> blocks;
  index_t length = 0, dropped = 0;
};

/// Which blocks of a pool are in use, and by how many sequences. Blocks that nobody uses are used again before the pool
/// grows; `max_blocks`, unless 0, is how far.
template <class T>
class kv_allocator {
 public:
  kv_allocator(const kv_pool_shape& shape, index_t max_blocks) : pool_(shape), max_blocks_(max_blocks) {}

  kv_pool<T>& pool() noexcept { return pool_; }
  const kv_pool<T>& pool() const noexcept { return pool_; }
  index_t used_blocks() const noexcept { return pool_.blocks() - static_cast<index_t>(free_.size()); }
  index_t free_blocks() const noexcept { return (max_blocks_ > 0 ? max_blocks_ : pool_.blocks()) - used_blocks(); }
  bool shared(index_t block) const noexcept { return uses(block) > 1; }
  index_t uses(index_t block) const noexcept { return uses_[static_cast<std::size_t>(block)]; }

  /// Of blocks [first, last) of a list, how many would be free if the list let go of them.
  index_t owned(const std::vector<index_t>& blocks, index_t first, index_t last) const noexcept {
    index_t count = 0;
    for (index_t i = first; i < last; ++i) count += shared(blocks[static_cast<std::size_t>(i)]) ? 0 : 1;
    return count;
  }

  /// An error if there is no room for `needed` blocks after `freed` have become free.
  maybe_error check_room(const char* argument, index_t needed, index_t freed) const noexcept {
    const index_t room = free_blocks() + freed;
    if (max_blocks_ == 0 || needed <= room) return {};
    return make_error(errc::out_of_range, argument,
                      "needs %td more blocks and %td of the pool's %td are free; allowed: up to %td", needed, room,
                      max_blocks_, room);
  }

  index_t take() {
    if (free_.empty()) return make(1);
    const index_t block = free_.back();
    free_.pop_back();
    uses_[static_cast<std::size_t>(block)] = 1;
    return block;
  }
  /// Makes unused blocks until there are `count` in all; their memory has been written to.
  void reserve(index_t count) {
    while (pool_.blocks() < count) {
      free_.push_back(make(0));
      pool_.open(free_.back(), 0);
    }
  }
  void share(index_t block) noexcept { ++uses_[static_cast<std::size_t>(block)]; }
  void release(index_t block) {
    if (--uses_[static_cast<std::size_t>(block)] > 0) return;
    pool_.clear(block);
    free_.push_back(block);
  }

  /// Leaves a sequence its first `blocks` blocks.
  void shrink(kv_sequence& to, index_t blocks) {
    while (static_cast<index_t>(to.blocks.size()) > blocks) {
      release(to.blocks.back());
      to.blocks.pop_back();
    }
  }
  /// A block with a copy of the first `count` tokens of another one.
  index_t copy_of(index_t block, index_t count) {
    const index_t copy = take();
    pool_.copy(block, copy, count);
    return copy;
  }
  /// Makes the first `count` tokens of a sequence's last block its own.
  void own_last_block(kv_sequence& of, index_t count) {
    const index_t copy = copy_of(of.blocks.back(), count);
    release(of.blocks.back());
    of.blocks.back() = copy;
  }

 private:
  index_t make(index_t uses) {
    if (uses_.size() == uses_.capacity()) {
      const std::size_t room = 2 * uses_.size() + 8;
      free_.reserve(room);  // so that giving back never allocates
      uses_.reserve(room);
    }
    const index_t made = pool_.add_block();
    uses_.push_back(uses);
    return made;
  }

  kv_pool<T> pool_;
  index_t max_blocks_;
  std::vector<index_t> uses_;  ///< by how many sequences, for each block
  std::vector<index_t> free_;
};

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ATTENTION_KV_ALLOCATOR_HPP
