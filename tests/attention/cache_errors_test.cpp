// SPDX-License-Identifier: Apache-2.0
// Bad input to a cache and to attention over it. What is refused leaves no trace.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/cached_attention.hpp>
#include <posenc/attention/kv_cache.hpp>
#include <posenc/encoding/alibi.hpp>
#include <posenc/encoding/any_encoding.hpp>
#include <posenc/encoding/nope.hpp>
#include <posenc/encoding/query_temperature.hpp>
#include <posenc/encoding/rope.hpp>
#include <posenc/encoding/rotated.hpp>
#include <posenc/encoding/t5_bucket.hpp>
#include <posenc/ladder/frequency_ladder.hpp>

#include "attention/attention_support.hpp"
#include "attention/mask_support.hpp"
#include "support/expect_error.hpp"

namespace {

using attention_test::index_t;
using attention_test::make_buffer;
using attention_test::random_buffer;
using posenc::any_encoding;
using posenc::errc;
using posenc::kv_cache;
using posenc::kv_cache_shape;
using posenc::token_range;
using posenc::view_bhtd;

posenc::rope rope_of(index_t dim, double base = 10000) {
  return posenc::rope(posenc::frequency_ladder(dim, {.base = base}));
}

TEST(CacheShape, ExtentsBelowOne) {
  const kv_cache_shape good{.kv_heads = 2, .head_dim = 4};
  EXPECT_EQ(kv_cache<float>(good).shape().value_dim, 4) << "0: as head_dim";
  const auto with = [&](auto member, index_t value) {
    kv_cache_shape shape = good;
    shape.*member = value;
    return shape;
  };
  for (const index_t n : {0, -1}) {
    POSENC_EXPECT_ERROR(kv_cache<float>(with(&kv_cache_shape::kv_heads, n)), errc::invalid_shape, "kv_heads: is");
    POSENC_EXPECT_ERROR(kv_cache<float>(with(&kv_cache_shape::head_dim, n)), errc::invalid_shape, "head_dim: is");
    POSENC_EXPECT_ERROR(kv_cache<float>(with(&kv_cache_shape::sequences, n)), errc::invalid_shape, "sequences: is");
    POSENC_EXPECT_ERROR(kv_cache<float>(with(&kv_cache_shape::axes, n)), errc::invalid_shape, "axes: is");
  }
  POSENC_EXPECT_ERROR(kv_cache<float>(with(&kv_cache_shape::value_dim, -1)), errc::invalid_shape, "value_dim: is -1");
  POSENC_EXPECT_ERROR(kv_cache<float>(with(&kv_cache_shape::axes, 9)), errc::invalid_shape, "allowed: 1 to 8");
}

class CacheErrors : public testing::Test {
 protected:
  static constexpr index_t kv_heads = 2, dim = 4, value_dim = 6, filled = 10;

  CacheErrors() {
    attention_test::random_engine random(1);
    for (float& x : memory_) x = static_cast<float>(attention_test::random_number(random));
    cache.append(0, keys(filled), values(filled), token_range(filled), encoding);
  }
  posenc::tensor_view<float> keys(index_t n) { return view_bhtd(memory_.data(), 1, kv_heads, n, dim); }
  posenc::tensor_view<float> values(index_t n) { return view_bhtd(memory_.data() + 500, 1, kv_heads, n, value_dim); }

  /// Appending fails, `check_append` says the same, and the cache is as before.
  template <class K, class V, class E>
  void expect_refused(index_t sequence, const K& k, const V& v, const posenc::token_view& tokens, const E& e, errc code,
                      const char* argument, const char* text) {
    static_assert(noexcept(cache.check_append(sequence, k, v, tokens, e)));
    const posenc::maybe_error value = cache.check_append(sequence, k, v, tokens, e);
    ASSERT_TRUE(value.has_value()) << text;
    EXPECT_EQ(value->code(), code) << value->what();
    EXPECT_STREQ(value->argument(), argument) << value->what();
    EXPECT_NE(std::string(value->what()).find(text), std::string::npos) << value->what() << "\nlacks: " << text;
    POSENC_EXPECT_ERROR(cache.append(sequence, k, v, tokens, e), code, value->what());
    EXPECT_EQ(cache.length(0), filled);
    EXPECT_EQ(cache.length(1), 0);
  }

  std::vector<float> memory_ = std::vector<float>(2000);
  posenc::rope encoding = rope_of(dim);
  kv_cache<float> cache{kv_cache_shape{.kv_heads = kv_heads, .head_dim = dim, .value_dim = value_dim, .sequences = 2}};
};

TEST_F(CacheErrors, Sequence) {
  for (const index_t s : {-1, 2})
    expect_refused(s, keys(1), values(1), token_range(1, 10), encoding, errc::out_of_range, "sequence",
                   "allowed: 0 to 1");
}

TEST_F(CacheErrors, Shapes) {
  const auto tokens = token_range(3, 10);
  expect_refused(0, view_bhtd(memory_.data(), 2, kv_heads, 3, dim), values(3), tokens, encoding, errc::invalid_shape,
                 "k", "2 batch rows");
  expect_refused(0, view_bhtd(memory_.data(), 1, 1, 3, dim), values(3), tokens, encoding, errc::invalid_shape, "k",
                 "1 heads; allowed: 2");
  expect_refused(0, view_bhtd(memory_.data(), 1, kv_heads, 3, 5), values(3), tokens, encoding, errc::invalid_shape, "k",
                 "5 dim; allowed: 4");
  expect_refused(0, keys(3), view_bhtd(memory_.data(), 2, kv_heads, 3, value_dim), tokens, encoding,
                 errc::invalid_shape, "v", "2 batch rows");
  expect_refused(0, keys(3), view_bhtd(memory_.data(), 1, 1, 3, value_dim), tokens, encoding, errc::invalid_shape, "v",
                 "1 heads; allowed: 2");
  expect_refused(0, keys(3), values(2), tokens, encoding, errc::invalid_shape, "v", "2 tokens; allowed: 3");
  expect_refused(0, keys(3), view_bhtd(memory_.data(), 1, kv_heads, 3, 4), tokens, encoding, errc::invalid_shape, "v",
                 "4 dim; allowed: 6");
  expect_refused(0, keys(3), values(3), token_range(2, 10), encoding, errc::invalid_shape, "tokens", "2 tokens");
}

TEST_F(CacheErrors, Layouts) {
  const auto tokens = token_range(3, 10);
  expect_refused(0, view_bhtd(static_cast<float*>(nullptr), 1, kv_heads, 3, dim), values(3), tokens, encoding,
                 errc::invalid_layout, "k", "null");
  const posenc::tensor_view<float> sparse(memory_.data(), {1, kv_heads, 3, value_dim}, {0, 100, 20, 2});
  expect_refused(0, keys(3), sparse, tokens, encoding, errc::invalid_layout, "v", "stride 2");
}

TEST_F(CacheErrors, Tokens) {
  const std::vector<double> numbers(20);
  const std::vector<std::int64_t> ids(20), bounds = {0, 3};
  expect_refused(0, keys(3), values(3), posenc::token_positions(numbers.data(), 3, 1, 2).with_order(numbers.data()),
                 encoding, errc::invalid_shape, "tokens", "2 position axes; allowed: the cache's 1");
  expect_refused(0, keys(3), values(3), token_range(3).with_cu_seqlens(bounds.data(), 1), encoding, errc::mismatch,
                 "tokens", "one sequence at a time");
  expect_refused(0, keys(3), values(3), token_range(3).with_documents(ids.data()), encoding, errc::mismatch, "tokens",
                 "document ids");
  expect_refused(0, keys(3), values(3), token_range(3, 1e300), encoding, errc::invalid_value, "tokens", "1e+300");
}

TEST_F(CacheErrors, AnotherEncoding) {
  const auto refused = [&](const any_encoding& other) {
    expect_refused(0, keys(3), values(3), token_range(3, 10), other, errc::mismatch, "encoding", "rotated once");
    expect_refused(1, keys(3), values(3), token_range(3), other, errc::mismatch, "encoding", "use the same encoding");
  };
  refused(rope_of(dim, 500));
  refused(posenc::nope{});
  refused(posenc::rope(posenc::frequency_ladder(dim), {.pairing = posenc::pairing::interleaved}));
  refused(posenc::rope(posenc::frequency_ladder(2)));
  refused(posenc::rope(posenc::frequency_ladder(2), {.offset = 2}));
  const posenc::frequency_ladder ladder(dim);
  const std::vector<double> frequencies(ladder.inv_freq().begin(), ladder.inv_freq().end());
  refused(posenc::rope(posenc::frequency_ladder::from_inv_freq(frequencies, 1.1)));
  refused(posenc::alibi(4));
  refused(posenc::rotated_keys(encoding));
  // The same rotation under another type is the same encoding.
  EXPECT_FALSE(cache.check_append(0, keys(3), values(3), token_range(3, 10), any_encoding(encoding)).has_value());
  EXPECT_FALSE(cache.check_append(0, keys(3), values(3), token_range(3, 10), posenc::rope(ladder)).has_value());
}

TEST_F(CacheErrors, RopeWiderThanTheHead) {
  kv_cache<float> fresh({.kv_heads = kv_heads, .head_dim = dim, .value_dim = value_dim});
  POSENC_EXPECT_ERROR(fresh.append(keys(3), values(3), token_range(3), rope_of(6)), errc::invalid_shape,
                      "heads have 4");
  EXPECT_EQ(fresh.length(), 0);
}

// ---- attention over the cache ----

class CachedAttentionErrors : public CacheErrors {
 protected:
  static constexpr index_t heads = 4, q_len = 3;

  CachedAttentionErrors() {
    cache.append(1, keys(4), values(4), token_range(4), encoding);
    before_ = memory_;
  }

  template <class E>
  void expect_refused(const E& e, errc code, const char* argument, std::initializer_list<const char*> texts) {
    static_assert(noexcept(posenc::check(q, cache, out, tokens, e, mask, options)));
    const posenc::maybe_error value = posenc::check(q, cache, out, tokens, e, mask, options);
    ASSERT_TRUE(value.has_value());
    EXPECT_EQ(value->code(), code) << value->what();
    EXPECT_STREQ(value->argument(), argument) << value->what();
    for (const char* text : texts)
      EXPECT_NE(std::string(value->what()).find(text), std::string::npos) << value->what() << "\nlacks: " << text;
    POSENC_EXPECT_ERROR(posenc::attention(q, cache, out, tokens, e, mask, options), code, value->what());
    EXPECT_EQ(std::memcmp(memory_.data(), before_.data(), memory_.size() * sizeof(float)), 0)
        << "something was written";
  }
  void expect_refused(errc code, const char* argument, std::initializer_list<const char*> texts) {
    expect_refused(encoding, code, argument, texts);
  }

  std::vector<float> before_;
  posenc::tensor_view<float> q = view_bhtd(memory_.data(), 2, heads, q_len, dim),
                             out = view_bhtd(memory_.data() + 1000, 2, heads, q_len, value_dim);
  posenc::token_view tokens = token_range(q_len, 10);
  posenc::any_mask mask = posenc::causal{};
  posenc::attention_options options;
};

TEST_F(CachedAttentionErrors, TheGoodCallIsGood) {
  EXPECT_FALSE(posenc::check(q, cache, out, tokens, encoding, mask, options).has_value());
  posenc::attention(q, cache, out, tokens, encoding, mask, options);
}

TEST_F(CachedAttentionErrors, Shapes) {
  const auto good_q = q, good_out = out;
  q = view_bhtd(memory_.data(), 2, 3, q_len, dim);
  expect_refused(errc::invalid_shape, "q", {"3 heads", "multiple of the cache's 2"});
  q = view_bhtd(memory_.data(), 2, heads, q_len, 5);
  expect_refused(errc::invalid_shape, "q", {"5 dim", "allowed: 4", "the cache"});
  q = view_bhtd(memory_.data(), 1, heads, q_len, dim);
  out = view_bhtd(memory_.data() + 1000, 1, heads, q_len, value_dim);
  expect_refused(errc::mismatch, "q", {"1 sequences", "the cache's 2"});
  q = good_q;
  expect_refused(errc::invalid_shape, "out", {"1 batch rows"});
  out = view_bhtd(memory_.data() + 1000, 2, heads, q_len, dim);
  expect_refused(errc::invalid_shape, "out", {"4 dim", "allowed: 6"});
  out = view_bhtd(memory_.data() + 50, 2, heads, q_len, value_dim);
  expect_refused(errc::invalid_layout, "out", {"overlaps q"});
  out = good_out;
  q = view_bhtd(static_cast<float*>(nullptr), 2, heads, q_len, dim);
  expect_refused(errc::invalid_layout, "q", {"null"});
}

TEST_F(CachedAttentionErrors, Tokens) {
  const std::vector<double> numbers(20);
  const std::vector<std::int64_t> ids(20);
  tokens = token_range(2);
  expect_refused(errc::invalid_shape, "tokens", {"2 tokens"});
  tokens = posenc::token_positions(numbers.data(), q_len, 1, 2).with_order(numbers.data());
  expect_refused(errc::invalid_shape, "tokens", {"2 position axes", "the cache's 1"});
  tokens = token_range(q_len).with_documents(ids.data());
  expect_refused(errc::mismatch, "tokens", {"document ids", "both or neither"});
}

TEST_F(CachedAttentionErrors, EncodingMaskAndOptions) {
  expect_refused(rope_of(dim, 500), errc::mismatch, "encoding", {"rotated once"});
  expect_refused(posenc::nope{}, errc::mismatch, "encoding", {"rotated once"});
  const std::vector<unsigned char> cells(100);
  mask = posenc::dense_mask<unsigned char>(cells.data(), q_len, 9);
  expect_refused(errc::invalid_shape, "dense_mask", {"extent 9 for keys", "allowed: 10"});
  mask = posenc::causal{};
  options.softcap = -1;
  expect_refused(errc::invalid_value, "options.softcap", {"is -1"});
}

TEST_F(CachedAttentionErrors, LseOverOtherMemory) {
  options.lse = posenc::lse_view(out.data_handle() + 1, 2, heads, q_len);
  expect_refused(errc::invalid_layout, "options.lse", {"overlaps out"});
  options.lse = posenc::lse_view(q.data_handle() + 1, 2, heads, q_len);
  expect_refused(errc::invalid_layout, "options.lse", {"overlaps q"});
}

// Keys that were appended under an encoding that rotates nothing can be read by any other that rotates none; what that one
// demands of positions holds for the cached tokens too.
TEST(CachedT5, FractionalPositionsInTheCache) {
  attention_test::random_engine random(2);
  const auto k = random_buffer<float>(random, 1, 1, 4, 4), q = random_buffer<float>(random, 1, 1, 1, 4),
             out = make_buffer<float>(1, 1, 1, 4);
  const std::vector<double> positions = {0, 1, 2.5, 3};
  const std::vector<float> table(32);
  const posenc::t5_bucket t5(table.data(), 1);
  const auto tokens = posenc::token_positions(positions.data(), 4);
  kv_cache<float> by_t5({.kv_heads = 1, .head_dim = 4}), by_nope({.kv_heads = 1, .head_dim = 4});
  POSENC_EXPECT_ERROR(by_t5.append(k.view, k.view, tokens, t5), errc::invalid_value, "2.5");
  by_nope.append(k.view, k.view, tokens, posenc::nope{});
  POSENC_EXPECT_ERROR(posenc::attention(q.view, by_nope, out.view, token_range(1, 4), t5, posenc::causal{}),
                      errc::invalid_value, "whole numbers");
}

// Masks read an order, so a cache wants one where rotations do without.
TEST(CacheOfSeveralAxes, WantsAnOrder) {
  attention_test::random_engine random(4);
  const auto k = random_buffer<float>(random, 1, 1, 2, 4), q = random_buffer<float>(random, 1, 1, 2, 4),
             out = make_buffer<float>(1, 1, 2, 4);
  const std::vector<double> positions = {0, 1, 5, 6}, order = {0, 1};
  const auto plain = posenc::token_positions(positions.data(), 2, 1, 2), ordered = plain.with_order(order.data());
  kv_cache<float> cache({.kv_heads = 1, .head_dim = 4, .axes = 2});
  POSENC_EXPECT_ERROR(cache.append(k.view, k.view, plain, posenc::nope{}), errc::mismatch,
                      "tokens: has 2 position axes and no order");
  cache.append(k.view, k.view, ordered, posenc::nope{});
  POSENC_EXPECT_ERROR(posenc::attention(q.view, cache, out.view, plain, posenc::nope{}, posenc::causal{}),
                      errc::mismatch, "tokens: has 2 position axes and no order");
}

// What only queries get leaves keys as they are.
TEST(CachedQueryTemperature, LeavesKeysAlone) {
  attention_test::random_engine random(3);
  const auto k = random_buffer<float>(random, 1, 1, 4, 4), q = random_buffer<float>(random, 1, 1, 1, 4),
             out = make_buffer<float>(1, 1, 1, 4);
  kv_cache<float> cache({.kv_heads = 1, .head_dim = 4});
  cache.append(k.view, k.view, token_range(4), posenc::nope{});
  posenc::attention(q.view, cache, out.view, token_range(1, 4), posenc::query_temperature{}, posenc::causal{});
  cache.append(k.view, k.view, token_range(4, 4), posenc::query_temperature{});
  EXPECT_EQ(cache.length(), 8);
}

}  // namespace
