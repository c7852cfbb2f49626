// SPDX-License-Identifier: Apache-2.0
// A cache that forgets what its window has passed gives, to the bit, what one that keeps everything gives, in constant
// memory.
#include <posenc/attention/cached_attention.hpp>
#include <posenc/attention/kv_cache.hpp>
#include <posenc/attention/mask/mask_algebra.hpp>
#include <posenc/attention/mask/masks.hpp>
#include <posenc/encoding/nope.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention/attention_support.hpp"
#include "attention/cache_support.hpp"
#include "support/expect_error.hpp"

namespace {

using attention_test::buffer;
using attention_test::cut;
using attention_test::index_t;
using attention_test::make_buffer;
using attention_test::pick;
using attention_test::random_buffer;
using attention_test::random_engine;
using posenc::any_encoding;
using posenc::any_mask;
using posenc::errc;
using posenc::kv_cache;
using posenc::token_range;
using posenc::token_view;

constexpr index_t block_keys = posenc::block_keys;

/// Appends n tokens of a text to the first sequence; the text repeats after `period`.
template <class T, class Data>
void append(kv_cache<T>& cache, const buffer<Data>& k, const buffer<Data>& v, index_t n, const any_encoding& encoding) {
  const index_t done = cache.length(), at = done % (k.view.tokens() - n);
  cache.append(0, cut(k, 0, at, n), cut(v, 0, at, n), token_range(n, done), encoding);
}

template <class T>
class RingCache : public testing::Test {};
using cache_types = testing::Types<float, double, posenc::half, posenc::bfloat16>;
TYPED_TEST_SUITE(RingCache, cache_types);

/// A text of `total` tokens, `step` at a time, over both kinds of cache.
template <class T>
void expect_same_as_unlimited(index_t total, index_t step, index_t window, index_t keep_first, const any_mask& mask,
                              const any_encoding& encoding) {
  using real = posenc::compute_type<T>;
  constexpr index_t heads = 2, dim = 8;
  random_engine random(static_cast<std::uint64_t>(total + step));
  const auto k = random_buffer<real>(random, 1, 1, 300, dim), v = random_buffer<real>(random, 1, 1, 300, dim),
             q = random_buffer<real>(random, 1, heads, step, dim), a = make_buffer<real>(1, heads, step, dim),
             b = make_buffer<real>(1, heads, step, dim);
  const index_t most =
      (window + step + 2 * block_keys - 1) / block_keys + 1 + (keep_first + block_keys - 1) / block_keys;
  kv_cache<T> all({.kv_heads = 1, .head_dim = dim}),
      ring({.kv_heads = 1, .head_dim = dim, .max_blocks = most, .keep_last = window, .keep_first = keep_first});
  posenc::workspace memory;
  posenc::attention_options options;
  options.memory = &memory;
  for (index_t done = 0; done < total; done += step) {
    append(all, k, v, step, encoding);
    append(ring, k, v, step, encoding);
    ASSERT_EQ(ring.length(), done + step);
    ASSERT_LE(ring.blocks(0), most);
    if (step < 10 && done % 29 != 0 && done > 400) continue;  // more would take long
    const token_view tokens = token_range(step, done);
    posenc::attention(q.read_only(), all, a.view, tokens, encoding, mask, options);
    posenc::attention(q.read_only(), ring, b.view, tokens, encoding, mask, options);
    ASSERT_TRUE(attention_test::same_elements(a, b)) << "at " << done;
  }
  EXPECT_LT(ring.blocks(0), all.blocks(0));
  EXPECT_LE(ring.used_blocks() + ring.free_blocks(), most);
}

// Beyond 2048 keys those of few queries are split into ranges, which stay where they are.
TYPED_TEST(RingCache, DecodeEqualsUnlimited) {
  const any_encoding rope = posenc::rope(posenc::frequency_ladder(8));
  expect_same_as_unlimited<TypeParam>(2500, 4, 150, 0, posenc::causal{} & posenc::window_of(150), rope);
}

TEST(RingCacheFloat, DecodeEqualsUnlimited) {
  const any_encoding rope = posenc::rope(posenc::frequency_ladder(8)), both = attention_test::rope_and_alibi(2, 8);
  const any_mask causal = posenc::causal{};
  expect_same_as_unlimited<float>(4600, 8, 2200, 0, causal & posenc::window_of(2200), rope);
  expect_same_as_unlimited<float>(700, 1, 64, 0, causal & posenc::sliding_window{.left = 63}, both);
  expect_same_as_unlimited<float>(2400, 3, 1, 0, causal & posenc::window_of(1), both);
}

// The first tokens stay (Xiao et al., arXiv:2309.17453), and the mask sees them.
TEST(RingCacheFloat, KeepsTheFirst) {
  const any_encoding rope = posenc::rope(posenc::frequency_ladder(8));
  const auto mask = [](double first, double window) {
    return any_mask(posenc::causal{} & (posenc::prefix{.length = first} | posenc::window_of(window)));
  };
  expect_same_as_unlimited<float>(2600, 8, 300, 4, mask(4, 300), rope);
  expect_same_as_unlimited<float>(4500, 6, 2100, 65, mask(65, 2100), rope);
}

// A prompt that comes in pieces: the first query of a piece looks back the farthest.
TEST(RingCacheFloat, PrefillInPieces) {
  const any_encoding both = attention_test::rope_and_alibi(2, 8);
  const any_mask mask = any_mask(posenc::causal{}) & posenc::window_of(100);
  for (const index_t step : {7, 50, 100, 257})
    expect_same_as_unlimited<float>(step * (1 + 700 / step), step, 100, 0, mask, both);
}

// ---- the ranges that few queries are split into ----

TEST(RingCacheRanges, ForgottenBlocksKeepTheirPlaces) {
  constexpr index_t split = posenc::detail::split_blocks;
  for (const index_t kept : {0, 1, 31, 32, 40})
    for (index_t dropped = 0; dropped < 80; ++dropped)
      for (const index_t held : {0, 1, 31, 64, 70}) {
        posenc::detail::attention_sequence sequence;
        sequence.kept = kept;
        sequence.dropped = dropped;
        sequence.blocks = kept + held;
        const auto place = [&](index_t b) { return b < kept ? b : b + dropped; };
        for (index_t b = 0, end = 0; b < sequence.blocks; b = end) {
          end = sequence.range_end(b);
          ASSERT_GT(end, b);
          ASSERT_LE(end, sequence.blocks);
          for (index_t i = b; i < end; ++i) ASSERT_EQ(place(i) / split, place(b) / split);
          ASSERT_TRUE(end == sequence.blocks || place(end) / split != place(b) / split);
        }
        EXPECT_EQ(sequence.splits(1, 8), place(sequence.blocks - 1) >= split || (held == 0 && kept + dropped > split));
        EXPECT_FALSE(sequence.splits(posenc::detail::split_rows + 1, 8));
      }
  // A sequence that is shorter than what it keeps.
  posenc::detail::attention_sequence young;
  young.kept = 100;
  young.blocks = 40;
  EXPECT_EQ(young.range_end(0), split);
  EXPECT_EQ(young.range_end(split), 40);
}

// ---- forgetting by hand ----

class Forget : public testing::Test {
 protected:
  random_engine random{1};
  buffer<float> k = random_buffer<float>(random, 1, 1, 400, 4), v = random_buffer<float>(random, 1, 1, 400, 4);
  any_encoding nope = posenc::nope{};
};

TEST_F(Forget, WholeBlocksBelowAnOrder) {
  kv_cache<float> cache({.kv_heads = 1, .head_dim = 4, .sequences = 2}), other({.kv_heads = 1, .head_dim = 4});
  append(cache, k, v, 210, nope);
  append(other, k, v, 210, nope);
  for (const double order : {-10.0, 0.0, 62.5, 63.0}) {
    cache.forget_before(0, order);
    EXPECT_EQ(cache.blocks(0), 4) << order;
  }
  cache.forget_before(0, 64);
  EXPECT_EQ(cache.blocks(0), 3);
  EXPECT_EQ(cache.length(0), 210) << "indices go on";
  EXPECT_EQ(cache.free_blocks(), 1);
  attention_test::expect_same_blocks(cache.all(), 0, other.all(), 0, 0, 1);
  cache.forget_before(0, 190.5);
  EXPECT_EQ(cache.blocks(0), 2);
  cache.forget_before(0, 1e9);
  EXPECT_EQ(cache.blocks(0), 1) << "the block that is being filled stays";
  append(cache, k, v, 46, nope);
  append(other, k, v, 46, nope);
  attention_test::expect_same_blocks(cache.all(), 0, other.all(), 0, 0, 3);
  cache.forget_before(0, 1e9);
  EXPECT_EQ(cache.blocks(0), 0);
  EXPECT_EQ(cache.used_blocks(), 0);
  append(cache, k, v, 10, nope);
  append(other, k, v, 10, nope);
  EXPECT_EQ(cache.length(0), 266);
  attention_test::expect_same_blocks(cache.all(), 0, other.all(), 0, 0, 4);
  POSENC_EXPECT_ERROR(cache.forget_before(2, 0), errc::out_of_range, "sequence: is 2");
}

// Orders in a block may be any; it goes when all of them are below, and padding has none.
TEST_F(Forget, OrdersThatDoNotRise) {
  std::vector<double> order(256);
  std::vector<std::int64_t> documents(256);
  for (std::size_t i = 0; i < 256; ++i) {
    order[i] = static_cast<double>(i % 64);
    documents[i] = i / 64 == 1 ? -1 : 0;  // the second block is padding
  }
  order[10] = 100;
  order[70] = 1e9;
  const token_view tokens = token_range(256).with_order(order.data()).with_documents(documents.data());
  kv_cache<float> cache({.kv_heads = 1, .head_dim = 4});
  cache.append(cut(k, 0, 0, 256), cut(v, 0, 0, 256), tokens, nope);
  cache.forget_before(0, 100);
  EXPECT_EQ(cache.blocks(0), 4) << "the first one has a later token";
  cache.forget_before(0, 101);
  EXPECT_EQ(cache.blocks(0), 0);
}

TEST_F(Forget, ForksAndCutsAroundTheGap) {
  kv_cache<float> cache({.kv_heads = 1, .head_dim = 4, .sequences = 2, .keep_first = 1}),
      other({.kv_heads = 1, .head_dim = 4});
  append(cache, k, v, 300, nope);
  append(other, k, v, 300, nope);
  cache.forget_before(0, 190);
  EXPECT_EQ(cache.blocks(0), 4) << "tokens 0 to 63, and 128 to 299";
  POSENC_EXPECT_ERROR(cache.fork(0, 1, 100), errc::out_of_range, "is 100, and tokens 64 to 127 are forgotten");
  POSENC_EXPECT_ERROR(cache.truncate(0, 128), errc::out_of_range, "is 128, and tokens 64 to 127 are forgotten");
  cache.fork(0, 1);
  EXPECT_EQ(cache.length(1), 300);
  cache.forget_before(0, 256);
  EXPECT_EQ(cache.blocks(0), 2);
  EXPECT_EQ(cache.blocks(1), 4) << "the fork keeps its own";
  EXPECT_EQ(cache.used_blocks(), 4);
  cache.truncate(1, 150);
  EXPECT_EQ(cache.blocks(1), 2);
  const std::vector<index_t> fork = {1};
  other.truncate(0, 150);
  attention_test::expect_same_blocks(cache.select(fork), 0, other.all(), 0, 1, 2);
  cache.fork(0, 1, 60);
  EXPECT_EQ(cache.blocks(1), 1);
  cache.append(1, cut(k, 0, 60, 100), cut(v, 0, 60, 100), token_range(100, 60), nope);
  other.truncate(0, 60);
  other.append(cut(k, 0, 60, 100), cut(v, 0, 60, 100), token_range(100, 60), nope);
  attention_test::expect_same_blocks(cache.select(fork), 0, other.all(), 0);
}

// What the window has passed makes room in a full pool; what is refused forgets nothing.
TEST_F(Forget, MakesRoomInAFullPool) {
  kv_cache<float> cache({.kv_heads = 1, .head_dim = 4, .max_blocks = 3, .keep_last = 64});
  append(cache, k, v, 192, nope);
  EXPECT_EQ(cache.free_blocks(), 0);
  POSENC_EXPECT_ERROR(append(cache, k, v, 193, nope), errc::out_of_range, "needs 4 more blocks");
  EXPECT_EQ(cache.blocks(0), 3);
  append(cache, k, v, 128, nope);
  EXPECT_EQ(cache.blocks(0), 3);
  EXPECT_EQ(cache.length(), 320);
}

TEST(ForgetShape, Errors) {
  POSENC_EXPECT_ERROR((kv_cache<float>({.kv_heads = 1, .head_dim = 4, .max_blocks = -1})), errc::invalid_shape,
                      "max_blocks: is -1");
  POSENC_EXPECT_ERROR((kv_cache<float>({.kv_heads = 1, .head_dim = 4, .keep_last = -1})), errc::invalid_shape,
                      "keep_last: is -1");
  POSENC_EXPECT_ERROR((kv_cache<float>({.kv_heads = 1, .head_dim = 4, .keep_first = -1})), errc::invalid_shape,
                      "keep_first: is -1");
}

}  // namespace
