// SPDX-License-Identifier: Apache-2.0
// What must not change a bit of the result: the number of threads and who runs them, the addresses of the data, the
// numbers in documents that are not seen, a workspace that was used before.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/cached_attention.hpp>
#include <posenc/attention/kv_cache.hpp>
#include <posenc/core/eigen_executor.hpp>
#include <posenc/encoding/alibi.hpp>
#include <posenc/encoding/any_encoding.hpp>
#include <posenc/encoding/combine.hpp>
#include <posenc/encoding/nope.hpp>
#include <posenc/encoding/rope.hpp>
#include <posenc/ladder/frequency_ladder.hpp>

#include <functional>
#include <memory>
#include <thread>

#include "attention/attention_support.hpp"
#include "attention/mask_support.hpp"

namespace {

using attention_test::buffer;
using attention_test::index_t;
using attention_test::make_buffer;
using attention_test::random_buffer;
using posenc::any_encoding;
using posenc::any_mask;
using posenc::token_range;

/// Any executor behind one type, so that the kernel is compiled once.
struct erased_executor {
  index_t threads;
  std::function<void(index_t, const std::function<void(index_t)>&)> run;

  index_t concurrency() const { return threads; }
  template <class F>
  void parallel_for(index_t n, F&& f) const {
    run(n, [&f](index_t i) { f(i); });
  }
};

/// Real threads, one a task.
erased_executor threads(index_t count) {
  return {count, [](index_t n, const std::function<void(index_t)>& f) {
            std::vector<std::thread> running;
            for (index_t i = 0; i < n; ++i) running.emplace_back([&f, i] { f(i); });
            for (std::thread& t : running) t.join();
          }};
}
/// Says that it has `count` threads, and runs the tasks one after another, the last one first.
erased_executor backwards(index_t count) {
  return {count, [](index_t n, const std::function<void(index_t)>& f) {
            for (index_t i = n; i > 0; --i) f(i - 1);
          }};
}

struct shape {
  const char* name;
  index_t batch, heads, kv_heads, q_len, kv_len;
};
// Many tiles; one tile; few rows against many keys, which are split into ranges; no queries; tiles enough that two threads
// take four of the heads at a time.
constexpr shape shapes[] = {{"prefill", 2, 4, 2, 110, 150},
                            {"small", 1, 2, 1, 3, 20},
                            {"decode over many keys", 2, 4, 2, 1, 5000},
                            {"nothing", 2, 4, 2, 0, 9},
                            {"heads in turns", 1, 12, 6, 770, 100}};

template <class T>
struct problem {
  buffer<T> q, k, v;
  posenc::token_pair tokens;
  any_encoding encoding;
  any_mask mask = posenc::causal{} & (posenc::sliding_window{.left = 4000} | posenc::prefix{.length = 9});
  std::vector<float> sinks;

  problem(attention_test::random_engine& random, const shape& s, index_t dim)
      : q(random_buffer<T>(random, s.batch, s.heads, s.q_len, dim)),
        k(random_buffer<T>(random, s.batch, s.kv_heads, s.kv_len, dim)),
        v(random_buffer<T>(random, s.batch, s.kv_heads, s.kv_len, dim)),
        tokens(token_range(s.q_len, static_cast<double>(s.kv_len - s.q_len)), token_range(s.kv_len)),
        encoding(posenc::combine(posenc::rope(posenc::frequency_ladder(dim)), posenc::alibi(s.heads))),
        sinks(static_cast<std::size_t>(s.heads), 0.5f) {}

  struct result {
    buffer<T> out;
    std::vector<double> lse;
  };
  template <class Executor>
  result run(const Executor& executor, posenc::workspace* memory = nullptr) const {
    result r{make_buffer<T>(q.view.batch(), q.view.heads(), q.view.tokens(), v.view.dim()), {}};
    r.lse.resize(static_cast<std::size_t>(q.view.batch() * q.view.heads() * q.view.tokens()));
    posenc::attention_options options;
    options.lse = posenc::lse_view(r.lse.data(), q.view.batch(), q.view.heads(), q.view.tokens());
    options.sinks = sinks;
    options.memory = memory;
    posenc::attention(q.view, k.view, v.view, r.out.view, tokens, encoding, mask, options, executor);
    return r;
  }
};

template <class T>
void expect_same(const typename problem<T>::result& a, const typename problem<T>::result& b, const std::string& what) {
  EXPECT_TRUE(attention_test::same_elements(a.out, b.out)) << what;
  ASSERT_EQ(a.lse.size(), b.lse.size()) << what;
  for (std::size_t i = 0; i < a.lse.size(); ++i) EXPECT_TRUE(attention_test::same_bits(a.lse[i], b.lse[i])) << what;
}

template <class T>
class Executors : public testing::Test {};
using types = testing::Types<float, double, posenc::bfloat16>;
TYPED_TEST_SUITE(Executors, types);

TYPED_TEST(Executors, DoNotChangeABit) {
  attention_test::random_engine random(1);
  Eigen::ThreadPool pool(3);
  const posenc::eigen_executor eigen(pool);
  for (const shape& s : shapes) {
    const problem<TypeParam> p(random, s, 10);
    const auto serial = p.run(posenc::serial_executor{});
    for (const index_t count : {1, 2, 3, 7}) {
      expect_same<TypeParam>(serial, p.run(threads(count)), std::string(s.name) + ", threads " + std::to_string(count));
      expect_same<TypeParam>(serial, p.run(backwards(count)),
                             std::string(s.name) + ", backwards " + std::to_string(count));
    }
    for (int i = 0; i < 3; ++i) expect_same<TypeParam>(serial, p.run(eigen), std::string(s.name) + ", Eigen's pool");
  }
}

TEST(ExecutorsOverCache, DoNotChangeABit) {
  attention_test::random_engine random(2);
  const auto k = random_buffer<float>(random, 1, 2, 3000, 8), v = random_buffer<float>(random, 1, 2, 3000, 8),
             q = random_buffer<float>(random, 1, 4, 2, 8), a = make_buffer<float>(1, 4, 2, 8),
             b = make_buffer<float>(1, 4, 2, 8);
  const any_encoding encoding = posenc::rope(posenc::frequency_ladder(8));
  posenc::kv_cache<float> cache({.kv_heads = 2, .head_dim = 8});
  cache.append(k.view, v.view, token_range(3000), encoding);
  const auto tokens = token_range(2, 2999);
  const any_mask mask = posenc::causal{};
  posenc::attention(q.view, cache, a.view, tokens, encoding, mask);
  for (const index_t count : {2, 3, 7}) {
    posenc::attention(q.view, cache, b.view, tokens, encoding, mask, {}, threads(count));
    EXPECT_TRUE(attention_test::same_elements(a, b)) << count;
  }
}

// ---- addresses ----

/// A copy of a tensor `offset` elements past a 64-byte boundary.
template <class T>
struct placed {
  std::vector<T> memory;
  posenc::tensor_view<T> view;

  placed(const buffer<T>& from, index_t offset) : memory(from.memory.size() + 200) {
    T* base = memory.data();
    while (reinterpret_cast<std::uintptr_t>(base) % 64 != 0) ++base;
    base += offset;
    std::copy(from.memory.begin(), from.memory.end(), base);
    view = {base,
            {from.view.extent(0), from.view.extent(1), from.view.extent(2), from.view.extent(3)},
            {from.view.stride(0), from.view.stride(1), from.view.stride(2), 1}};
  }
};

template <class T>
class Alignment : public testing::Test {};
using all_types = testing::Types<float, double, posenc::half, posenc::bfloat16>;
TYPED_TEST_SUITE(Alignment, all_types);

TYPED_TEST(Alignment, DoesNotChangeABit) {
  attention_test::random_engine random(3);
  for (const shape& s : {shape{"few rows", 1, 2, 1, 3, 70}, shape{"many rows", 1, 2, 1, 99, 70}}) {
    const problem<TypeParam> p(random, s, 22);
    const auto expected = p.run(posenc::serial_executor{});
    constexpr auto last = static_cast<index_t>(64 / sizeof(TypeParam));
    for (index_t offset = 0; offset < last; offset += sizeof(TypeParam) == 2 ? 3 : 1) {
      const placed<TypeParam> q(p.q, offset), k(p.k, last - 1 - offset), v(p.v, offset / 2), out(expected.out, offset);
      std::vector<double> lse(expected.lse.size());
      posenc::attention_options options;
      options.lse = posenc::lse_view(lse.data(), 1, 2, s.q_len);
      options.sinks = p.sinks;
      for (index_t i = 0; i < s.q_len * 2 * 22; ++i) out.view.data_handle()[i] = TypeParam(9);
      posenc::attention(q.view, k.view, v.view, out.view, p.tokens, p.encoding, p.mask, options);
      bool same = lse == expected.lse;
      expected.out.for_each([&](index_t b, index_t h, index_t t, index_t d) {
        same = same && attention_test::same_bits(out.view(b, h, t, d), expected.out.view(b, h, t, d));
      });
      EXPECT_TRUE(same) << s.name << ", offset " << offset;
    }
  }
}

// ---- other documents ----

template <class T>
class Documents : public testing::Test {};
TYPED_TEST_SUITE(Documents, all_types);

// Three documents in a row, also of lengths that share blocks and tiles. Changing all of one leaves the others' rows alone.
TYPED_TEST(Documents, DoNotReachEachOther) {
  attention_test::random_engine random(4);
  const std::vector<int> lengths = {40, 75, 30};
  const posenc::token_list tokens = posenc::packed_documents(lengths);
  const index_t n = tokens.count;
  const any_encoding encoding = posenc::rope(posenc::frequency_ladder(8));
  const auto q = random_buffer<TypeParam>(random, 1, 2, n, 8);
  auto k = random_buffer<TypeParam>(random, 1, 1, n, 8), v = random_buffer<TypeParam>(random, 1, 1, n, 8);
  const auto run = [&](const any_mask& mask) {
    auto out = make_buffer<TypeParam>(1, 2, n, 8);
    posenc::attention(q.view, k.view, v.view, out.view, tokens, encoding, mask);
    return out;
  };
  for (const any_mask& mask :
       {any_mask(posenc::causal{}), any_mask(posenc::bidirectional{}), any_mask(!posenc::causal{})}) {
    const auto before = run(mask);
    const auto kept_k = k.memory, kept_v = v.memory;
    for (int change = 0; change < 2; ++change) {
      for (index_t t = 40; t < 115; ++t)
        for (index_t d = 0; d < 8; ++d) {
          if (change == 0) {
            k.view(0, 0, t, d) = TypeParam(7);
            v.view(0, 0, t, d) = TypeParam(-3);
          } else {
            attention_test::poison(k.view(0, 0, t, d), random);
            attention_test::poison(v.view(0, 0, t, d), random);
          }
        }
      const auto after = run(mask);
      bool same = true, changed = false;
      after.for_each([&](index_t, index_t h, index_t t, index_t d) {
        const bool equal = attention_test::same_bits(before.view(0, h, t, d), after.view(0, h, t, d));
        (t >= 40 && t < 115 ? changed : same) = t >= 40 && t < 115 ? changed || !equal : same && equal;
      });
      EXPECT_TRUE(same) << "another document's numbers got in, change " << change;
      EXPECT_TRUE(changed);
    }
    k.memory = kept_k;
    v.memory = kept_v;
    k.view = {k.memory.data(), {1, 1, n, 8}, {n * 8, n * 8, 8, 1}};
    v.view = {v.memory.data(), {1, 1, n, 8}, {n * 8, n * 8, 8, 1}};
  }
}

// Packed documents give what each gives alone.
TEST(DocumentsPacked, EqualSeparateCalls) {
  attention_test::random_engine random(5);
  const std::vector<int> lengths = {40, 1, 75, 30};
  const posenc::token_list tokens = posenc::packed_documents(lengths);
  const any_encoding encoding = posenc::combine(posenc::rope(posenc::frequency_ladder(8)), posenc::alibi(2));
  const auto q = random_buffer<float>(random, 1, 2, tokens.count, 8),
             k = random_buffer<float>(random, 1, 1, tokens.count, 8),
             v = random_buffer<float>(random, 1, 1, tokens.count, 8), out = make_buffer<float>(1, 2, tokens.count, 8);
  posenc::attention(q.view, k.view, v.view, out.view, tokens, encoding, posenc::causal{});
  index_t first = 0;
  for (const int length : lengths) {
    const auto part = [&](const buffer<float>& x) {
      return posenc::tensor_view<float>(x.view.row(0, 0, first), {1, x.view.heads(), length, 8},
                                        {0, x.view.stride(1), x.view.stride(2), 1});
    };
    const auto alone = make_buffer<float>(1, 2, length, 8);
    posenc::attention(part(q), part(k), part(v), alone.view, token_range(length), encoding, posenc::causal{});
    alone.for_each([&](index_t, index_t h, index_t t, index_t d) {
      EXPECT_TRUE(
          attention_test::within(out.view(0, h, first + t, d), static_cast<double>(alone.view(0, h, t, d)), 8e-6));
    });
    first += length;
  }
}

// ---- a workspace that was used before ----

TEST(Workspace, WhatItHoldsDoesNotMatter) {
  attention_test::random_engine random(6);
  posenc::workspace memory;
  for (int round = 0; round < 2; ++round)
    for (const shape& s : shapes)
      for (const index_t dim : {10, 2, 34}) {
        const problem<float> p(random, s, dim);
        const auto expected = p.run(posenc::serial_executor{});
        std::memset(memory.take(1 << 22), round == 0 ? 0xff : 0x7f, 1 << 22);
        expect_same<float>(expected, p.run(posenc::serial_executor{}, &memory), s.name);
        const problem<double> other(random, s, dim);  // one memory for all types
        expect_same<double>(other.run(posenc::serial_executor{}), other.run(posenc::serial_executor{}, &memory),
                            s.name);
      }
}

TEST(Workspace, GrowsToTheLargestNeedAndMoves) {
  attention_test::random_engine random(7);
  posenc::workspace memory;
  EXPECT_EQ(memory.size(), 0);
  const problem<float> small(random, shapes[1], 10), large(random, shapes[0], 10);
  small.run(posenc::serial_executor{}, &memory);
  const index_t first = memory.size();
  EXPECT_GT(first, 0);
  large.run(posenc::serial_executor{}, &memory);
  const index_t second = memory.size();
  EXPECT_GT(second, first);
  small.run(posenc::serial_executor{}, &memory);
  EXPECT_EQ(memory.size(), second);
  posenc::workspace moved = std::move(memory);
  EXPECT_EQ(moved.size(), second);
  expect_same<float>(small.run(posenc::serial_executor{}), small.run(posenc::serial_executor{}, &moved), "moved");
}

}  // namespace
