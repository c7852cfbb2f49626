// SPDX-License-Identifier: Apache-2.0
// Where there are few rows, or few KV heads and one tile of rows, keys are split into ranges, so that cores do not wait. The
// split depends on shapes alone.
#include <posenc/attention/cached_attention.hpp>
#include <posenc/attention/mask/any_mask.hpp>
#include <posenc/attention/mask/masks.hpp>
#include <posenc/attention/workspace_size.hpp>

#include <atomic>
#include <functional>
#include <thread>
#include <type_traits>
#include <vector>

#include "attention/attention_support.hpp"
#include "attention/cache_support.hpp"

namespace {

using attention_test::cut;
using attention_test::index_t;
using attention_test::make_buffer;
using attention_test::random_buffer;
using posenc::any_mask;
using posenc::token_range;

/// `concurrency` threads; remembers how many were asked for.
struct executor {
  index_t threads;
  index_t* asked;

  index_t concurrency() const { return threads; }
  template <class F>
  void parallel_for(index_t n, F&& f) const {
    *asked = n;
    std::vector<std::thread> running;
    for (index_t i = 1; i < n; ++i) running.emplace_back([&f, i] { f(i); });
    if (n > 0) f(index_t{0});
    for (std::thread& t : running) t.join();
  }
};

template <class T>
class Ranges : public testing::Test {};
using types = testing::Types<float, double, posenc::half>;
TYPED_TEST_SUITE(Ranges, types);

TYPED_TEST(Ranges, KeepTwoCoresBusy) {
  using T = TypeParam;
  using real = posenc::compute_type<T>;
  struct shape {
    index_t heads, kv_heads, queries;
    bool splits;
  };
  constexpr index_t keys = 2060, dim = 4;
  for (const shape& s : {shape{1, 1, 1, true},
                         {1, 1, 192, true},
                         {1, 1, 193, false},
                         {6, 2, 21, true},
                         {3, 3, 17, true},
                         {4, 4, 17, false},
                         {4, 4, 16, true}}) {
    if (!std::is_same_v<T, float> && s.queries > 20) continue;  // one type for the large ones
    attention_test::random_engine random(static_cast<std::uint64_t>(s.heads * 1000 + s.queries));
    const auto k = random_buffer<real>(random, 1, s.kv_heads, keys, dim),
               v = random_buffer<real>(random, 1, s.kv_heads, keys, dim),
               q = random_buffer<real>(random, 1, s.heads, s.queries, dim),
               serial = make_buffer<real>(1, s.heads, s.queries, dim),
               parallel = make_buffer<real>(1, s.heads, s.queries, dim), one = make_buffer<real>(1, s.heads, 1, dim);
    const posenc::any_encoding encoding = attention_test::rope_and_alibi(s.heads, dim);
    const any_mask mask = posenc::causal{};
    posenc::kv_cache<T> cache({.kv_heads = s.kv_heads, .head_dim = dim});
    cache.append(k.read_only(), v.read_only(), token_range(keys), encoding);
    const auto run = [&](const auto& queries, const auto& out, index_t count, index_t first, index_t threads) {
      posenc::workspace memory;
      posenc::attention_options options;
      options.memory = &memory;
      index_t asked = 0;
      posenc::attention(queries, cache, out, token_range(count, first), encoding, mask, options,
                        executor{threads, &asked});
      const posenc::workspace_shape shape{.heads = s.heads,
                                          .kv_heads = s.kv_heads,
                                          .q_tokens = count,
                                          .k_tokens = keys,
                                          .head_dim = dim,
                                          .concurrency = threads,
                                          .cached = true};
      EXPECT_LE(memory.size(), posenc::workspace_size<T>(shape, encoding));
      return asked;
    };
    const index_t first = keys - s.queries;
    run(q.read_only(), serial.view, s.queries, first, 1);
    const index_t tasks = run(q.read_only(), parallel.view, s.queries, first, 64);
    const index_t tiles = (s.queries * s.heads / s.kv_heads + 191) / 192;
    EXPECT_EQ(tasks, s.kv_heads * (s.splits ? 2 : tiles)) << s.heads << " heads, " << s.queries << " queries";
    EXPECT_TRUE(attention_test::same_elements(serial, parallel));

    // Query by query: other tiles, the same result.
    for (const index_t t : {index_t{0}, s.queries / 2, s.queries - 1}) {
      run(cut(q, 0, t, 1), one.view, 1, first + t, 1);
      one.for_each([&](index_t, index_t h, index_t, index_t d) {
        EXPECT_TRUE(attention_test::within(one.view(0, h, 0, d), attention_test::to_double(serial.view(0, h, t, d)),
                                           4 * attention_test::tolerance<T>()))
            << s.heads << " heads, query " << t << " of " << s.queries;
      });
    }
  }
}

}  // namespace
