// SPDX-License-Identifier: Apache-2.0
// Decoding over a cache is the same as attention over all tokens at once; and how a cache came to hold its tokens leaves no
// trace in it.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/cached_attention.hpp>
#include <posenc/attention/kv_cache.hpp>
#include <posenc/encoding/alibi.hpp>
#include <posenc/encoding/any_encoding.hpp>
#include <posenc/encoding/combine.hpp>
#include <posenc/encoding/nope.hpp>
#include <posenc/encoding/per_head.hpp>
#include <posenc/encoding/query_temperature.hpp>
#include <posenc/encoding/rope.hpp>
#include <posenc/ladder/frequency_ladder.hpp>

#include <numbers>
#include <utility>

#include "attention/attention_support.hpp"
#include "attention/cache_support.hpp"
#include "attention/mask_support.hpp"
#include "support/expect_error.hpp"

namespace {

using attention_test::buffer;
using attention_test::cut;
using attention_test::index_t;
using attention_test::make_buffer;
using attention_test::pick;
using attention_test::random_buffer;
using attention_test::rope_and_alibi;
using posenc::any_encoding;
using posenc::kv_cache;
using posenc::tensor_view;
using posenc::token_range;

template <class T>
class KvCache : public testing::Test {};
using cache_types = testing::Types<float, double, posenc::half, posenc::bfloat16>;
TYPED_TEST_SUITE(KvCache, cache_types);

TYPED_TEST(KvCache, DecodeEqualsPrefill) {
  using T = TypeParam;
  using real = posenc::compute_type<T>;
  constexpr index_t heads = 4, kv_heads = 2, dim = 16, value_dim = 12, prompt = 61, total = 140;
  attention_test::random_engine random(1);
  const auto q = random_buffer<real>(random, 1, heads, total, dim),
             k = random_buffer<real>(random, 1, kv_heads, total, dim),
             v = random_buffer<real>(random, 1, kv_heads, total, value_dim),
             whole = make_buffer<real>(1, heads, total, value_dim),
             stepwise = make_buffer<real>(1, heads, total, value_dim);
  const any_encoding encoding = rope_and_alibi(heads, dim);
  const posenc::any_mask mask = posenc::causal{} & posenc::sliding_window{.left = 90};
  posenc::attention(q.view, k.view, v.view, whole.view, token_range(total), encoding, mask);

  kv_cache<T> cache({.kv_heads = kv_heads, .head_dim = dim, .value_dim = value_dim});
  posenc::workspace memory;
  posenc::attention_options options;
  options.memory = &memory;
  for (index_t done = 0; done < total;) {
    const index_t n = done == 0 ? prompt : 1;
    const auto tokens = token_range(n, static_cast<double>(done));
    cache.append(cut(k, 0, done, n), cut(v, 0, done, n), tokens, encoding);
    EXPECT_EQ(cache.length(), done + n);
    const tensor_view<real> out(stepwise.view.row(0, 0, done), {1, heads, n, value_dim},
                                {0, stepwise.view.stride(1), stepwise.view.stride(2), 1});
    posenc::attention(cut(q, 0, done, n), cache, out, tokens, encoding, mask, options);
    done += n;
  }
  const double bound = 2 * attention_test::tolerance<T>();
  whole.for_each([&](index_t b, index_t h, index_t t, index_t d) {
    EXPECT_TRUE(
        attention_test::within(stepwise.view(b, h, t, d), attention_test::to_double(whole.view(b, h, t, d)), bound * 2))
        << "[" << h << ", " << t << ", " << d << "]: " << stepwise.view(b, h, t, d) << " and "
        << whole.view(b, h, t, d);
  });
}

// Where nothing is rotated and the compute type is stored, even the bits agree: a tile's blocks are the same ones.
TEST(KvCacheExact, WholePromptAtOnceGivesTheSameBits) {
  attention_test::random_engine random(2);
  const auto q = random_buffer<float>(random, 1, 2, 130, 8), k = random_buffer<float>(random, 1, 2, 130, 8),
             v = random_buffer<float>(random, 1, 2, 130, 8), a = make_buffer<float>(1, 2, 130, 8),
             b = make_buffer<float>(1, 2, 130, 8);
  const any_encoding encoding = rope_and_alibi(2, 8);
  posenc::attention(q.view, k.view, v.view, a.view, token_range(130), encoding, posenc::causal{});
  kv_cache<float> cache({.kv_heads = 2, .head_dim = 8});
  cache.append(k.view, v.view, token_range(130), encoding);
  posenc::attention(q.view, cache, b.view, token_range(130), encoding, posenc::causal{});
  EXPECT_TRUE(attention_test::same_elements(a, b));
}

// ---- blocks do not remember how they were filled ----

template <class T>
void expect_same_blocks(const kv_cache<T>& a, const kv_cache<T>& b) {
  attention_test::expect_same_blocks(a.all(), 0, b.all(), 0);
}

/// Appends `total` tokens, `step` at a time.
template <class T, class Data>
void append_in_steps(kv_cache<T>& cache, const buffer<Data>& k, const buffer<Data>& v, const posenc::token_list& list,
                     index_t step) {
  const posenc::rope rope(posenc::frequency_ladder(10), {.frequency_axis = {0, 1, 1, 0, 1}});
  for (index_t done = 0; done < list.count; done += step) {
    const index_t n = (std::min)(step, list.count - done);
    posenc::token_list some;
    some.axes = 2;
    some.count = n;
    const auto take = [&](auto& to, const auto& from, index_t at) {
      to.insert(to.end(), from.begin() + at + done, from.begin() + at + done + n);
    };
    take(some.positions, list.positions, 0);
    take(some.positions, list.positions, list.count);
    take(some.order, list.order, 0);
    take(some.documents, list.documents, 0);
    cache.append(cut(k, 0, done, n), cut(v, 0, done, n), some, rope);
  }
}

TYPED_TEST(KvCache, ChunksOfAnySizeGiveTheSameBlocks) {
  using T = TypeParam;
  using real = posenc::compute_type<T>;
  constexpr index_t total = 200;
  attention_test::random_engine random(3);
  auto k = random_buffer<real>(random, 1, 2, total, 13), v = random_buffer<real>(random, 1, 2, total, 21);
  attention_test::poison(v.view(0, 1, 77, 3), random);
  posenc::token_list list;
  list.axes = 2;
  list.count = total;
  for (index_t i = 0; i < 2 * total; ++i) list.positions.push_back(static_cast<double>(pick(random, 0, 400)) / 4);
  for (index_t i = 0; i < total; ++i) {
    list.order.push_back(static_cast<double>(i < 100 ? i : pick(random, 0, 500)));
    list.documents.push_back(pick(random, 0, 9) == 0 ? -1 : i / 70);
  }
  const posenc::kv_cache_shape shape{.kv_heads = 2, .head_dim = 13, .value_dim = 21, .axes = 2};
  kv_cache<T> whole(shape);
  append_in_steps(whole, k, v, list, total);
  for (const index_t step : {1, 3, 64, 100}) {
    kv_cache<T> cache(shape);
    append_in_steps(cache, k, v, list, step);
    expect_same_blocks(whole, cache);
    // And again in the memory that was in use before.
    cache.clear(0);
    EXPECT_EQ(cache.length(), 0);
    EXPECT_EQ(cache.blocks(0), 0);
    append_in_steps(cache, k, v, list, step);
    expect_same_blocks(whole, cache);
  }
  EXPECT_FALSE(whole.finite_values(0, 1, 1));
  EXPECT_TRUE(whole.finite_values(0, 1, 0));
  EXPECT_TRUE(whole.finite_values(0, 0, 1));
}

// The documented layout: keys dim-major, values in panels, both zero where there is no key.
TYPED_TEST(KvCache, BlockLayoutIsTheDocumentedOne) {
  using T = TypeParam;
  attention_test::random_engine random(4);
  const auto k = random_buffer<T>(random, 1, 2, 70, 5), v = random_buffer<T>(random, 1, 2, 70, 33);
  kv_cache<T> cache({.kv_heads = 2, .head_dim = 5, .value_dim = 33});
  cache.append(k.view, v.view, token_range(70), posenc::nope{});
  const posenc::kv_layout<T> layout = cache.layout();
  EXPECT_EQ(layout.padded_value_dim() % posenc::kv_layout<T>::width, 0);
  EXPECT_GE(layout.padded_value_dim(), 33);
  EXPECT_EQ(layout.elements(), layout.key_elements() + layout.value_elements());
  for (index_t h = 0; h < 2; ++h)
    for (index_t t = 0; t < 128; ++t) {
      const T* const keys = cache.block_data(0, t / 64, h);
      const T* const values = keys + layout.key_elements();
      for (index_t d = 0; d < 5; ++d)
        EXPECT_EQ(attention_test::to_double(keys[layout.key_index(t % 64, d)]),
                  t < 70 ? attention_test::to_double(k.view(0, h, t, d)) : 0.0);
      for (index_t d = 0; d < layout.padded_value_dim(); ++d)
        EXPECT_EQ(attention_test::to_double(values[layout.value_index(t % 64, d)]),
                  t < 70 && d < 33 ? attention_test::to_double(v.view(0, h, t, d)) : 0.0);
    }
}

// ---- several sequences ----

TYPED_TEST(KvCache, SequencesOfDifferentLengths) {
  using T = TypeParam;
  using real = posenc::compute_type<T>;
  constexpr index_t sequences = 4, heads = 4, kv_heads = 2, dim = 8;
  const index_t lengths[] = {5, 0, 130, 64};
  attention_test::random_engine random(5);
  const auto k = random_buffer<T>(random, sequences, kv_heads, 130, dim),
             v = random_buffer<T>(random, sequences, kv_heads, 130, dim);
  const auto q = random_buffer<real>(random, sequences, heads, 1, dim),
             out = make_buffer<real>(sequences, heads, 1, dim);
  const any_encoding encoding = rope_and_alibi(heads, dim);
  kv_cache<T> cache({.kv_heads = kv_heads, .head_dim = dim, .sequences = sequences});
  // In turns, so that sequences grow on their own.
  for (index_t done = 0; done < 130; done += 13)
    for (index_t s = 0; s < sequences; ++s) {
      const index_t n = (std::min)(index_t{13}, lengths[s] - done);
      if (n > 0)
        cache.append(s, cut(k, s, done, n), cut(v, s, done, n), token_range(n, static_cast<double>(done)), encoding);
    }
  std::vector<double> positions;
  for (index_t s = 0; s < sequences; ++s) {
    EXPECT_EQ(cache.length(s), lengths[s]);
    positions.push_back(static_cast<double>(lengths[s]));
  }
  EXPECT_EQ(cache.longest(), 130);
  const auto tokens = posenc::token_positions(positions.data(), 1, sequences);
  posenc::attention(q.view, cache, out.view, tokens, encoding, posenc::causal{});

  // Each alone, over a cache of its own.
  const auto alone = make_buffer<real>(sequences, heads, 1, dim);
  for (index_t s = 0; s < sequences; ++s) {
    kv_cache<T> own({.kv_heads = kv_heads, .head_dim = dim});
    own.append(cut(k, s, 0, lengths[s]), cut(v, s, 0, lengths[s]), token_range(lengths[s]), encoding);
    const tensor_view<real> row(alone.view.row(s, 0, 0), {1, heads, 1, dim},
                                {0, alone.view.stride(1), alone.view.stride(2), 1});
    posenc::attention(cut(q, s, 0, 1), own, row, token_range(1, positions[static_cast<std::size_t>(s)]), encoding,
                      posenc::causal{});
  }
  EXPECT_TRUE(attention_test::same_elements(out, alone));
  for (index_t h = 0; h < heads; ++h)
    for (index_t d = 0; d < dim; ++d) EXPECT_EQ(attention_test::to_double(out.view(1, h, 0, d)), 0) << "no keys";

  // The same queries as ragged sequences of one row.
  const auto ragged_q = make_buffer<real>(1, heads, sequences, dim),
             ragged_out = make_buffer<real>(1, heads, sequences, dim);
  ragged_q.for_each([&](index_t, index_t h, index_t s, index_t d) { ragged_q.view(0, h, s, d) = q.view(s, h, 0, d); });
  const std::vector<std::int64_t> bounds = {0, 1, 2, 3, 4};
  const auto ragged = posenc::token_positions(positions.data(), 4).with_cu_seqlens(bounds.data(), 4);
  posenc::attention(ragged_q.view, cache, ragged_out.view, ragged, encoding, posenc::causal{});
  ragged_out.for_each(
      [&](index_t, index_t h, index_t s, index_t d) { EXPECT_EQ(ragged_out.view(0, h, s, d), out.view(s, h, 0, d)); });
}

TEST(KvCacheSequences, RaggedQueriesOfDifferentNumbers) {
  constexpr index_t dim = 8;
  attention_test::random_engine random(6);
  const auto k = random_buffer<float>(random, 2, 1, 90, dim), v = random_buffer<float>(random, 2, 1, 90, dim);
  const auto q = random_buffer<float>(random, 1, 2, 12, dim), a = make_buffer<float>(1, 2, 12, dim),
             b = make_buffer<float>(1, 2, 12, dim);
  const any_encoding encoding = rope_and_alibi(2, dim);
  kv_cache<float> cache({.kv_heads = 1, .head_dim = dim, .sequences = 2});
  cache.append(0, cut(k, 0, 0, 90), cut(v, 0, 0, 90), token_range(90), encoding);
  cache.append(1, cut(k, 1, 0, 17), cut(v, 1, 0, 17), token_range(17), encoding);
  const auto list = posenc::ragged_sequences(std::vector<std::int64_t>{0, 10, 12}, std::vector<std::int64_t>{80, 15});
  posenc::attention(q.view, cache, a.view, list, encoding, posenc::causal{});
  const auto part = [](const buffer<float>& x, index_t first, index_t n) {
    return tensor_view<float>(x.view.row(0, 0, first), {1, 2, n, dim}, {0, x.view.stride(1), x.view.stride(2), 1});
  };
  posenc::attention(part(q, 0, 10), cut(k, 0, 0, 90), cut(v, 0, 0, 90), part(b, 0, 10),
                    {token_range(10, 80), token_range(90)}, encoding, posenc::causal{});
  posenc::attention(part(q, 10, 2), cut(k, 1, 0, 17), cut(v, 1, 0, 17), part(b, 10, 2),
                    {token_range(2, 15), token_range(17)}, encoding, posenc::causal{});
  EXPECT_TRUE(attention_test::same_elements(a, b));
}

// ---- what stands in a cache and is not seen ----

TYPED_TEST(KvCache, UnseenKeysMayHoldAnything) {
  using T = TypeParam;
  attention_test::random_engine random(7);
  const index_t total = 100;
  auto k = random_buffer<T>(random, 1, 1, total, 6), v = random_buffer<T>(random, 1, 1, total, 6);
  const auto q = random_buffer<T>(random, 1, 2, 3, 6), clean = make_buffer<T>(1, 2, 3, 6),
             dirty = make_buffer<T>(1, 2, 3, 6);
  std::vector<std::int64_t> documents(static_cast<std::size_t>(total));
  for (auto& d : documents) d = pick(random, -1, 1);
  const std::vector<std::int64_t> q_documents = {0, 0, 0};
  const auto q_tokens = token_range(3, 97).with_documents(q_documents.data());
  const auto k_tokens = token_range(total).with_documents(documents.data());
  for (const auto* out : {&clean, &dirty}) {
    if (out == &dirty)
      for (index_t j = 0; j < total; ++j)
        if (documents[static_cast<std::size_t>(j)] != 0)
          for (index_t d = 0; d < 6; ++d) {
            attention_test::poison(k.view(0, 0, j, d), random);
            attention_test::poison(v.view(0, 0, j, d), random);
          }
    kv_cache<T> cache({.kv_heads = 1, .head_dim = 6});
    cache.append(k.view, v.view, k_tokens, posenc::rope(posenc::frequency_ladder(6)));
    posenc::attention(q.view, cache, out->view, q_tokens, posenc::rope(posenc::frequency_ladder(6)),
                      posenc::bidirectional{});
  }
  EXPECT_TRUE(attention_test::same_elements(clean, dirty));
}

// A value that overflows in the cache's type is infinite there; where nobody sees it, it must not matter.
TEST(KvCacheHalf, ValuesThatOverflowWhenStored) {
  const auto k = make_buffer<float>(1, 1, 3, 2), v = make_buffer<float>(1, 1, 3, 2), q = make_buffer<float>(1, 1, 1, 2),
             out = make_buffer<float>(1, 1, 1, 2);
  for (const auto* b : {&k, &v, &q})
    b->for_each([&](index_t i, index_t h, index_t t, index_t d) { b->view(i, h, t, d) = 1; });
  v.view(0, 0, 2, 1) = 1e6f;
  k.view(0, 0, 2, 0) = -1e6f;
  kv_cache<posenc::half> cache({.kv_heads = 1, .head_dim = 2});
  cache.append(k.view, v.view, token_range(3), posenc::nope{});
  EXPECT_FALSE(cache.finite_values(0, 0, 0));
  posenc::attention(q.view, cache, out.view, token_range(1, 1), posenc::nope{}, posenc::causal{});
  EXPECT_EQ(out.view(0, 0, 0, 0), 1.0f);
  EXPECT_EQ(out.view(0, 0, 0, 1), 1.0f);
}

// A dense mask goes by the index of a key in its sequence.
TEST(KvCacheMask, DenseMaskCountsFromTheStartOfTheSequence) {
  attention_test::random_engine random(8);
  const auto k = random_buffer<float>(random, 1, 1, 90, 4), v = random_buffer<float>(random, 1, 1, 90, 4),
             q = random_buffer<float>(random, 1, 1, 2, 4), a = make_buffer<float>(1, 1, 2, 4),
             b = make_buffer<float>(1, 1, 2, 4);
  std::vector<unsigned char> cells(180);
  for (auto& c : cells) c = static_cast<unsigned char>(pick(random, 0, 1));
  const posenc::dense_mask<unsigned char> mask(cells.data(), 2, 90);
  kv_cache<float> cache({.kv_heads = 1, .head_dim = 4});
  for (index_t done = 0; done < 90; done += 30)
    cache.append(cut(k, 0, done, 30), cut(v, 0, done, 30), token_range(30, static_cast<double>(done)), posenc::nope{});
  posenc::attention(q.view, cache, a.view, token_range(2, 88), posenc::nope{}, mask);
  posenc::attention(q.view, k.view, v.view, b.view, {token_range(2, 88), token_range(90)}, posenc::nope{}, mask);
  EXPECT_TRUE(attention_test::same_elements(a, b));
}

// Clearing all sequences frees the cache for another encoding; clearing one does not.
TEST(KvCacheClear, ForgetsTheEncodingWithTheLastToken) {
  attention_test::random_engine random(9);
  const auto k = random_buffer<float>(random, 1, 1, 5, 4), v = random_buffer<float>(random, 1, 1, 5, 4);
  const posenc::rope one(posenc::frequency_ladder(4)), other(posenc::frequency_ladder(4, {.base = 500}));
  kv_cache<float> cache({.kv_heads = 1, .head_dim = 4, .sequences = 2});
  cache.append(0, k.view, v.view, token_range(5), one);
  cache.append(1, k.view, v.view, token_range(5), one);
  cache.clear(0);
  EXPECT_TRUE(cache.check_fingerprint(other).has_value());
  EXPECT_FALSE(cache.check_fingerprint(one).has_value());
  cache.clear(1);
  EXPECT_FALSE(cache.check_fingerprint(other).has_value());
  cache.append(0, k.view, v.view, token_range(5), other);
  EXPECT_TRUE(cache.check_fingerprint(one).has_value());
}

// A block that once held an infinity is as good as new when it is filled again, and takes the fast way.
TEST(KvCacheClear, BlocksStartAnew) {
  attention_test::random_engine random(11);
  auto k = random_buffer<float>(random, 1, 1, 5, 4), v = random_buffer<float>(random, 1, 1, 5, 4);
  kv_cache<float> cache({.kv_heads = 1, .head_dim = 4});
  const float kept = v.view(0, 0, 3, 1);
  attention_test::poison(v.view(0, 0, 3, 1), random);
  cache.append(k.view, v.view, token_range(5), posenc::nope{});
  EXPECT_FALSE(cache.finite_values(0, 0, 0));
  cache.clear(0);
  v.view(0, 0, 3, 1) = kept;
  cache.append(cut(k, 0, 0, 4), cut(v, 0, 0, 4), token_range(4), posenc::nope{});
  EXPECT_TRUE(cache.finite_values(0, 0, 0));
  const float* const values = cache.block_data(0, 0, 0) + cache.layout().key_elements();
  EXPECT_EQ(values[cache.layout().value_index(3, 1)], kept);
  EXPECT_EQ(values[cache.layout().value_index(4, 1)], 0.0f) << "a slot that is not in use any more";
}

#if defined(__cpp_exceptions)
/// Turns nothing; throws at a position.
struct throws_at {
  using acts_on = posenc::places<posenc::on_queries_keys>;
  double at;

  index_t rotation_size(posenc::rotation_shape) const { return 1; }
  template <class Real>
  void prepare_rotation(posenc::rotation_shape, posenc::position_span position, posenc::rotation_use, Real* row) const {
    if (position[0] == at) throw 1;
    row[0] = 1;
  }
  template <class Real>
  void apply_rotation(posenc::rotation_shape, const Real*, index_t, Real*) const {}
};

// An append that fails midway, in a later block even, has appended nothing.
TEST(KvCacheAppend, WhatThrowsAppendsNothing) {
  attention_test::random_engine random(12);
  const auto k = random_buffer<float>(random, 1, 1, 200, 4), v = random_buffer<float>(random, 1, 1, 200, 4),
             q = random_buffer<float>(random, 1, 1, 1, 4);
  const auto wanted = attention_test::make_buffer<float>(1, 1, 1, 4),
             out = attention_test::make_buffer<float>(1, 1, 1, 4);
  kv_cache<float> cache({.kv_heads = 1, .head_dim = 4}), other({.kv_heads = 1, .head_dim = 4});
  const throws_at never{-1}, late{150};
  other.append(k.view, v.view, token_range(200), never);
  cache.append(cut(k, 0, 0, 30), cut(v, 0, 0, 30), token_range(30), never);
  EXPECT_THROW(cache.append(cut(k, 0, 30, 170), cut(v, 0, 30, 170), token_range(170, 30), late), int);
  EXPECT_EQ(cache.length(), 30);
  EXPECT_EQ(cache.block_tokens(0, 0).count, 30);
  cache.append(cut(k, 0, 30, 170), cut(v, 0, 30, 170), token_range(170, 30), never);
  for (const auto* c : {&cache, &other})
    posenc::attention(q.view, *c, (c == &cache ? out : wanted).view, token_range(1, 200), never, posenc::causal{});
  EXPECT_TRUE(attention_test::same_elements(out, wanted));
}
#endif

TEST(KvCacheErrors, SequencesThatAreNotThere) {
  kv_cache<float> cache({.kv_heads = 1, .head_dim = 4, .sequences = 2});
  for (const index_t s : {-1, 2}) {
    POSENC_EXPECT_ERROR(cache.clear(s), posenc::errc::out_of_range, "sequence: is");
    POSENC_EXPECT_ERROR(static_cast<void>(cache.length(s)), posenc::errc::out_of_range, "sequence: is");
  }
  const kv_cache<float> moved(std::move(cache));
  EXPECT_EQ(moved.sequences(), 2);
}

// Encodings are told apart by what they do to keys, at more than one place, and not by their type.
TEST(KvCacheFingerprint, IsOfTheTurnedKeys) {
  attention_test::random_engine random(13);
  const auto k = random_buffer<float>(random, 1, 1, 3, 8), v = random_buffer<float>(random, 1, 1, 3, 8);
  const posenc::rope rope{posenc::frequency_ladder(8)};
  kv_cache<float> cache({.kv_heads = 1, .head_dim = 8});
  cache.append(k.view, v.view, token_range(3), rope);
  EXPECT_FALSE(cache.check_fingerprint(combine(rope, posenc::query_temperature{})));
  EXPECT_FALSE(cache.check_fingerprint(posenc::per_head(1, [&](index_t) { return rope; })));
  EXPECT_TRUE(cache.check_fingerprint(posenc::nope{}));
  const double full_turns[] = {2 * std::numbers::pi / 12345, 2 * std::numbers::pi / 5, 2 * std::numbers::pi / 3, 0};
  kv_cache<float> turned({.kv_heads = 1, .head_dim = 8});
  turned.append(k.view, v.view, token_range(3), posenc::rope{posenc::frequency_ladder::from_inv_freq(full_turns)});
  EXPECT_TRUE(turned.check_fingerprint(posenc::nope{}));
}

TEST(KvCacheAppend, NoTokensChangeNothing) {
  kv_cache<float> cache({.kv_heads = 1, .head_dim = 4});
  const auto none = posenc::view_bhtd(static_cast<float*>(nullptr), 1, 1, 0, 4);
  cache.append(none, none, token_range(0), posenc::rope(posenc::frequency_ladder(4)));
  EXPECT_EQ(cache.length(), 0);
  EXPECT_FALSE(cache.check_fingerprint(posenc::nope{}).has_value()) << "no keys, no encoding";
  // Attention over nothing: zero.
  attention_test::random_engine random(10);
  const auto q = random_buffer<float>(random, 1, 3, 2, 4), out = random_buffer<float>(random, 1, 3, 2, 4);
  posenc::attention(q.view, cache, out.view, token_range(2), posenc::nope{}, posenc::causal{});
  for (const double x : out.numbers()) EXPECT_EQ(x, 0);
}

}  // namespace
