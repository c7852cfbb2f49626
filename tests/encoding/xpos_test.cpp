// SPDX-License-Identifier: Apache-2.0
#include <posenc/encoding/xpos.hpp>

#include <gtest/gtest.h>
#include <posenc/attention/attention.hpp>
#include <posenc/attention/mask/masks.hpp>
#include <posenc/encoding/any_encoding.hpp>
#include <posenc/encoding/rotate.hpp>
#include <posenc/encoding/rotated.hpp>

#include <cmath>
#include <string>
#include <vector>

#include "encoding/rope_support.hpp"

namespace {

using namespace rope_test;
using posenc::rotation_op;
using posenc::token_range;
using posenc::token_role;
using posenc::view_bhtd;
using posenc::view_thd;
using posenc::xpos;

/// One head by the formula of the paper, in long double.
numbers by_formula(numbers x, const frequency_ladder& ladder, double position, const posenc::xpos_options& o,
                   token_role role, rotation_op op) {
  const index_t pairs = ladder.size();
  for (index_t i = 0; i < pairs; ++i) {
    const long double d = 2 * static_cast<long double>(pairs);
    const long double zeta = (2 * i + o.gamma * d) / ((1 + o.gamma) * d);
    const long double p = (position - o.center) / o.scale_base;
    long double factor = ladder.attention_factor() * std::pow(zeta, role == token_role::query ? p : -p);
    if (op == rotation_op::inverse) factor = 1 / factor;
    const long double angle =
        (op == rotation_op::rotate ? 1 : -1) * static_cast<long double>(position) * ladder.inv_freq(i);
    const auto a = static_cast<std::size_t>(o.offset + (o.pairing == pairing::half ? i : 2 * i));
    const std::size_t b = o.pairing == pairing::half ? a + static_cast<std::size_t>(pairs) : a + 1;
    const long double u = x[a], v = x[b];
    x[a] = static_cast<double>(factor * (u * std::cos(angle) - v * std::sin(angle)));
    x[b] = static_cast<double>(factor * (u * std::sin(angle) + v * std::cos(angle)));
  }
  return x;
}

template <class T>
struct XPos : testing::Test {};
TYPED_TEST_SUITE(XPos, element_types, element_names);

TYPED_TEST(XPos, IsTheFormulaInAllFourOperations) {
  constexpr index_t dim = 24, count = 9;
  for (const pairing how : pairings)
    for (const token_role role : {token_role::query, token_role::key})
      for (const index_t table : {index_t{0}, index_t{2000}}) {
        const posenc::xpos_options options{
            .pairing = how, .offset = 4, .center = 700, .table = {.first = 0, .count = table}};
        const frequency_ladder ladder = ladder_of(16, 1.25);
        const xpos encoding(ladder, options);
        const numbers x = pattern(count * dim);
        const double first = 600;
        for (const rotation_op op : {rotation_op::rotate, rotation_op::transposed, rotation_op::inverse}) {
          std::vector<TypeParam> data = as_elements<TypeParam>(x);
          const auto view = view_thd(data.data(), count, 1, dim);
          const posenc::rotate_options as{.role = role};
          if (op == rotation_op::rotate) posenc::rotate(view, token_range(count, first), encoding, as);
          if (op == rotation_op::transposed) posenc::rotate_transposed(view, token_range(count, first), encoding, as);
          if (op == rotation_op::inverse) posenc::unrotate(view, token_range(count, first), encoding, as);
          for (index_t t = 0; t < count; ++t) {
            const numbers head(x.begin() + t * dim, x.begin() + (t + 1) * dim);
            const numbers expected = by_formula(head, ladder, first + static_cast<double>(t), options, role, op);
            for (index_t d = 0; d < dim; ++d)
              EXPECT_NEAR(static_cast<double>(data[static_cast<std::size_t>(t * dim + d)]),
                          expected[static_cast<std::size_t>(d)], rotation_bound<TypeParam>(700, 4.0));
          }
        }
        // From one centre to another: what a moved cache needs.
        posenc::xpos_options moved = options;
        moved.center = 0;
        std::vector<TypeParam> keys = as_elements<TypeParam>(x);
        const auto view = view_thd(keys.data(), count, 1, dim);
        posenc::rotate(view, token_range(count, first), encoding, {.role = role});
        posenc::rerotate(view, token_range(count, first), encoding, xpos(ladder, moved), 5.0, {.role = role});
        for (index_t t = 0; t < count; ++t) {
          const numbers head(x.begin() + t * dim, x.begin() + (t + 1) * dim);
          const numbers expected =
              by_formula(head, ladder, first + 5 + static_cast<double>(t), moved, role, rotation_op::rotate);
          double largest = largest_of(expected);
          for (index_t d = 0; d < dim; ++d)
            EXPECT_NEAR(static_cast<double>(keys[static_cast<std::size_t>(t * dim + d)]),
                        expected[static_cast<std::size_t>(d)],
                        rotation_bound<TypeParam>(700, 2 * std::max(4.0, largest)));
        }
      }
}

// Scores depend on differences of positions and not on the centre; they shrink with the distance.
TEST(XPos, ScoresDependOnDistancesOnly) {
  const frequency_ladder ladder = ladder_of(16);
  const numbers q = pattern(16, 1), k = pattern(16, 2);
  const auto score = [&](double center, double at_q, double at_k) {
    const xpos encoding(ladder, {.center = center});
    numbers a = q, b = k;
    posenc::rotate(view_thd(a.data(), 1, 1, 16), token_range(1, at_q), encoding, {.role = token_role::query});
    posenc::rotate(view_thd(b.data(), 1, 1, 16), token_range(1, at_k), encoding, {.role = token_role::key});
    double sum = 0;
    for (std::size_t i = 0; i < 16; ++i) sum += a[i] * b[i];
    return sum;
  };
  EXPECT_NEAR(score(0, 900, 300), score(512, 900, 300), 1e-12);
  EXPECT_NEAR(score(0, 900, 300), score(0, 1900, 1300), 1e-11);
  EXPECT_GT(std::fabs(score(0, 900, 300) - score(0, 900, 301)), 1e-3);
}

TYPED_TEST(XPos, WorksInAttention) {
  using T = TypeParam;
  constexpr index_t heads = 4, kv_heads = 2, count = 70, dim = 16;
  const xpos encoding(ladder_of(16), {.pairing = pairing::interleaved, .center = 1000});
  const std::vector<T> q = as_elements<T>(pattern(heads * count * dim, 1)),
                       k = as_elements<T>(pattern(kv_heads * count * dim, 2)),
                       v = as_elements<T>(pattern(kv_heads * count * dim, 3));
  std::vector<T> out(q.size()), by_hand(q.size());
  const auto qv = view_bhtd(q.data(), 1, heads, count, dim), kv = view_bhtd(k.data(), 1, kv_heads, count, dim),
             vv = view_bhtd(v.data(), 1, kv_heads, count, dim);
  const auto tokens = token_range(count, 980);
  posenc::attention(qv, kv, vv, view_bhtd(out.data(), 1, heads, count, dim), tokens, encoding, posenc::causal{});
  // The same from rotated queries and keys in double.
  numbers qd = as_doubles(q), kd = as_doubles(k), vd = as_doubles(v), expected(qd.size());
  posenc::rotate_qk(view_bhtd(qd.data(), 1, heads, count, dim), view_bhtd(kd.data(), 1, kv_heads, count, dim), tokens,
                    encoding);
  posenc::attention(view_bhtd(qd.data(), 1, heads, count, dim), view_bhtd(kd.data(), 1, kv_heads, count, dim),
                    view_bhtd(vd.data(), 1, kv_heads, count, dim), view_bhtd(expected.data(), 1, heads, count, dim),
                    tokens, posenc::rotated(encoding), posenc::causal{});
  const double bound = posenc::dtype_of<T> == posenc::dtype::float64   ? 1e-12
                       : posenc::dtype_of<T> == posenc::dtype::float32 ? 4e-6
                       : posenc::dtype_of<T> == posenc::dtype::half    ? 4e-3
                                                                       : 2e-2;
  EXPECT_LE(encoding_test::largest_difference(as_doubles(out), expected), 2 * bound);
}

TEST(XPos, SaysHowFarItReaches) {
  const xpos encoding(ladder_of(16), {.center = 100});
  EXPECT_NEAR(encoding.reach(), 100 * 512 / -std::log2(0.4 / 1.4), 1e-6);
  std::vector<float> x(16, 1.0f);
  const auto check_at = [&](double position) {
    return posenc::check(view_thd(x.data(), 1, 1, 16), token_range(1, position), encoding, {.role = token_role::key});
  };
  EXPECT_FALSE(check_at(100 + std::floor(encoding.reach())));
  for (const double far : {101 + std::floor(encoding.reach()), 100 - std::ceil(encoding.reach())}) {
    const auto error = check_at(far);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), posenc::errc::out_of_range);
  }
  EXPECT_TRUE(xpos::check(ladder_of(16), {.scale_base = 0}));
  EXPECT_TRUE(xpos::check(ladder_of(16), {.gamma = -0.4}));
  EXPECT_TRUE(xpos::check(ladder_of(16), {.offset = -1}));
  EXPECT_TRUE(xpos::check(ladder_of(16), {.center = encoding_test::not_finite()[0]}));
  EXPECT_FALSE(encoding == xpos(ladder_of(16)));
  EXPECT_EQ(encoding, xpos(ladder_of(16), {.center = 100, .table = {.count = 5}}));
}

}  // namespace
