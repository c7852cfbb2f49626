// SPDX-License-Identifier: Apache-2.0
// Results that can be told without computing attention.
#include <posenc/attention/merge.hpp>
#include <posenc/encoding/t5_bucket.hpp>

#include <cstring>
#include <vector>

#include "attention/simple_call.hpp"

namespace {

using attention_test::buffer;
using attention_test::index_t;
using attention_test::make_buffer;
using attention_test::matrix;
using attention_test::random_buffer;
using attention_test::simple_call;
using posenc::token_range;

template <class T>
class KnownValues : public testing::Test {};
using types = testing::Types<float, double, posenc::half, posenc::bfloat16>;
TYPED_TEST_SUITE(KnownValues, types);

// One key: whatever the scores are, the output is its value, bit for bit, and lse is the score.
TYPED_TEST(KnownValues, OneKeyGivesItsValue) {
  attention_test::random_engine random(1);
  for (const index_t value_dim : {1, 5, 64, 77}) {
    const auto q = random_buffer<TypeParam>(random, 2, 3, 4, 10), k = random_buffer<TypeParam>(random, 2, 3, 1, 10),
               v = random_buffer<TypeParam>(random, 2, 3, 1, value_dim),
               out = make_buffer<TypeParam>(2, 3, 4, value_dim);
    posenc::attention(q.view, k.view, v.view, out.view, {token_range(4, 9), token_range(1)}, posenc::nope{},
                      posenc::causal{});
    out.for_each([&](index_t b, index_t h, index_t t, index_t d) {
      EXPECT_TRUE(attention_test::same_bits(out.view(b, h, t, d), v.view(b, h, 0, d)));
    });
  }
}

// Equal scores: the mean of the values, which is exact for 2^n of them; and lse = score + ln n.
TYPED_TEST(KnownValues, EqualScoresGiveTheMean) {
  for (const index_t keys : {2, 64, 128, 256}) {
    simple_call<TypeParam> call;
    call.q = {{0.5, 0.25}};
    call.k = matrix(static_cast<std::size_t>(keys), {2, 4});
    for (index_t j = 0; j < keys; ++j) call.v.push_back({j % 2 == 0 ? 1.0 : -0.5, 3.0});
    call.tokens = posenc::token_pair(token_range(1, 300), token_range(keys));
    call.options.scale = 0.5;
    const auto result = call.run();
    EXPECT_EQ(result.out, (matrix{{0.25, 3.0}})) << keys;
    const double lse = 1 + std::log(static_cast<double>(keys));
    EXPECT_TRUE(attention_test::within(result.lse[0], lse, attention_test::tolerance<TypeParam>() * (1 + lse)));
  }
}

// Scores so far apart that one key takes all.
TYPED_TEST(KnownValues, OneKeyTakesAll) {
  simple_call<TypeParam> call;
  call.q = {{1}};
  for (int j = 0; j < 200; ++j) call.k.push_back({j == 130 ? 200.0 : -200.0});
  for (int j = 0; j < 200; ++j) call.v.push_back({static_cast<double>(j)});
  call.tokens = posenc::token_pair(token_range(1, 300), token_range(200));
  call.options.scale = 1;
  const auto result = call.run();
  EXPECT_EQ(result.out[0][0], 130);
  EXPECT_TRUE(attention_test::within(result.lse[0], 200, attention_test::tolerance<TypeParam>() * 201))
      << result.lse[0];
}

TYPED_TEST(KnownValues, LogisticOfTwoKeys) {
  simple_call<TypeParam> call;
  call.q = {{1}, {-1}};
  call.k = {{0.75}, {-0.25}};
  call.v = {{1}, {0}};
  call.tokens = posenc::token_pair(token_range(2, 5), token_range(2));
  call.options.scale = 1;
  const matrix out = call.run().out;
  const double bound = attention_test::tolerance<TypeParam>();
  EXPECT_TRUE(attention_test::within(out[0][0], 1 / (1 + std::exp(-1.0)), bound)) << out[0][0];
  EXPECT_TRUE(attention_test::within(out[1][0], 1 / (1 + std::exp(1.0)), bound)) << out[1][0];
}

// T5 has no 1 / sqrt(head_dim): with scale 1 the bias and the product are on one footing.
TYPED_TEST(KnownValues, T5WithScaleOne) {
  std::vector<float> table(32, 0.0f);
  table[0] = 1;   // distance 0
  table[1] = -2;  // the key just before
  simple_call<TypeParam> call;
  call.q = {{1, 0, 0, 0}};
  call.k = {{3, 0, 0, 0}, {0, 0, 0, 0}};
  call.v = {{1}, {0}};
  call.tokens = posenc::token_pair(token_range(1, 1), token_range(2));
  call.encoding = posenc::t5_bucket(table.data(), 1);
  call.options.scale = 1;
  EXPECT_EQ(call.run().out[0][0], 0.5) << "3 - 2 = 0 + 1";
}

// A visible NaN is seen, in a key, a query or a value: never taken for a row that sees nothing. By bits, for -ffast-math.
TYPED_TEST(KnownValues, VisibleNanIsSeen) {
  attention_test::random_engine random(8);
  const auto is_nan = [](const TypeParam& x) {
    double wide;
    posenc::simd::load_row(&x, 1, &wide);
    return posenc::detail::is_nan(wide);
  };
  const auto spoil = [](TypeParam& element) {
    std::memset(static_cast<void*>(&element), 0x7f, sizeof element);  // with the rest: a NaN in every format
    reinterpret_cast<unsigned char*>(&element)[sizeof element - 2] = 0xff;
  };
  for (const int place : {0, 1, 2, 3}) {  // 3: in a key, beside values that take the way for infinities
    auto q = random_buffer<TypeParam>(random, 1, 1, 100, 8), k = random_buffer<TypeParam>(random, 1, 1, 100, 8),
         v = random_buffer<TypeParam>(random, 1, 1, 100, 8);
    const auto out = make_buffer<TypeParam>(1, 1, 100, 8);
    spoil((place == 0 ? q : place == 2 ? v : k).view(0, 0, 70, 3));
    if (place == 3) spoil(v.view(0, 0, 99, 0));
    std::vector<double> lse(100);
    posenc::attention_options options;
    options.lse = posenc::lse_view(lse.data(), 1, 1, 100);
    posenc::attention(q.view, k.view, v.view, out.view, token_range(100), posenc::nope{}, posenc::causal{}, options);
    for (index_t t = 0; t < 100; ++t) {
      const bool sees = place == 0 ? t == 70 : t >= 70;
      EXPECT_EQ(is_nan(out.view(0, 0, t, 3)), sees) << place << ", query " << t;
      EXPECT_EQ(is_nan(out.view(0, 0, t, 4)), sees && place != 2) << place << ", query " << t;
      EXPECT_EQ(posenc::detail::is_nan(lse[static_cast<std::size_t>(t)]), sees && place != 2)
          << place << ", query " << t;
    }
  }
}

TYPED_TEST(KnownValues, OutMayBeTheQueries) {
  attention_test::random_engine random(2);
  // Once a tile's rows are its own, once split into key ranges that are merged at the end.
  for (const index_t q_len : {1, 100}) {
    const index_t kv_len = q_len == 1 ? 2500 : 130;
    const auto q = random_buffer<TypeParam>(random, 1, 4, q_len, 12),
               k = random_buffer<TypeParam>(random, 1, 2, kv_len, 12),
               v = random_buffer<TypeParam>(random, 1, 2, kv_len, 12), out = make_buffer<TypeParam>(1, 4, q_len, 12);
    const posenc::token_pair tokens(token_range(q_len, static_cast<double>(kv_len - q_len)), token_range(kv_len));
    posenc::attention(q.view, k.view, v.view, out.view, tokens, posenc::nope{}, posenc::causal{});
    posenc::attention(q.view, k.view, v.view, q.view, tokens, posenc::nope{}, posenc::causal{});
    EXPECT_TRUE(attention_test::same_elements(out, q));
  }
}

// ---- what differs by type of lse, form of the mask, form of the encoding ----

TEST(Attention, LseInFloatAndDoubleWithStrides) {
  attention_test::random_engine random(3);
  const auto q = random_buffer<float>(random, 2, 2, 3, 8), k = random_buffer<float>(random, 2, 1, 9, 8),
             v = random_buffer<float>(random, 2, 1, 9, 8), out = make_buffer<float>(2, 2, 3, 8);
  const posenc::token_pair tokens(token_range(3, 6), token_range(9));
  std::vector<float> narrow(12);
  std::vector<double> wide(100, 5.5);
  posenc::attention_options options;
  options.lse = posenc::lse_view(narrow.data(), 2, 2, 3);
  posenc::attention(q.view, k.view, v.view, out.view, tokens, posenc::nope{}, posenc::causal{}, options);
  // Batch rows backwards, queries outermost.
  options.lse = posenc::lse_view(wide.data() + 50, {2, 2, 3}, {-7, 2, 15});
  posenc::attention(q.view, k.view, v.view, out.view, tokens, posenc::nope{}, posenc::causal{}, options);
  int written = 0;
  for (const double x : wide) written += x != 5.5;
  EXPECT_EQ(written, 12);
  for (index_t b = 0; b < 2; ++b)
    for (index_t h = 0; h < 2; ++h)
      for (index_t i = 0; i < 3; ++i)
        EXPECT_EQ(static_cast<float>(wide[static_cast<std::size_t>(50 - 7 * b + 2 * h + 15 * i)]),
                  narrow[static_cast<std::size_t>((b * 2 + h) * 3 + i)]);
}

TEST(Attention, NamedAndRunTimePoliciesGiveTheSameBits) {
  attention_test::random_engine random(4);
  const auto q = random_buffer<float>(random, 1, 4, 70, 16), k = random_buffer<float>(random, 1, 2, 150, 16),
             v = random_buffer<float>(random, 1, 2, 150, 16), a = make_buffer<float>(1, 4, 70, 16),
             b = make_buffer<float>(1, 4, 70, 16);
  const posenc::token_pair tokens(token_range(70, 80), token_range(150));
  std::vector<float> table(32 * 4);
  for (float& x : table) x = static_cast<float>(attention_test::random_number(random));
  const posenc::t5_bucket t5(table.data(), 4);
  const auto mask = posenc::causal{} & (posenc::window_of(40) | posenc::prefix{.length = 10});
  posenc::attention(q.view, k.view, v.view, a.view, tokens, t5, mask);
  posenc::attention(q.view, k.view, v.view, b.view, tokens, posenc::any_encoding(t5), posenc::any_mask(mask));
  EXPECT_TRUE(attention_test::same_elements(a, b));
}

TEST(Attention, OneDescriptionForAllRowsOrOneARow) {
  attention_test::random_engine random(5);
  const auto q = random_buffer<float>(random, 3, 1, 4, 8), k = random_buffer<float>(random, 3, 1, 6, 8),
             v = random_buffer<float>(random, 3, 1, 6, 8), a = make_buffer<float>(3, 1, 4, 8),
             b = make_buffer<float>(3, 1, 4, 8);
  std::vector<int> repeated;
  for (int row = 0; row < 3; ++row)
    for (int t = 0; t < 6; ++t) repeated.push_back(t);
  const auto rows = posenc::token_positions(repeated.data(), 6, 3);
  posenc::attention(q.view, k.view, v.view, a.view, {token_range(4, 2), token_range(6)}, posenc::nope{},
                    posenc::causal{});
  posenc::attention(q.view, k.view, v.view, b.view, {token_range(4, 2), rows}, posenc::nope{}, posenc::causal{});
  EXPECT_TRUE(attention_test::same_elements(a, b));
}

// Ragged sequences are separate pieces of work: the same as one call each.
TEST(Attention, RaggedEqualsOneCallASequence) {
  attention_test::random_engine random(6);
  const std::vector<std::int32_t> q_bounds = {0, 3, 3, 4, 50}, k_bounds = {0, 70, 75, 75, 140};
  const auto q = random_buffer<float>(random, 1, 2, 50, 8), k = random_buffer<float>(random, 1, 2, 140, 8),
             v = random_buffer<float>(random, 1, 2, 140, 8), a = make_buffer<float>(1, 2, 50, 8),
             b = make_buffer<float>(1, 2, 50, 8);
  const auto q_list = posenc::ragged_sequences(q_bounds, {67, 4, 0, 19});
  const auto k_list = posenc::ragged_sequences(k_bounds);
  posenc::attention(q.view, k.view, v.view, a.view, {q_list, k_list}, posenc::nope{}, posenc::causal{});
  const double offsets[] = {67, 4, 0, 19};
  for (std::size_t s = 0; s < 4; ++s) {
    const auto part = [](const buffer<float>& x, const std::vector<std::int32_t>& bounds, std::size_t i) {
      return posenc::tensor_view<float>(x.view.row(0, 0, bounds[i]),
                                        {1, x.view.heads(), bounds[i + 1] - bounds[i], x.view.dim()},
                                        {x.view.stride(0), x.view.stride(1), x.view.stride(2), 1});
    };
    const auto qs = part(q, q_bounds, s), ks = part(k, k_bounds, s), vs = part(v, k_bounds, s),
               os = part(b, q_bounds, s);
    posenc::attention(qs, ks, vs, os, {token_range(qs.tokens(), offsets[s]), token_range(ks.tokens())}, posenc::nope{},
                      posenc::causal{});
  }
  EXPECT_TRUE(attention_test::same_elements(a, b));
}

// A query of one sequence whose keys are none: zero, whatever the other sequences hold.
TEST(Attention, SequenceWithoutKeys) {
  attention_test::random_engine random(7);
  const std::vector<std::int32_t> q_bounds = {0, 1, 3}, k_bounds = {0, 0, 5};
  const auto q = random_buffer<float>(random, 1, 1, 3, 4), k = random_buffer<float>(random, 1, 1, 5, 4),
             v = random_buffer<float>(random, 1, 1, 5, 4), out = random_buffer<float>(random, 1, 1, 3, 4);
  posenc::attention(q.view, k.view, v.view, out.view,
                    {posenc::ragged_sequences(q_bounds), posenc::ragged_sequences(k_bounds)}, posenc::nope{},
                    posenc::bidirectional{});
  for (index_t d = 0; d < 4; ++d) EXPECT_EQ(out.view(0, 0, 0, d), 0.0f);
}

}  // namespace
