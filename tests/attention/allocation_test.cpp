// SPDX-License-Identifier: Apache-2.0
// The one file of this program that replaces operator new.
#include "support/allocations.hpp"

#include <gtest/gtest.h>
#include <posenc/attention/attention.hpp>
#include <posenc/attention/cached_attention.hpp>
#include <posenc/attention/kv_cache.hpp>
#include <posenc/attention/merge.hpp>
#include <posenc/attention/workspace_size.hpp>
#include <posenc/encoding/alibi.hpp>
#include <posenc/encoding/any_encoding.hpp>
#include <posenc/encoding/combine.hpp>
#include <posenc/encoding/nope.hpp>
#include <posenc/encoding/rope.hpp>
#include <posenc/encoding/t5_bucket.hpp>
#include <posenc/ladder/frequency_ladder.hpp>

#include "attention/attention_support.hpp"
#include "attention/mask_support.hpp"

namespace {

using attention_test::index_t;
using attention_test::make_buffer;
using attention_test::random_buffer;
using posenc::any_encoding;
using posenc::any_mask;
using posenc::token_range;
using posenc_test::allocations_of;

any_encoding some_encoding() { return posenc::combine(posenc::rope(posenc::frequency_ladder(8)), posenc::alibi(4)); }
any_mask some_mask() { return posenc::causal{} & posenc::window_of(100); }

template <class T>
class Allocations : public testing::Test {};
using types = testing::Types<float, double, posenc::half>;
TYPED_TEST_SUITE(Allocations, types);

// With a workspace that has grown, a call allocates nothing; without one, a fixed small number of blocks.
TYPED_TEST(Allocations, AttentionWithAWorkspace) {
  attention_test::random_engine random(1);
  const any_encoding encoding = some_encoding();
  const any_mask mask = some_mask();
  posenc::workspace memory;
  posenc::attention_options options;
  options.memory = &memory;
  for (const index_t q_len : {1, 100})
    for (const index_t kv_len : {100, 3000}) {
      const auto q = random_buffer<TypeParam>(random, 2, 4, q_len, 8),
                 k = random_buffer<TypeParam>(random, 2, 2, kv_len, 8),
                 v = random_buffer<TypeParam>(random, 2, 2, kv_len, 8), out = make_buffer<TypeParam>(2, 4, q_len, 8);
      const posenc::token_pair tokens(token_range(q_len, static_cast<double>(kv_len)), token_range(kv_len));
      const auto call = [&] { posenc::attention(q.view, k.view, v.view, out.view, tokens, encoding, mask, options); };
      call();
      EXPECT_EQ(allocations_of(call), 0) << q_len << " x " << kv_len;
      const auto without = [&] { posenc::attention(q.view, k.view, v.view, out.view, tokens, encoding, mask); };
      EXPECT_LE(allocations_of(without), 2);
    }
}

// A decoding step: the cache allocates when it opens a block, attention over it never.
TYPED_TEST(Allocations, DecodeStep) {
  using T = TypeParam;
  using real = posenc::compute_type<T>;
  attention_test::random_engine random(2);
  const any_encoding encoding = some_encoding();
  const any_mask mask = some_mask();
  const auto k = random_buffer<T>(random, 1, 2, 70, 8), v = random_buffer<T>(random, 1, 2, 70, 8);
  const auto q = random_buffer<real>(random, 1, 4, 1, 8), out = make_buffer<real>(1, 4, 1, 8);
  posenc::kv_cache<T> cache({.kv_heads = 2, .head_dim = 8});
  cache.append(k.view, v.view, token_range(70), encoding);
  posenc::workspace memory;
  posenc::attention_options options;
  options.memory = &memory;
  for (index_t step = 0; step < 50; ++step) {  // stays within the second block
    const auto tokens = token_range(1, static_cast<double>(70 + step));
    const posenc::tensor_view<const T> one_k(k.view.row(0, 0, step), {1, 2, 1, 8}, {0, k.view.stride(1), 8, 1});
    const posenc::tensor_view<const T> one_v(v.view.row(0, 0, step), {1, 2, 1, 8}, {0, v.view.stride(1), 8, 1});
    const long of_append = allocations_of([&] { cache.append(one_k, one_v, tokens, encoding); });
    const long of_attention =
        allocations_of([&] { posenc::attention(q.view, cache, out.view, tokens, encoding, mask, options); });
    EXPECT_EQ(of_append, 0) << step;
    if (step > 0) {
      EXPECT_EQ(of_attention, 0) << step;
    }
  }
}

// With blocks and a workspace from the start, no step allocates, whatever it appends.
TYPED_TEST(Allocations, DecodeFromTheStart) {
  using T = TypeParam;
  using real = posenc::compute_type<T>;
  attention_test::random_engine random(8);
  const any_encoding encoding = some_encoding();
  const any_mask mask = some_mask();
  constexpr index_t steps = 300;
  const auto k = random_buffer<T>(random, 1, 2, 1, 8), v = random_buffer<T>(random, 1, 2, 1, 8);
  const auto q = random_buffer<real>(random, 1, 4, 1, 8), out = make_buffer<real>(1, 4, 1, 8);
  posenc::kv_cache<T> cache({.kv_heads = 2, .head_dim = 8, .max_blocks = 6});
  cache.reserve_blocks(6);
  EXPECT_EQ(cache.used_blocks(), 0);
  EXPECT_EQ(cache.free_blocks(), 6);
  posenc::workspace memory(posenc::workspace_size<T>(
      {.heads = 4, .kv_heads = 2, .q_tokens = 1, .k_tokens = steps, .head_dim = 8, .cached = true}, encoding));
  posenc::attention_options options;
  options.memory = &memory;
  cache.append(k.view, v.view, token_range(1), encoding);  // makes the list of the sequence's blocks
  for (index_t step = 1; step < steps; ++step)
    EXPECT_EQ(allocations_of([&] {
                const auto tokens = token_range(1, static_cast<double>(step));
                cache.append(k.view, v.view, tokens, encoding);
                posenc::attention(q.view, cache, out.view, tokens, encoding, mask, options);
              }),
              0)
        << step;
  EXPECT_EQ(cache.used_blocks(), 5);
}

// A context that grows step by step does not make the workspace anew each time it needs a little more.
TEST(AllocationsOfGrowth, AreFew) {
  attention_test::random_engine random(9);
  const auto q = random_buffer<float>(random, 1, 1, 1, 8), out = make_buffer<float>(1, 1, 1, 8),
             k = random_buffer<float>(random, 1, 1, 64, 8);
  posenc::kv_cache<float> cache({.kv_heads = 1, .head_dim = 8});
  posenc::workspace memory;
  posenc::attention_options options;
  options.memory = &memory;
  long allocations = 0;
  for (index_t block = 0; block < 400; ++block) {
    cache.append(k.view, k.view, token_range(64, static_cast<double>(64 * block)), posenc::nope{});
    allocations += allocations_of([&] {
      posenc::attention(q.view, cache, out.view, token_range(1, 1e6), posenc::nope{}, posenc::causal{}, options);
    });
  }
  EXPECT_LE(allocations, 6);
}

// A cache that forgets takes its blocks from those it has forgotten, however long the text.
TYPED_TEST(Allocations, DecodeWithAWindow) {
  using T = TypeParam;
  using real = posenc::compute_type<T>;
  attention_test::random_engine random(7);
  const any_encoding encoding = some_encoding();
  const any_mask mask = some_mask();
  const auto k = random_buffer<T>(random, 2, 2, 200, 8), v = random_buffer<T>(random, 2, 2, 200, 8);
  const auto q = random_buffer<real>(random, 2, 4, 1, 8), out = make_buffer<real>(2, 4, 1, 8);
  posenc::kv_cache<T> cache({.kv_heads = 2, .head_dim = 8, .sequences = 2, .keep_last = 100});
  cache.append(k.view, v.view, token_range(200), encoding);
  posenc::workspace memory;
  posenc::attention_options options;
  options.memory = &memory;
  const std::vector<index_t> some = {1, 0};
  for (index_t step = 0; step < 300; ++step) {
    const auto tokens = token_range(1, static_cast<double>(200 + step));
    const auto at = step % 200;
    const posenc::tensor_view<const T> one_k(k.view.row(0, 0, at), {2, 2, 1, 8},
                                             {k.view.stride(0), k.view.stride(1), 8, 1}),
        one_v(v.view.row(0, 0, at), {2, 2, 1, 8}, {v.view.stride(0), v.view.stride(1), 8, 1});
    const long of_append = allocations_of([&] { cache.append(one_k, one_v, tokens, encoding); });
    const long of_attention = allocations_of(
        [&] { posenc::attention(q.view, cache.select(some), out.view, tokens, encoding, mask, options); });
    if (step > 0) {
      EXPECT_EQ(of_append, 0) << step;
      EXPECT_EQ(of_attention, 0) << step;
    }
  }
}

TEST(AllocationsOfCheck, NoneWhetherGoodOrBad) {
  attention_test::random_engine random(3);
  const any_encoding encoding = some_encoding();
  const any_mask mask = some_mask();
  const auto q = random_buffer<float>(random, 2, 4, 6, 8), k = random_buffer<float>(random, 2, 2, 500, 8),
             v = random_buffer<float>(random, 2, 2, 500, 8), out = make_buffer<float>(2, 4, 6, 8);
  std::vector<double> positions(500, 1.0);
  std::vector<float> table(32 * 4), sinks(4), lse(48);
  const any_encoding t5 = posenc::t5_bucket(table.data(), 4);
  posenc::attention_options options;
  options.sinks = sinks;
  options.lse = posenc::lse_view(lse.data(), 2, 4, 6);
  posenc::kv_cache<posenc::half> cache({.kv_heads = 2, .head_dim = 8, .sequences = 2});
  cache.append(0, posenc::view_bhtd(k.view.data_handle(), 1, 2, 100, 8),
               posenc::view_bhtd(v.view.data_handle(), 1, 2, 100, 8), token_range(100), encoding);
  int errors = 0;
  EXPECT_EQ(
      allocations_of([&] {
        const posenc::token_pair good(token_range(6, 494), posenc::token_positions(positions.data(), 500));
        errors += posenc::check(q.view, k.view, v.view, out.view, good, encoding, mask, options).has_value();
        errors += posenc::check(q.view, k.view, v.view, out.view, good, t5, posenc::causal{}, options).has_value();
        errors += posenc::check(q.view, cache, out.view, token_range(6, 100), encoding, mask, options).has_value();
      }),
      0);
  EXPECT_EQ(errors, 0);
  positions[499] = 0.5;
  EXPECT_EQ(
      allocations_of([&] {
        const posenc::token_pair fractional(token_range(6, 494), posenc::token_positions(positions.data(), 500));
        const posenc::token_pair miscounted(token_range(7), token_range(500));
        errors += posenc::check(q.view, k.view, v.view, out.view, miscounted, encoding, mask, options).has_value();
        errors += posenc::check(q.view, k.view, v.view, out.view, fractional, t5, mask, options).has_value();
        errors += posenc::check(q.view, k.view, v.view, k.view, fractional, encoding, mask, options).has_value();
        errors += posenc::check(q.view, cache, out.view, token_range(5, 100), encoding, mask, options).has_value();
        errors +=
            posenc::check(q.view, cache, out.view, token_range(6, 100), posenc::nope{}, mask, options).has_value();
      }),
      0);
  EXPECT_EQ(errors, 5);
}

// The documented size holds, and is no more than one packed copy, the tokens and a constant.
TYPED_TEST(Allocations, WorkspaceSizeIsABound) {
  using T = TypeParam;
  attention_test::random_engine random(5);
  const any_encoding encoding = some_encoding();
  for (const index_t sequences : {1, 3})
    for (const index_t q_len : {1, 4, 100, 500})
      for (const index_t kv_len : {1, 500, 5000}) {
        const posenc::workspace_shape shape{.sequences = sequences,
                                            .heads = 4,
                                            .kv_heads = 2,
                                            .q_tokens = sequences * q_len,
                                            .k_tokens = sequences * kv_len,
                                            .head_dim = 8};
        posenc::workspace memory;
        posenc::attention_options options;
        options.memory = &memory;
        const auto q = random_buffer<T>(random, sequences, 4, q_len, 8),
                   k = random_buffer<T>(random, sequences, 2, kv_len, 8),
                   v = random_buffer<T>(random, sequences, 2, kv_len, 8), out = make_buffer<T>(sequences, 4, q_len, 8);
        const posenc::token_pair tokens(token_range(q_len, static_cast<double>(kv_len)), token_range(kv_len));
        posenc::attention(q.view, k.view, v.view, out.view, tokens, encoding, some_mask(), options);
        EXPECT_LE(memory.size(), posenc::workspace_size<T>(shape, encoding)) << q_len << " x " << kv_len;
        EXPECT_GE(memory.size() * 2, posenc::workspace_size<T>(shape, encoding)) << q_len << " x " << kv_len;
      }
}

// Threads that would find nothing to do cost no memory.
TYPED_TEST(Allocations, ThreadsWithoutWorkCostNothing) {
  using T = TypeParam;
  struct many_threads : posenc::serial_executor {
    index_t threads = 1;
    index_t concurrency() const noexcept { return threads; }
  };
  attention_test::random_engine random(6);
  const any_encoding encoding = some_encoding();
  const auto q = random_buffer<T>(random, 1, 4, 3, 8), k = random_buffer<T>(random, 1, 2, 100, 8),
             v = random_buffer<T>(random, 1, 2, 100, 8), out = make_buffer<T>(1, 4, 3, 8);
  const posenc::token_pair tokens(token_range(3, 100), token_range(100));
  index_t size[2] = {};
  for (int i = 0; i < 2; ++i) {
    posenc::workspace memory;
    posenc::attention_options options;
    options.memory = &memory;
    many_threads executor;
    executor.threads = i == 0 ? 2 : 1000;  // one tile for each of two KV heads, two blocks of keys
    posenc::attention(q.view, k.view, v.view, out.view, tokens, encoding, some_mask(), options, executor);
    size[i] = memory.size();
    const posenc::workspace_shape shape{
        .heads = 4, .kv_heads = 2, .q_tokens = 3, .k_tokens = 100, .head_dim = 8, .concurrency = executor.threads};
    EXPECT_LE(size[i], posenc::workspace_size<T>(shape, encoding));
    EXPECT_LE(posenc::workspace_size<T>(shape, encoding), 4 * size[0]) << "the bound is none of 1000 threads";
  }
  EXPECT_EQ(size[0], size[1]);
}

// No thread is one thread.
TEST(WorkspaceSize, WithoutConcurrency) {
  posenc::workspace_shape shape{.heads = 4, .kv_heads = 2, .q_tokens = 300, .k_tokens = 300, .head_dim = 8};
  const index_t one = posenc::workspace_size<float>(shape, posenc::nope{});
  shape.concurrency = 0;
  EXPECT_EQ(posenc::workspace_size<float>(shape, posenc::nope{}), one);
}

TYPED_TEST(Allocations, AtMostOnePackedCopyAt16384Tokens) {
  using T = TypeParam;
  using real = posenc::compute_type<T>;
  attention_test::random_engine random(6);
  constexpr index_t tokens = 16384, dim = 64;
  const auto q = random_buffer<T>(random, 1, 1, tokens, dim), k = random_buffer<T>(random, 1, 1, tokens, dim),
             v = random_buffer<T>(random, 1, 1, tokens, dim), out = make_buffer<T>(1, 1, tokens, dim);
  posenc::workspace memory;
  posenc::attention_options options;
  options.memory = &memory;
  const any_encoding encoding = posenc::nope{};
  const any_mask mask = posenc::window_of(64);
  const auto call = [&] {
    posenc::attention(q.view, k.view, v.view, out.view, token_range(tokens), encoding, mask, options);
  };
  EXPECT_LE(allocations_of(call), 2);
  EXPECT_EQ(allocations_of(call), 0);
  // A matrix unit reads three parts of 16 bits of each float.
  const std::size_t number = posenc::detail::uses_matrix_unit<real>(dim, dim) ? 6 : sizeof(real);
  const auto copy = static_cast<index_t>(2 * tokens * dim * number);
  EXPECT_LE(memory.size(), copy + copy / 10 + (index_t{1} << 21)) << "a copy, its tokens and a constant";
}

TEST(AllocationsOfMerge, None) {
  attention_test::random_engine random(4);
  const auto a = random_buffer<float>(random, 1, 2, 3, 100), out = make_buffer<float>(1, 2, 3, 100);
  const std::vector<float> lse(6, 1.0f);
  EXPECT_EQ(allocations_of([&] { posenc::merge<float>({{a.view, lse.data()}, {a.view, lse.data()}}, out.view); }), 0);
}

}  // namespace
