// SPDX-License-Identifier: Apache-2.0
// Numbers of every size and of every number of bits: where kernels split floats into parts, some must not be split, and
// blocks of either kind meet in one row.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/cached_attention.hpp>
#include <posenc/attention/kv_cache.hpp>
#include <posenc/attention/mask/any_mask.hpp>
#include <posenc/attention/mask/masks.hpp>
#include <posenc/encoding/alibi.hpp>
#include <posenc/encoding/any_encoding.hpp>
#include <posenc/encoding/nope.hpp>
#include <posenc/encoding/rope.hpp>
#include <posenc/testing/reference.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "attention/attention_support.hpp"

namespace {

using attention_test::buffer;
using attention_test::index_t;
using attention_test::make_buffer;
using attention_test::random_engine;

/// Numbers of so many bits within +-1.
float number_of_bits(random_engine& random, int bits) {
  const index_t end = index_t{1} << bits;
  return static_cast<float>(static_cast<double>(attention_test::pick(random, 1 - end, end - 1)) /
                            static_cast<double>(end));
}

struct sizes {
  const char* name;
  int q_bits, k_bits, v_bits;
  double q = 1, k = 1, v = 1;       ///< factors
  double first_k = 1, first_v = 1;  ///< factors of the first block
};

void PrintTo(const sizes& s, std::ostream* out) { *out << s.name; }

class NumberRange : public testing::TestWithParam<sizes> {
 public:
  static constexpr index_t heads = 4, kv_heads = 1, tokens = 300;

  buffer<float> q, k, v;
  double largest_value = 0;

  void make(index_t dim) {
    const sizes& s = GetParam();
    random_engine random(23);
    q = make_buffer<float>(1, heads, tokens, dim);
    k = make_buffer<float>(1, kv_heads, tokens, dim);
    v = make_buffer<float>(1, kv_heads, tokens, dim);
    const auto fill = [&](buffer<float>& x, int bits, double factor, double first) {
      x.for_each([&](index_t b, index_t h, index_t t, index_t d) {
        x.view(b, h, t, d) =
            static_cast<float>(static_cast<double>(number_of_bits(random, bits)) * factor * (t < 64 ? first : 1));
      });
    };
    fill(q, s.q_bits, s.q, 1);
    fill(k, s.k_bits, s.k, s.first_k);
    fill(v, s.v_bits, s.v, s.first_v);
    largest_value = 0;
    v.for_each([&](index_t b, index_t h, index_t t, index_t d) {
      largest_value = std::max(largest_value, std::fabs(static_cast<double>(v.view(b, h, t, d))));
    });
  }

  void compare(const buffer<float>& out, const buffer<double>& exact, const char* what) const {
#if defined(__FAST_MATH__)
    // Products with small weights, and small keys, are flushed to 0 in this mode.
    if (largest_value < 0x1p-100 || GetParam().k < 0x1p-100) return;
#endif
    double worst = 0;
    out.for_each([&](index_t b, index_t h, index_t t, index_t d) {
      const double error = std::fabs(static_cast<double>(out.view(b, h, t, d)) - exact.view(b, h, t, d));
      worst = error <= worst ? worst : error;
    });
    EXPECT_LE(worst / largest_value, 2e-6) << what;
  }
};

TEST_P(NumberRange, IsWithinTheDocumentedBound) {
  constexpr index_t dim = 40;
  make(dim);
  const auto out = make_buffer<float>(1, heads, tokens, dim);
  const auto exact = make_buffer<double>(1, heads, tokens, dim);
  posenc::kv_cache<float> cache({.kv_heads = kv_heads, .head_dim = dim});
  for (const posenc::any_encoding& encoding :
       {posenc::any_encoding(posenc::nope{}), posenc::any_encoding(posenc::rope{posenc::frequency_ladder(dim)}),
        posenc::any_encoding(posenc::alibi(heads))}) {
    for (const posenc::any_mask& mask :
         {posenc::any_mask(posenc::causal{}), posenc::any_mask(posenc::bidirectional{})}) {
      posenc::testing::attention(q.view, k.view, v.view, exact.view, posenc::token_range(tokens), encoding, mask);
      posenc::attention(q.view, k.view, v.view, out.view, posenc::token_range(tokens), encoding, mask);
      compare(out, exact, "plain");
      cache = posenc::kv_cache<float>({.kv_heads = kv_heads, .head_dim = dim});
      cache.append(k.read_only(), v.read_only(), posenc::token_range(tokens), encoding);
      posenc::attention(q.view, cache, out.view, posenc::token_range(tokens), encoding, mask);
      compare(out, exact, "cached");
    }
  }
}

/// Causal attention over one head of random values, against double precision.
void expect_near_reference(const buffer<float>& q, const buffer<float>& k, const posenc::attention_options& options,
                           const char* what) {
  const index_t tokens = q.view.tokens(), dim = q.view.dim();
  random_engine random(29);
  const auto v = attention_test::random_buffer<float>(random, 1, 1, tokens, dim);
  const auto out = make_buffer<float>(1, 1, tokens, dim);
  const auto exact = make_buffer<double>(1, 1, tokens, dim);
  const auto described = posenc::token_range(tokens);
  posenc::testing::attention(q.view, k.view, v.view, exact.view, described, posenc::nope{}, posenc::causal{}, options);
  posenc::attention(q.view, k.view, v.view, out.view, described, posenc::nope{}, posenc::causal{}, options);
  out.for_each([&](index_t b, index_t h, index_t t, index_t d) {
    EXPECT_NEAR(static_cast<double>(out.view(b, h, t, d)), exact.view(b, h, t, d), 2 * 2e-6) << what;
  });
}

// The largest float, whose nearest bfloat16 number is infinite. As a key it takes all weight of the rows that see it; as a
// query it hides all differences between keys.
TEST(LargestNumbers, InAKeyAndInAQuery) {
  random_engine random(28);
  for (const bool in_key : {false, true}) {
    const auto q = attention_test::random_buffer<float>(random, 1, 1, 100, 64),
               k = attention_test::random_buffer<float>(random, 1, 1, 100, 64);
    for (index_t t = 0; t < 100; ++t) (in_key ? q : k).view(0, 0, t, 0) = 0x1p-20f;
    (in_key ? k : q).view(0, 0, 50, 0) = 0x1.fffffep127f;
    expect_near_reference(q, k, {}, in_key ? "key" : "query");
  }
}

// Queries that the softcap divides: what they lose in parts, it would bring back.
TEST(SmallQueries, UnderALargeSoftcap) {
  random_engine random(30);
  const auto q = attention_test::random_buffer<float>(random, 1, 1, 100, 64),
             k = attention_test::random_buffer<float>(random, 1, 1, 100, 64);
  q.for_each([&](index_t b, index_t h, index_t t, index_t d) {
    q.view(b, h, t, d) *= 1e-15f;
    k.view(b, h, t, d) *= 1e15f;
  });
  expect_near_reference(q, k, {.softcap = 1e17}, "softcap");
}

// A query that sees one key returns its value to the bit, also a small one beside large ones.
TEST(OneKey, ReturnsItsValueToTheBit) {
  constexpr index_t tokens = 40, dim = 32;
  random_engine random(31);
  const auto q = attention_test::random_buffer<float>(random, 1, 1, tokens, dim),
             k = attention_test::random_buffer<float>(random, 1, 1, tokens, dim),
             v = attention_test::random_buffer<float>(random, 1, 1, tokens, dim);
  for (index_t d = 0; d < dim; ++d) v.view(0, 0, 0, d) = 1.2345678e-36f * static_cast<float>(d + 1);
  const auto out = make_buffer<float>(1, 1, tokens, dim);
  posenc::attention(q.view, k.view, v.view, out.view, posenc::token_range(tokens), posenc::nope{}, posenc::causal{});
  for (index_t d = 0; d < dim; ++d) EXPECT_EQ(out.view(0, 0, 0, d), v.view(0, 0, 0, d)) << d;
}

// What padding holds, as a query or as a key, does not change a bit of the others.
TEST(PaddingNumbers, LeaveTheOthersAsTheyAre) {
  constexpr index_t tokens = 230, dim = 40;
  random_engine random(32);
  const auto q = attention_test::random_buffer<float>(random, 1, 1, tokens, dim),
             k = attention_test::random_buffer<float>(random, 1, 1, tokens, dim),
             v = attention_test::random_buffer<float>(random, 1, 1, tokens, dim);
  std::vector<index_t> documents(tokens, 3);
  for (const std::size_t padding : {5u, 70u, 71u, 229u}) documents[padding] = -1;
  const auto described = posenc::token_range(tokens).with_documents(documents.data());
  const auto run = [&](float x) {
    for (index_t t = 0; t < tokens; ++t)
      for (index_t d = 0; d < dim && documents[static_cast<std::size_t>(t)] == -1; ++d)
        q.view(0, 0, t, d) = k.view(0, 0, t, d) = v.view(0, 0, t, d) = x;
    const auto out = make_buffer<float>(1, 1, tokens, dim);
    posenc::attention(q.view, k.view, v.view, out.view, described, posenc::rope{posenc::frequency_ladder(dim)},
                      posenc::causal{});
    return out.numbers();
  };
  const std::vector<double> expected = run(0.0f);
  for (const float x : {1e30f, 1e-40f, std::bit_cast<float>(0x7fc0'0000u), std::bit_cast<float>(0x7f80'0000u)})
    EXPECT_EQ(run(x), expected) << x;
}

INSTANTIATE_TEST_SUITE_P(Numbers, NumberRange,
                         testing::Values(sizes{"floats", 24, 24, 24}, sizes{"binary16", 24, 11, 11},
                                         sizes{"bfloat16", 24, 8, 8}, sizes{"bits_of_each_kind", 8, 24, 11},
                                         sizes{"large_keys", 24, 24, 24, 0x1p-80, 0x1p80},
                                         sizes{"large_queries", 24, 24, 24, 0x1p80, 0x1p-80},
                                         sizes{"largest_queries", 24, 24, 24, 0x1p121, 0x1p-121},
                                         sizes{"small_values", 24, 24, 24, 1, 1, 0x1p-115},
                                         sizes{"large_values", 24, 24, 24, 1, 1, 0x1p100},
                                         sizes{"a_block_of_large_values", 24, 24, 24, 1, 1, 1, 1, 0x1p70},
                                         sizes{"a_block_of_small_values", 24, 24, 24, 1, 1, 1, 1, 0x1p-115},
                                         sizes{"a_block_of_small_keys", 24, 24, 24, 1, 1, 1, 0x1p-130, 1},
                                         sizes{"all_small", 24, 24, 24, 0x1p-70, 0x1p-60, 0x1p-90},
                                         sizes{"zeros", 24, 24, 24, 0, 0, 0x1p-20}),
                         [](const auto& numbers) { return std::string(numbers.param.name); });

}  // namespace
