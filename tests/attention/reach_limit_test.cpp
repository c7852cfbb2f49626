// SPDX-License-Identifier: Apache-2.0
// Blocks that a bounded bias makes weigh nothing are left out, and not a bit of the result tells.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/cached_attention.hpp>
#include <posenc/attention/kv_cache.hpp>
#include <posenc/attention/mask/masks.hpp>
#include <posenc/encoding/alibi.hpp>
#include <posenc/encoding/combine.hpp>
#include <posenc/encoding/rope.hpp>
#include <posenc/encoding/rotated.hpp>
#include <posenc/encoding/t5_bucket.hpp>

#include <atomic>

#include "attention/attention_support.hpp"

namespace {

using attention_test::buffer;
using attention_test::index_t;
using attention_test::make_buffer;
using attention_test::random_buffer;

std::atomic<long> biases{0};

/// ALiBi that counts; Bounded: with the bound, too.
template <bool Bounded>
struct counted_alibi {
  using acts_on = posenc::places<posenc::on_scores>;
  posenc::alibi inner;

  template <class Keys>
  auto bias(const Keys& keys, index_t head) const {
    ++biases;
    return inner.bias(keys, head);
  }
  double largest_bias(double low, double high, index_t head) const noexcept
    requires Bounded
  {
    return inner.largest_bias(low, high, head);
  }
  index_t bias_axis() const noexcept
    requires Bounded
  {
    return inner.bias_axis();
  }
};

template <class T>
class Reach : public testing::Test {};
using types = testing::Types<float, double, posenc::half, posenc::bfloat16>;
TYPED_TEST_SUITE(Reach, types);

constexpr index_t heads = 4, kv_heads = 2, tokens = 900, dim = 10;

template <class T>
struct problem {
  buffer<T> q, k, v;

  explicit problem(attention_test::random_engine& random, index_t queries)
      : q(random_buffer<T>(random, 1, heads, queries, dim)),
        k(random_buffer<T>(random, 1, kv_heads, tokens, dim)),
        v(random_buffer<T>(random, 1, kv_heads, tokens, dim)) {}

  struct result {
    buffer<T> out;
    std::vector<double> lse;
    long biases;
  };
  template <class E, class M>
  result run(const E& encoding, const M& mask, double softcap, bool cached) const {
    const index_t queries = q.view.tokens();
    result r{make_buffer<T>(1, heads, queries, dim), std::vector<double>(static_cast<std::size_t>(heads * queries)), 0};
    posenc::attention_options options;
    options.lse = posenc::lse_view(r.lse.data(), 1, heads, queries);
    options.softcap = softcap;
    const posenc::token_view of_q = posenc::token_range(queries, static_cast<double>(tokens - queries));
    biases = 0;
    if (cached) {
      posenc::kv_cache<T> cache({.kv_heads = kv_heads, .head_dim = dim});
      cache.append(k.view, v.view, posenc::token_range(tokens), encoding);
      posenc::attention(q.view, cache, r.out.view, of_q, encoding, mask, options);
    } else {
      posenc::attention(q.view, k.view, v.view, r.out.view, {of_q, posenc::token_range(tokens)}, encoding, mask,
                        options);
    }
    r.biases = biases;
    return r;
  }
};

TYPED_TEST(Reach, LeavesOutBlocksAndChangesNoBit) {
  attention_test::random_engine random(1);
  for (const index_t queries : {index_t{1}, index_t{40}, tokens})
    for (const bool is_signed : {false, true})
      for (const double softcap : {0.0, 3.0})
        for (const bool cached : {false, true}) {
          const bool large = queries == tokens;  // half of the pairs then: sanitizers and emulators take their time
          if (large && is_signed != (softcap > 0)) continue;
          const problem<TypeParam> p(random, queries);
          const std::vector<double> slopes = {1, 0.8, 2, 1.5};
          const posenc::alibi alibi(slopes, {.is_signed = is_signed});
          const auto compare = [&](const auto& mask, bool saves) {
            const auto all = p.run(counted_alibi<false>{alibi}, mask, softcap, cached);
            const auto near = p.run(counted_alibi<true>{alibi}, mask, softcap, cached);
            // The order of blocks is another one, and so is the rounding.
            for (std::size_t i = 0; i < all.lse.size(); ++i) EXPECT_NEAR(all.lse[i], near.lse[i], 1e-5);
            all.out.for_each([&](index_t b, index_t h, index_t t, index_t d) {
              const double x = attention_test::to_double(all.out.view(b, h, t, d));
              EXPECT_NEAR(x, attention_test::to_double(near.out.view(b, h, t, d)),
                          sizeof(TypeParam) == 2 ? 2e-2 : 4e-6);
            });
            // Without rotation, few queries over plain tensors read keys before a bound on them is known.
            if (saves && (cached || queries == tokens)) {
              EXPECT_LT(near.biases, all.biases * 3 / 4);
            }
          };
          if (!large || cached) compare(posenc::causal{}, true);
          if (!large || !cached) compare(posenc::bidirectional{}, true);
        }
}

// The same walk with and without leaving out: a bound that is too loose to leave anything out.
struct loose_alibi : counted_alibi<true> {
  double largest_bias(double, double, index_t) const noexcept { return 0; }
};

TYPED_TEST(Reach, IsExactlyAsIfNothingWereLeftOut) {
  attention_test::random_engine random(2);
  for (const index_t queries : {index_t{3}, index_t{70}, tokens}) {
    const problem<TypeParam> p(random, queries);
    const posenc::alibi alibi(std::vector<double>{1, 0.8, 2, 1.5});
    const counted_alibi<true> tight{alibi};
    const loose_alibi loose{{alibi}};
    for (const bool cached : {false, true}) {
      const auto all = p.run(loose, posenc::causal{}, 0, cached), near = p.run(tight, posenc::causal{}, 0, cached);
      EXPECT_TRUE(attention_test::same_elements(all.out, near.out)) << queries;
      EXPECT_EQ(all.lse, near.lse) << queries;
    }
  }
}

// Combined with encodings that add no biases, and with others that are bounded, the bound stays.
TEST(ReachOfSums, LeaveOutBlocksToo) {
  attention_test::random_engine random(4);
  const problem<float> p(random, 40);
  const posenc::alibi alibi(std::vector<double>{1, 0.8, 2, 1.5}), gentle(std::vector<double>{0.1, 0.1, 0.2, 0.3});
  const posenc::rope rope{posenc::frequency_ladder(dim)};
  const auto compare = [&](const auto& tight, const auto& loose, bool saves) {
    const auto near = p.run(tight, posenc::causal{}, 0, true), all = p.run(loose, posenc::causal{}, 0, true);
    EXPECT_TRUE(attention_test::same_elements(all.out, near.out));
    EXPECT_EQ(near.biases < all.biases * 3 / 4, saves);
  };
  const counted_alibi<true> tight{alibi};
  const loose_alibi loose{{alibi}};
  compare(posenc::combine(rope, tight), posenc::combine(rope, loose), true);
  compare(posenc::combine(gentle, tight), posenc::combine(gentle, loose), true);
  compare(posenc::rotated_keys(tight), posenc::rotated_keys(loose), true);
  compare(posenc::rotated(posenc::combine(rope, tight)), posenc::rotated(posenc::combine(rope, loose)), true);
  static_assert(!posenc::bounded_bias<decltype(posenc::combine(tight, std::declval<posenc::t5_bucket>()))>);
}

// What weighs 10^-14 of the nearest key is small, and not nothing.
TYPED_TEST(Reach, SmallWeightsCount) {
  using T = TypeParam;
  constexpr index_t count = 384;  // more than are weighed together
  const auto k = make_buffer<T>(1, 1, count, dim), v = make_buffer<T>(1, 1, count, 1), q = make_buffer<T>(1, 1, 1, dim);
  const auto out = make_buffer<posenc::compute_type<T>>(1, 1, 1, 1);
  for (const auto* x : {&q, &k, &v})
    x->for_each([&](index_t b, index_t h, index_t t, index_t d) { x->view(b, h, t, d) = T(1); });
  for (index_t t = count - 256; t < count; ++t) v.view(0, 0, t, 0) = T(0);
  posenc::kv_cache<T> cache({.kv_heads = 1, .head_dim = dim, .value_dim = 1});
  const posenc::alibi encoding(std::vector<double>{0.125});
  cache.append(k.view, v.view, posenc::token_range(count), encoding);
  posenc::attention(q.view, cache, out.view, posenc::token_range(1, count - 1), encoding, posenc::causal{});
  const double expected = std::exp(-32.0);
  EXPECT_NEAR(static_cast<double>(out.view(0, 0, 0, 0)), expected, 1e-3 * expected);
}

// Distances on one axis say nothing of another: far keys of the first block are the likeliest by the second axis.
TEST(ReachOfSums, OnSeveralAxes) {
  constexpr index_t count = 384;
  attention_test::random_engine random(6);
  const auto q = random_buffer<float>(random, 1, 1, 1, dim), k = random_buffer<float>(random, 1, 1, count, dim),
             v = make_buffer<float>(1, 1, count, 1), out = make_buffer<float>(1, 1, 1, 1);
  std::vector<double> positions(2 * count), order(count), at = {count - 1, 0};
  for (index_t t = 0; t < count; ++t) {
    order[static_cast<std::size_t>(t)] = positions[static_cast<std::size_t>(t)] = static_cast<double>(t);
    positions[static_cast<std::size_t>(count + t)] = t < 64 ? 900 : 200;
    v.view(0, 0, t, 0) = t < 64 ? 1 : 0;
  }
  const posenc::token_pair described(posenc::token_positions(at.data(), 1, 1, 2).with_order(at.data()),
                                     posenc::token_positions(positions.data(), count, 1, 2).with_order(order.data()));
  // Rotated keys are packed, and packed blocks are left out.
  const auto encoding =
      posenc::combine(posenc::rope{posenc::frequency_ladder(dim)}, posenc::alibi(std::vector<double>{1}),
                      posenc::alibi(std::vector<double>{-1}, {.axis = 1}));
  posenc::attention(q.view, k.view, v.view, out.view, described, encoding, posenc::causal{});
  EXPECT_EQ(out.view(0, 0, 0, 0), 1);
}

// A key that is seen is seen, however far: NaN reaches the row, infinity too.
TYPED_TEST(Reach, VisibleNaNIsNotLeftOut) {
  attention_test::random_engine random(3);
  for (const bool in_keys : {true, false}) {
    problem<TypeParam> p(random, tokens);
    TypeParam& x = in_keys ? p.k.view(0, 0, 5, 3) : p.v.view(0, 0, 5, 3);
    attention_test::bits_of<TypeParam> bits = attention_test::infinity_bits<TypeParam>();
    bits = static_cast<attention_test::bits_of<TypeParam>>(bits | (bits >> 1));
    std::memcpy(static_cast<void*>(&x), &bits, sizeof x);
    const auto r =
        p.run(counted_alibi<true>{posenc::alibi(std::vector<double>{1, 0.8, 2, 1.5})}, posenc::causal{}, 0, false);
    EXPECT_EQ(attention_test::is_finite(r.out.view(0, 0, tokens - 1, 3)), !in_keys) << "a weight of exactly 0 hides v";
    EXPECT_TRUE(attention_test::is_finite(r.out.view(0, 2, tokens - 1, 3))) << "another head's keys";
  }
}

TEST(LargestBias, IsTheLargest) {
  const posenc::alibi both(std::vector<double>{0.5}), with_sign(std::vector<double>{0.5}, {.is_signed = true});
  const posenc::alibi rising(std::vector<double>{-0.5});
  EXPECT_EQ(both.largest_bias(-10, -4, 0), -2);
  EXPECT_EQ(both.largest_bias(-10, 4, 0), 0);
  EXPECT_EQ(both.largest_bias(2, 4, 0), -1);
  EXPECT_EQ(with_sign.largest_bias(-10, 4, 0), 2);
  EXPECT_EQ(rising.largest_bias(-10, 4, 0), 5);
}

}  // namespace
