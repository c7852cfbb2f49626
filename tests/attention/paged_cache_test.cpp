// SPDX-License-Identifier: Apache-2.0
// Where the blocks of a sequence lie, who shares them and what became of their former owners leaves no trace: every
// sequence is, to the bit, what it would be in a cache of its own.
#include <posenc/attention/cached_attention.hpp>
#include <posenc/attention/kv_cache.hpp>
#include <posenc/attention/mask/masks.hpp>

#include <cstdint>
#include <thread>
#include <vector>

#include "attention/attention_support.hpp"
#include "attention/cache_support.hpp"
#include "support/expect_error.hpp"

namespace {

using attention_test::buffer;
using attention_test::chance;
using attention_test::index_t;
using attention_test::make_buffer;
using attention_test::pick;
using attention_test::random_buffer;
using attention_test::random_engine;
using posenc::any_encoding;
using posenc::any_mask;
using posenc::errc;
using posenc::kv_cache;
using posenc::kv_view;
using posenc::tensor_view;
using posenc::token_view;

constexpr index_t heads = 4, kv_heads = 2, dim = 6, value_dim = 5;

/// Keys and values to choose from; a sequence is a list of their numbers. Every token has its index as position.
template <class T>
struct source {
  using real = posenc::compute_type<T>;
  static constexpr index_t count = 400;

  random_engine random{7};
  buffer<real> k = random_buffer<real>(random, 1, kv_heads, count, dim),
               v = random_buffer<real>(random, 1, kv_heads, count, value_dim),
               q = random_buffer<real>(random, 1, heads, 1, dim);
  any_encoding encoding = attention_test::rope_and_alibi(heads, dim);

  buffer<real> gather(const buffer<real>& from, const std::vector<index_t>& tokens) const {
    auto to = make_buffer<real>(1, kv_heads, static_cast<index_t>(tokens.size()), from.view.dim());
    to.for_each([&](index_t b, index_t h, index_t t, index_t d) {
      to.view(b, h, t, d) = from.view(b, h, tokens[static_cast<std::size_t>(t)], d);
    });
    return to;
  }
  void append(kv_cache<T>& cache, index_t sequence, const std::vector<index_t>& tokens) const {
    const auto keys = gather(k, tokens), values = gather(v, tokens);
    cache.append(sequence, keys.read_only(), values.read_only(),
                 posenc::token_range(static_cast<index_t>(tokens.size()), cache.length(sequence)), encoding);
  }
  kv_cache<T> alone(const std::vector<index_t>& tokens) const {
    kv_cache<T> cache({.kv_heads = kv_heads, .head_dim = dim, .value_dim = value_dim});
    append(cache, 0, tokens);
    return cache;
  }
  /// One query behind each sequence.
  std::vector<double> decode(const kv_view<T>& view) const {
    const index_t n = view.sequences();
    const auto queries = make_buffer<real>(n, heads, 1, dim), out = make_buffer<real>(n, heads, 1, value_dim);
    queries.for_each([&](index_t b, index_t h, index_t, index_t d) { queries.view(b, h, 0, d) = q.view(0, h, 0, d); });
    std::vector<double> positions;
    for (index_t s = 0; s < n; ++s) positions.push_back(static_cast<double>(view.length(s)));
    posenc::attention(queries.read_only(), view, out.view, posenc::token_positions(positions.data(), 1, n), encoding,
                      any_mask(posenc::causal{}));
    return out.numbers();
  }
};

template <class T>
posenc::kv_cache_shape shape_of(index_t sequences, index_t max_blocks = 0) {
  return {
      .kv_heads = kv_heads, .head_dim = dim, .value_dim = value_dim, .sequences = sequences, .max_blocks = max_blocks};
}

std::vector<index_t> random_tokens(random_engine& random, index_t n) {
  std::vector<index_t> tokens(static_cast<std::size_t>(n));
  for (index_t& t : tokens) t = pick(random, 0, source<float>::count - 1);
  return tokens;
}

template <class T>
class PagedCache : public testing::Test {
 protected:
  source<T> from;
  random_engine random{11};

  /// Every sequence holds the listed tokens, and its queries get what they would get alone.
  void expect_sequences(const kv_cache<T>& cache, const std::vector<std::vector<index_t>>& wanted) {
    std::vector<double> results;
    for (std::size_t s = 0; s < wanted.size(); ++s) {
      const auto sequence = static_cast<index_t>(s);
      ASSERT_EQ(cache.length(sequence), static_cast<index_t>(wanted[s].size()));
      const kv_cache<T> alone = from.alone(wanted[s]);
      attention_test::expect_same_blocks(cache.all(), sequence, alone.all(), 0);
      for (const double x : from.decode(alone.all())) results.push_back(x);
    }
    EXPECT_EQ(from.decode(cache.all()), results);
  }
};
using cache_types = testing::Types<float, double, posenc::half, posenc::bfloat16>;
TYPED_TEST_SUITE(PagedCache, cache_types);

// Sequences grow, are forked, cut and dropped at random in a pool that is often full.
TYPED_TEST(PagedCache, ALifeOfManySequences) {
  constexpr index_t sequences = 5, most = 8;
  kv_cache<TypeParam> cache(shape_of<TypeParam>(sequences, most));
  std::vector<std::vector<index_t>> wanted(sequences);
  index_t refused = 0;
  for (int step = 0; step < 150; ++step) {
    const index_t s = pick(this->random, 0, sequences - 1),
                  other = (s + pick(this->random, 1, sequences - 1)) % sequences;
    auto &mine = wanted[static_cast<std::size_t>(s)], &others = wanted[static_cast<std::size_t>(other)];
    const index_t kind = pick(this->random, 0, 9);
    const std::size_t before = mine.size();
    const auto tokens = random_tokens(this->random, pick(this->random, 1, chance(this->random, 2) ? 200 : 10));
    bool good = true;
    const auto run = [&](auto&& change) {
      const auto raised = posenc_test::error_of(change);
      good = !raised;
      if (!good) {
        EXPECT_NE(raised->text.find("of the pool's "), std::string::npos) << raised->text;
      }
    };
    if (kind < 6) {
      run([&] { this->from.append(cache, s, tokens); });
      if (good) mine.insert(mine.end(), tokens.begin(), tokens.end());
    } else if (kind < 8) {
      const index_t count = pick(this->random, 0, static_cast<index_t>(mine.size()));
      run([&] { cache.fork(s, other, count); });
      if (good) others.assign(mine.begin(), mine.begin() + count);
    } else if (kind < 9) {
      const index_t count = pick(this->random, 0, static_cast<index_t>(mine.size()));
      run([&] { cache.truncate(s, count); });
      if (good) mine.resize(static_cast<std::size_t>(count));
    } else {
      cache.clear(s);
      mine.clear();
    }
    refused += good ? 0 : 1;
    EXPECT_LE(cache.used_blocks(), most);
    EXPECT_EQ(cache.used_blocks() + cache.free_blocks(), most);
    if (step % 10 == 9 || !good) this->expect_sequences(cache, wanted);
    ASSERT_FALSE(testing::Test::HasFailure()) << "step " << step << ", kind " << kind << ", " << before << " tokens";
  }
  EXPECT_GT(refused, 0) << "the pool was never full";
  for (index_t s = 0; s < sequences; ++s) cache.clear(s);
  EXPECT_EQ(cache.free_blocks(), most);
}

// Any sequences in any order, one of them twice; ragged, too.
TYPED_TEST(PagedCache, SelectedSequences) {
  using real = posenc::compute_type<TypeParam>;
  kv_cache<TypeParam> cache(shape_of<TypeParam>(4));
  for (const index_t n : {30, 70, 1, 130})
    for (index_t s = 0; s < 4; ++s) this->from.append(cache, s, random_tokens(this->random, n + s));
  const std::vector<double> all = this->from.decode(cache.all());
  const std::vector<index_t> some = {2, 0, 2};
  const std::vector<double> got = this->from.decode(cache.select(some));
  constexpr std::size_t row = heads * value_dim;
  for (std::size_t i = 0; i < some.size(); ++i)
    for (std::size_t j = 0; j < row; ++j) EXPECT_EQ(got[i * row + j], all[static_cast<std::size_t>(some[i]) * row + j]);

  const auto q = make_buffer<real>(1, heads, 3, dim), out = make_buffer<real>(1, heads, 3, value_dim);
  q.for_each([&](index_t, index_t h, index_t t, index_t d) { q.view(0, h, t, d) = this->from.q.view(0, h, 0, d); });
  std::vector<double> positions;
  for (const index_t s : some) positions.push_back(static_cast<double>(cache.length(s)));
  const std::vector<std::int64_t> bounds = {0, 1, 2, 3};
  posenc::attention(q.read_only(), cache.select(some), out.view,
                    posenc::token_positions(positions.data(), 3).with_cu_seqlens(bounds.data(), 3), this->from.encoding,
                    any_mask(posenc::causal{}));
  out.for_each([&](index_t, index_t h, index_t t, index_t d) {
    EXPECT_EQ(attention_test::to_double(out.view(0, h, t, d)),
              got[static_cast<std::size_t>((t * heads + h) * value_dim + d)]);
  });
}

// ---- sharing ----

TEST(PagedCacheSharing, CopiesOnlyWhatIsWrittenTo) {
  source<float> from;
  random_engine random(3);
  kv_cache<float> cache(shape_of<float>(3));
  from.append(cache, 0, random_tokens(random, 150));
  cache.fork(0, 1);
  cache.fork(0, 2, 128);
  EXPECT_EQ(cache.used_blocks(), 3);
  for (const index_t s : {1, 2})
    for (index_t b = 0; b < 2; ++b) EXPECT_EQ(cache.block_number(s, b), cache.block_number(0, b));
  EXPECT_EQ(cache.block_number(1, 2), cache.block_number(0, 2));

  const std::vector<double> before = from.decode(cache.all());
  from.append(cache, 1, {5});
  EXPECT_EQ(cache.used_blocks(), 4) << "the block that both were filling";
  EXPECT_NE(cache.block_number(1, 2), cache.block_number(0, 2));
  from.append(cache, 0, {9});
  from.append(cache, 2, {9});
  EXPECT_EQ(cache.used_blocks(), 5) << "a new one for the third";
  cache.truncate(0, 150);
  const std::vector<index_t> first = {0};
  const std::vector<double> again = from.decode(cache.select(first));
  for (std::size_t i = 0; i < again.size(); ++i) EXPECT_EQ(again[i], before[i]);

  cache.clear(0);
  EXPECT_EQ(cache.used_blocks(), 4) << "the others' blocks stay";
  cache.clear(1);
  cache.clear(2);
  EXPECT_EQ(cache.used_blocks(), 0);
  EXPECT_EQ(cache.free_blocks(), 5) << "memory is kept";
}

// A part of a block is a copy, without what is behind it.
TEST(PagedCacheSharing, PartOfABlock) {
  source<float> from;
  random_engine random(4);
  const auto tokens = random_tokens(random, 100);
  attention_test::poison(from.v.view(0, 1, tokens[80], 2), random);
  kv_cache<float> cache(shape_of<float>(2));
  from.append(cache, 0, tokens);
  EXPECT_FALSE(cache.finite_values(0, 1, 1));
  for (const index_t n : {0, 1, 64, 70, 80}) {
    cache.fork(0, 1, n);
    attention_test::expect_same_blocks(cache.all(), 1, from.alone({tokens.begin(), tokens.begin() + n}).all(), 0);
  }
  EXPECT_TRUE(cache.finite_values(1, 1, 1));
}

TEST(PagedCacheSharing, Errors) {
  source<float> from;
  kv_cache<float> cache(shape_of<float>(2));
  from.append(cache, 0, {1, 2, 3});
  POSENC_EXPECT_ERROR(cache.fork(2, 0), errc::out_of_range, "allowed: 0 to 1");
  POSENC_EXPECT_ERROR(cache.fork(0, -1, 1), errc::out_of_range, "to: is -1");
  POSENC_EXPECT_ERROR(cache.fork(0, 0), errc::mismatch, "another sequence");
  POSENC_EXPECT_ERROR(cache.fork(0, 1, 4), errc::out_of_range, "is 4; allowed: 0 to the sequence's 3");
  POSENC_EXPECT_ERROR(cache.truncate(0, 4), errc::out_of_range, "is 4; allowed: 0 to the sequence's 3");
  EXPECT_EQ(cache.length(1), 0);
}

// ---- a pool that is full ----

TEST(PagedCacheFull, LeavesEverythingAsItWas) {
  source<float> from;
  random_engine random(5);
  kv_cache<float> cache(shape_of<float>(2, 4));
  from.append(cache, 0, random_tokens(random, 120));
  from.append(cache, 1, random_tokens(random, 60));
  const std::vector<double> before = from.decode(cache.all());
  EXPECT_EQ(cache.free_blocks(), 1);
  POSENC_EXPECT_ERROR(from.append(cache, 0, random_tokens(random, 73)), errc::out_of_range,
                      "tokens: needs 2 more blocks and 1 of the pool's 4 are free; allowed: up to 1");
  // Room for either of them, not for both.
  const auto k = random_buffer<float>(random, 2, kv_heads, 10, dim),
             v = random_buffer<float>(random, 2, kv_heads, 10, value_dim);
  const std::vector<double> positions(20, 200.0);
  const token_view tokens = posenc::token_positions(positions.data(), 10, 2);
  EXPECT_TRUE(cache.check_append(k.view, v.view, tokens, from.encoding).has_value());
  POSENC_EXPECT_ERROR(cache.append(k.view, v.view, tokens, from.encoding), errc::out_of_range, "needs 2 more blocks");
  EXPECT_EQ(cache.length(0), 120);
  EXPECT_EQ(cache.length(1), 60);
  EXPECT_EQ(from.decode(cache.all()), before);
  // What fits exactly is taken, and what is cleared is used again.
  from.append(cache, 0, random_tokens(random, 72));
  EXPECT_EQ(cache.free_blocks(), 0);
}

// Nothing is in use, and still it is too much.
TEST(PagedCacheFull, APoolThatIsTooSmall) {
  source<float> from;
  random_engine random(7);
  kv_cache<float> cache(shape_of<float>(1, 4));
  POSENC_EXPECT_ERROR(from.append(cache, 0, random_tokens(random, 257)), errc::out_of_range,
                      "tokens: needs 5 more blocks and 4 of the pool's 4 are free; allowed: up to 4");
  EXPECT_EQ(cache.length(0), 0);
}

TEST(PagedCacheFull, ForkAndCopyOnWriteNeedRoomToo) {
  source<float> from;
  random_engine random(6);
  kv_cache<float> cache(shape_of<float>(3, 3));
  from.append(cache, 0, random_tokens(random, 100));
  cache.fork(0, 1);
  cache.fork(0, 2);
  // Three write to one block: two copies, for which one block is left.
  const auto k = random_buffer<float>(random, 3, kv_heads, 1, dim),
             v = random_buffer<float>(random, 3, kv_heads, 1, value_dim);
  const token_view next = posenc::token_range(1, 100);
  POSENC_EXPECT_ERROR(cache.append(k.view, v.view, next, from.encoding), errc::out_of_range, "needs 2 more blocks");
  cache.clear(2);
  const std::vector<index_t> two = {0, 1};
  cache.append(two, k.view.batch(0, 2), v.view.batch(0, 2), next, from.encoding);
  EXPECT_EQ(cache.free_blocks(), 0) << "the last to write needs no copy";
  POSENC_EXPECT_ERROR(cache.fork(0, 2, 70), errc::out_of_range,
                      "fork: needs 1 more blocks and 0 of the pool's 3 are free");
  EXPECT_EQ(cache.length(2), 0);
  cache.fork(0, 1, 70);  // what the second one had is room enough
  EXPECT_EQ(cache.length(1), 70);
}

// ---- several sequences at once ----

template <class T>
void expect_batch_is_one_by_one() {
  using real = posenc::compute_type<T>;
  random_engine random(8);
  const any_encoding encoding = attention_test::rope_and_alibi(heads, dim);
  const auto k = random_buffer<real>(random, 3, kv_heads, 90, dim),
             v = random_buffer<real>(random, 3, kv_heads, 90, value_dim);
  std::vector<double> positions(3 * 90);
  for (double& x : positions) x = static_cast<double>(pick(random, 0, 1000));
  kv_cache<T> one(shape_of<T>(3)), batch(shape_of<T>(3)), ragged(shape_of<T>(3));
  for (index_t s = 0; s < 3; ++s)
    one.append(s, attention_test::cut(k, s, 0, 90), attention_test::cut(v, s, 0, 90),
               posenc::token_positions(positions.data() + s * 90, 90), encoding);
  batch.append(k.read_only(), v.read_only(), posenc::token_positions(positions.data(), 90, 3), encoding);
  // The same tokens one after another, in two calls; the sequences in another order.
  const std::vector<index_t> order = {2, 0, 1};
  for (const index_t first : {0, 40}) {
    const index_t n = first == 0 ? 40 : 50;
    const auto rk = make_buffer<real>(1, kv_heads, 3 * n, dim), rv = make_buffer<real>(1, kv_heads, 3 * n, value_dim);
    std::vector<double> at;
    for (index_t i = 0; i < 3; ++i)
      for (index_t t = 0; t < n; ++t)
        at.push_back(positions[static_cast<std::size_t>(order[static_cast<std::size_t>(i)] * 90 + first + t)]);
    const auto fill = [&](const buffer<real>& to, const buffer<real>& from) {
      to.for_each([&](index_t, index_t h, index_t t, index_t d) {
        to.view(0, h, t, d) = from.view(order[static_cast<std::size_t>(t / n)], h, first + t % n, d);
      });
    };
    fill(rk, k);
    fill(rv, v);
    const std::vector<std::int64_t> bounds = {0, n, 2 * n, 3 * n};
    ragged.append(order, rk.read_only(), rv.read_only(),
                  posenc::token_positions(at.data(), 3 * n).with_cu_seqlens(bounds.data(), 3), encoding);
  }
  for (index_t s = 0; s < 3; ++s) {
    attention_test::expect_same_blocks(one.all(), s, batch.all(), s);
    attention_test::expect_same_blocks(one.all(), s, ragged.all(), s);
  }
}

TEST(PagedCacheBatch, EqualsOneByOne) {
  expect_batch_is_one_by_one<float>();
  expect_batch_is_one_by_one<posenc::half>();
}

TEST(PagedCacheBatch, Errors) {
  random_engine random(9);
  const any_encoding encoding = attention_test::rope_and_alibi(heads, dim);
  const auto k = random_buffer<float>(random, 2, kv_heads, 3, dim),
             v = random_buffer<float>(random, 2, kv_heads, 3, value_dim);
  kv_cache<float> cache(shape_of<float>(3));
  const auto refused = [&](const std::vector<index_t>& to, const token_view& tokens, errc code, const char* text) {
    const auto value = cache.check_append(to, k.view, v.view, tokens, encoding);
    ASSERT_TRUE(value.has_value()) << text;
    POSENC_EXPECT_ERROR(cache.append(to, k.view, v.view, tokens, encoding), code, text);
    EXPECT_EQ(cache.longest(), 0);
  };
  const token_view tokens = posenc::token_range(3);
  refused({0, 3}, tokens, errc::out_of_range, "sequences: is 3; allowed: 0 to 2");
  refused({-1, 0}, tokens, errc::out_of_range, "sequences: is -1");
  refused({1, 1}, tokens, errc::mismatch, "names 1 twice");
  refused({0, 1, 2}, tokens, errc::invalid_shape, "k: has 2 batch rows; allowed: 3");
  refused({}, tokens, errc::invalid_shape, "k: has 2 batch rows; allowed: 0");
  const std::vector<std::int64_t> bounds = {0, 3};
  refused({0, 1}, tokens.with_cu_seqlens(bounds.data(), 1), errc::invalid_shape,
          "k: has 2 batch rows; allowed: 1, like ragged sequences");
  POSENC_EXPECT_ERROR(cache.append(k.view, v.view, tokens, encoding), errc::invalid_shape, "allowed: 3");
  POSENC_EXPECT_ERROR(cache.append(attention_test::cut(k, 0, 0, 3), attention_test::cut(v, 0, 0, 3),
                                   tokens.with_cu_seqlens(bounds.data(), 1), encoding),
                      errc::mismatch, "cu_seqlens of 1 sequences; allowed: 3");
}

TEST(PagedCacheView, NumbersOfSequences) {
  source<float> from;
  kv_cache<float> cache(shape_of<float>(2));
  from.append(cache, 0, {1});
  const auto out = make_buffer<float>(2, heads, 1, value_dim), q = make_buffer<float>(2, heads, 1, dim);
  const auto call = [&](const std::vector<index_t>& sequences) {
    const auto n = static_cast<index_t>(sequences.size());
    posenc::attention(q.view.batch(0, n), cache.select(sequences), out.view.batch(0, n), posenc::token_range(1, 1),
                      from.encoding, any_mask(posenc::causal{}));
  };
  POSENC_EXPECT_ERROR(call({0, 2}), errc::out_of_range, "sequences: names 2; allowed: 0 to 1");
  POSENC_EXPECT_ERROR(call({-1}), errc::out_of_range, "sequences: names -1; allowed: 0 to 1");
  call({});  // an empty list is none of them
  call({1, 0});
}

// A cache may be read by several calls at once.
TEST(PagedCacheView, ReadersAtOnce) {
  source<float> from;
  random_engine random(10);
  kv_cache<float> cache(shape_of<float>(4));
  for (index_t s = 0; s < 4; ++s) from.append(cache, s, random_tokens(random, 100 + 50 * s));
  const std::vector<double> wanted = from.decode(cache.all());
  std::vector<double> got[3];
  std::vector<std::thread> threads;
  for (auto& mine : got)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) mine = from.decode(cache.all());
    });
  for (std::thread& t : threads) t.join();
  for (const auto& mine : got) EXPECT_EQ(mine, wanted);
}

// ---- block tables of the caller's own ----

TEST(BlockTable, ReadsLikeACache) {
  source<float> from;
  random_engine random(12);
  posenc::kv_pool<float> pool({.kv_heads = kv_heads, .head_dim = dim, .value_dim = value_dim, .blocks = 8});
  // Two sequences that share their first block.
  const auto common = random_tokens(random, 64), tail = random_tokens(random, 100), other = random_tokens(random, 3);
  const std::vector<std::int32_t> blocks = {5, 0, 3, 5, 7, -1};
  std::vector<std::int32_t> lengths = {164, 67};
  const auto fill = [&](index_t block, index_t first_index, const std::vector<index_t>& tokens, index_t first,
                        index_t n) {
    const std::vector<index_t> some(tokens.begin() + first, tokens.begin() + first + n);
    const auto k = from.gather(from.k, some), v = from.gather(from.v, some);
    pool.append(block, first_index, k.read_only(), v.read_only(),
                posenc::token_range(n, first_index + pool.count(block)), from.encoding);
  };
  fill(5, 0, common, 0, 20);
  fill(5, 0, common, 20, 44);
  fill(0, 64, tail, 0, 64);
  fill(3, 128, tail, 64, 36);
  fill(7, 64, other, 0, 3);
  const kv_view<float> view(pool, posenc::block_table(blocks.data(), 3, lengths.data(), 2));

  kv_cache<float> cache(shape_of<float>(2));
  for (index_t s = 0; s < 2; ++s) {
    auto tokens = common;
    const auto& rest = s == 0 ? tail : other;
    tokens.insert(tokens.end(), rest.begin(), rest.end());
    from.append(cache, s, tokens);
    attention_test::expect_same_blocks(view, s, cache.all(), s);
  }
  EXPECT_EQ(from.decode(view), from.decode(cache.all()));

  const auto refused = [&](std::vector<std::int32_t> b, std::vector<std::int32_t> l, errc code, const char* text) {
    const kv_view<float> wrong(pool, posenc::block_table(b.data(), 3, l.data(), 2));
    POSENC_EXPECT_ERROR(from.decode(wrong), code, text);
  };
  refused({5, 0, 8, 5, 7, 0}, {164, 67}, errc::out_of_range, "has block 8 at place 2 of sequence 0; allowed: 0 to 7");
  refused({5, 0, 3, 5, -1, 0}, {164, 67}, errc::out_of_range, "has block -1");
  refused(blocks, {164, 66}, errc::mismatch, "66 tokens for sequence 1, and its block 7 has 3; allowed: 2");
  refused(blocks, {164, 200}, errc::out_of_range, "200 tokens for sequence 1; allowed: 0 to 192, in 3 blocks");
  refused(blocks, {-1, 0}, errc::out_of_range, "-1 tokens");
  const kv_view<float> null(pool, posenc::block_table(static_cast<const int*>(nullptr), 3, lengths.data(), 2));
  EXPECT_TRUE(null.check().has_value());

  // Blocks that are cleared begin anew.
  pool.clear(7);
  EXPECT_EQ(pool.count(7), 0);
  fill(7, 64, tail, 10, 5);
  EXPECT_EQ(pool.count(7), 5);
}

TEST(BlockTable, PoolErrors) {
  using posenc::kv_pool;
  using posenc::kv_pool_shape;
  const kv_pool_shape good{.kv_heads = 1, .head_dim = 4, .blocks = 2};
  const auto with = [&](auto member, index_t value) {
    kv_pool_shape shape = good;
    shape.*member = value;
    return shape;
  };
  POSENC_EXPECT_ERROR(kv_pool<float>(with(&kv_pool_shape::kv_heads, 0)), errc::invalid_shape, "kv_heads: is 0");
  POSENC_EXPECT_ERROR(kv_pool<float>(with(&kv_pool_shape::head_dim, 0)), errc::invalid_shape, "head_dim: is 0");
  POSENC_EXPECT_ERROR(kv_pool<float>(with(&kv_pool_shape::value_dim, -1)), errc::invalid_shape, "value_dim: is -1");
  POSENC_EXPECT_ERROR(kv_pool<float>(with(&kv_pool_shape::axes, 9)), errc::invalid_shape, "allowed: 1 to 8");
  POSENC_EXPECT_ERROR(kv_pool<float>(with(&kv_pool_shape::blocks, -1)), errc::invalid_shape, "blocks: is -1");

  kv_pool<float> pool(good);
  random_engine random(13);
  const auto k = random_buffer<float>(random, 1, 1, 65, 4);
  const any_encoding encoding = posenc::rope(posenc::frequency_ladder(4)),
                     other = posenc::rope(posenc::frequency_ladder(4, {.base = 500}));
  const auto append = [&](index_t block, index_t n, const any_encoding& e) {
    const auto x = attention_test::cut(k, 0, 0, n);
    pool.append(block, 0, x, x, posenc::token_range(n), e);
  };
  POSENC_EXPECT_ERROR(append(2, 1, encoding), errc::out_of_range, "block: is 2; allowed: 0 to 1");
  POSENC_EXPECT_ERROR(append(0, 65, encoding), errc::out_of_range, "65 tokens for block 0, which has 0; allowed: 64");
  append(0, 60, encoding);
  POSENC_EXPECT_ERROR(append(0, 5, encoding), errc::out_of_range, "which has 60; allowed: 4");
  POSENC_EXPECT_ERROR(append(1, 1, other), errc::mismatch, "rotated once");
  POSENC_EXPECT_ERROR(pool.clear(-1), errc::out_of_range, "block: is -1");
  EXPECT_EQ(pool.count(0), 60);
  pool.clear(0);
  append(1, 1, other);
}

}  // namespace
