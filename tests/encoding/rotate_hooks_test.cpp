// SPDX-License-Identifier: Apache-2.0
// Rotations of one's own through posenc::rotate, and what posenc::rotate refuses. The one file of this program that replaces
// operator new.
#include "support/allocations.hpp"

#include <gtest/gtest.h>
#include <posenc/encoding/any_encoding.hpp>
#include <posenc/encoding/combine.hpp>
#include <posenc/encoding/nope.hpp>
#include <posenc/encoding/query_temperature.hpp>
#include <posenc/encoding/rope.hpp>
#include <posenc/encoding/rotate.hpp>
#include <posenc/encoding/xpos.hpp>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "encoding/rope_support.hpp"

namespace {

using namespace rope_test;
using encoding_test::largest_difference;
using encoding_test::not_finite;
using encoding_test::turn;
using posenc::compute_type;
using posenc::errc;
using posenc::maybe_error;
using posenc::rotation_op;
using posenc::token_positions;
using posenc::token_range;
using posenc::token_role;
using posenc::token_view;
using posenc::view_bhtd;
using posenc::view_bthd;
using posenc::view_thd;

template <class T>
struct RotateHooks : testing::Test {};
TYPED_TEST_SUITE(RotateHooks, element_types, element_names);

// ---- encodings with the hooks alone ----

TYPED_TEST(RotateHooks, AnEncodingOfOnesOwn) {
  // One pair, which rope can also turn: in place, out of place, all operations.
  constexpr index_t tokens = 3, heads = 2, dim = 21;
  const turn own{.first = 4, .frequency = 0.5, .factor = 1.25};
  const rope same(frequency_ladder::from_inv_freq(numbers{0.5}, 1.25), {.offset = 4});
  const auto x = as_elements<TypeParam>(pattern(tokens * heads * dim));
  const auto compare = [&](auto&& operation) {
    auto a = x, b = x, in = x;
    std::vector<TypeParam> out(x.size());
    const auto view = [&](std::vector<TypeParam>& y) { return view_thd(y.data(), tokens, heads, dim); };
    operation(view(a), view(a), own);
    operation(view(in), view(out), own);
    operation(view(b), view(b), same);
    EXPECT_LE(largest_difference(as_doubles(a), as_doubles(b)), rotation_bound<TypeParam>(20, 4));
    EXPECT_GT(largest_difference(as_doubles(a), as_doubles(x)), 0.5);
    EXPECT_EQ(as_doubles(out), as_doubles(a));
    EXPECT_EQ(as_doubles(in), as_doubles(x));
    for (std::size_t i = 0; i < x.size(); ++i)
      if (const std::size_t d = i % dim; d < 4 || d > 5) {
        EXPECT_TRUE(same_bits(a[i], x[i])) << d;
      }
  };
  const token_view at = token_range(tokens, 20);
  compare([&](auto in, auto out, const auto& e) { rotate(in, out, at, e); });
  compare([&](auto in, auto out, const auto& e) { rotate_transposed(in, out, at, e); });
  compare([&](auto in, auto out, const auto& e) { unrotate(in, out, at, e); });
  compare([&](auto in, auto out, const auto& e) { rerotate(in, out, at, e, e, 6); });
}

/// Turns each key head's first two dimensions with a frequency of its own, and counts how often rows are made.
struct per_head_turn {
  using acts_on = posenc::places<posenc::on_queries_keys>;

  long* prepared = nullptr;

  index_t rotation_size(posenc::rotation_shape shape) const { return 2 * shape.kv_heads; }
  template <class Real>
  void prepare_rotation(posenc::rotation_shape shape, posenc::position_span position, posenc::rotation_use,
                        Real* row) const {
    if (prepared != nullptr) ++*prepared;
    for (index_t h = 0; h < shape.kv_heads; ++h) {
      row[2 * h] = static_cast<Real>(std::cos(position[0] * static_cast<double>(h + 1)));
      row[2 * h + 1] = static_cast<Real>(std::sin(position[0] * static_cast<double>(h + 1)));
    }
  }
  template <class Real>
  void apply_rotation(posenc::rotation_shape, const Real* row, index_t kv_head, Real* x) const {
    const Real a = x[0], b = x[1];
    x[0] = a * row[2 * kv_head] - b * row[2 * kv_head + 1];
    x[1] = a * row[2 * kv_head + 1] + b * row[2 * kv_head];
  }
};

TYPED_TEST(RotateHooks, QueryHeadsFollowTheirKeyHead) {
  constexpr index_t heads = 6, kv_heads = 2, dim = 4;
  const auto start = as_elements<TypeParam>({1, 0, 2, 2});
  const auto heads_at = [&](index_t n) {
    std::vector<TypeParam> x;
    for (index_t h = 0; h < n; ++h) x.insert(x.end(), start.begin(), start.end());
    return x;
  };
  const auto expect = [&](const std::vector<TypeParam>& x, index_t group) {
    for (index_t h = 0; h < static_cast<index_t>(x.size()) / dim; ++h) {
      const double angle = 3.0 * static_cast<double>(h / group + 1);
      EXPECT_NEAR(static_cast<double>(x[static_cast<std::size_t>(h * dim)]), std::cos(angle),
                  rotation_bound<TypeParam>(6, 1))
          << h;
      EXPECT_NEAR(static_cast<double>(x[static_cast<std::size_t>(h * dim + 1)]), std::sin(angle),
                  rotation_bound<TypeParam>(6, 1))
          << h;
    }
  };
  const token_view at = token_range(1, 3);
  auto q = heads_at(heads), k = heads_at(kv_heads);
  rotate_qk(view_thd(q.data(), 1, heads, dim), view_thd(k.data(), 1, kv_heads, dim), at, per_head_turn{});
  expect(q, 3);
  expect(k, 1);
  q = heads_at(heads);
  rotate(view_thd(q.data(), 1, heads, dim), at, per_head_turn{}, {.role = token_role::query, .kv_heads = kv_heads});
  expect(q, 3);
  q = heads_at(heads);
  rotate(view_thd(q.data(), 1, heads, dim), at, per_head_turn{}, {.role = token_role::query});
  expect(q, 1);
  q = heads_at(heads);
  rerotate(view_thd(q.data(), 1, heads, dim), token_range(1), per_head_turn{}, per_head_turn{}, 3,
           {.role = token_role::query, .kv_heads = kv_heads});
  expect(q, 3);
}

TYPED_TEST(RotateHooks, RolesAreToldApart) {
  // Queries are scaled by their position, keys are not.
  const posenc::query_temperature hotter{.coefficient = 0.5, .length = 2, .shift = 1};
  auto q = as_elements<TypeParam>(numbers(8, 1.0)), k = q, both_q = q, both_k = q;
  const token_view at = token_range(1, 9);
  rotate(view_thd(q.data(), 1, 1, 8), at, hotter, {.role = token_role::query});
  rotate(view_thd(k.data(), 1, 1, 8), at, hotter, {.role = token_role::key});
  rotate_qk(view_thd(both_q.data(), 1, 1, 8), view_thd(both_k.data(), 1, 1, 8), at, hotter);
  const double factor = 1 + 0.5 * std::log(1 + std::floor(10.0 / 2));
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(static_cast<double>(q[i]), factor, rotation_bound<TypeParam>(0, 2));
    EXPECT_EQ(static_cast<double>(k[i]), 1.0);
  }
  EXPECT_EQ(as_doubles(both_q), as_doubles(q));
  EXPECT_EQ(as_doubles(both_k), as_doubles(k));
}

TYPED_TEST(RotateHooks, ACombination) {
  // Two ropes on disjoint dimensions, as one by one.
  const rope a(ladder_of(6, 1.5)), b(ladder_of(8, 1, 500), {.pairing = pairing::interleaved, .offset = 6});
  const auto x = as_elements<TypeParam>(pattern(4 * 2 * 17));
  auto together = x, apart = x;
  const auto view = [&](std::vector<TypeParam>& y) { return view_bhtd(y.data(), 1, 2, 4, 17); };
  rotate(view(together), token_range(4, 9), combine(a, b));
  rotate(view(apart), token_range(4, 9), a);
  rotate(view(apart), token_range(4, 9), b);
  EXPECT_LE(largest_difference(as_doubles(together), as_doubles(apart)), rotation_bound<TypeParam>(9, 5));
}

/// A rope that counts how often a token's row is made.
struct counted_rope {
  using acts_on = posenc::places<posenc::on_queries_keys>;
  static constexpr bool rotation_depends_on_role = false;

  const rope& inner;
  long* prepared;

  index_t rotation_size(posenc::rotation_shape shape) const { return inner.rotation_size(shape); }
  template <class Real>
  void prepare_rotation(posenc::rotation_shape shape, posenc::position_span position, posenc::rotation_use use,
                        Real* row) const {
    ++*prepared;
    inner.prepare_rotation(shape, position, use, row);
  }
  template <class Real>
  void apply_rotation(posenc::rotation_shape shape, const Real* row, index_t kv_head, Real* x) const {
    inner.apply_rotation(shape, row, kv_head, x);
  }
};

TEST(RotateRows, AreMadeOncePerToken) {
  const rope inner(ladder_of(8));
  std::vector<float> q(3 * 5 * 4 * 8, 1.0f), k(3 * 5 * 2 * 8, 1.0f);
  const auto q_view = view_bthd(q.data(), 3, 5, 4, 8);
  const auto k_view = view_bthd(k.data(), 3, 5, 2, 8);
  long prepared = 0;
  rotate_qk(q_view, k_view, token_range(5), counted_rope{inner, &prepared});
  EXPECT_EQ(prepared, 5) << "all heads of queries and keys of all rows share a token's row";
  prepared = 0;
  const numbers own(15, 2.0);
  rotate_qk(q_view, k_view, token_positions(own.data(), 5, 3), counted_rope{inner, &prepared});
  EXPECT_EQ(prepared, 15) << "rows with positions of their own do not";
  prepared = 0;
  rotate_qk(q_view, k_view, token_range(5), per_head_turn{&prepared});
  EXPECT_EQ(prepared, 10) << "an encoding that may tell queries from keys is asked for both";
}

TYPED_TEST(RotateHooks, RopeAllocatesNothing) {
  const rope encoding(ladder_of(512), {.pairing = pairing::interleaved});
  std::vector<TypeParam> x(512 * 6, static_cast<TypeParam>(1.0f)), out(x.size());
  const auto view = view_thd(x.data(), 2, 3, 512), to = view_thd(out.data(), 2, 3, 512);
  const token_view at = token_range(2);
  EXPECT_EQ(posenc_test::allocations_of([&] {
              rotate(view, at, encoding);
              rotate_transposed(view, to, at, encoding);
              rotate_qk(view, to, at, encoding);
              rerotate(view, at, encoding, encoding, 3);
              static_cast<void>(check(view, at, encoding));
              static_cast<void>(check(view, to, token_range(9), encoding));
            }),
            0);
  const rope wide(ladder_of(4096));
  std::vector<TypeParam> y(4096, static_cast<TypeParam>(1.0f));
  EXPECT_EQ(posenc_test::allocations_of([&] { rotate(view_thd(y.data(), 1, 1, 4096), token_range(1), wide); }), 1);
}

// ---- bad input ----

TEST(RotateErrors, NameTheArgumentAndLeaveEverythingUntouched) {
  constexpr index_t tokens = 3, heads = 2, dim = 8;
  const rope encoding(ladder_of(8)), partial(ladder_of(6), {.offset = 3});
  std::vector<float> x(2 * tokens * heads * dim), out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const std::vector<float> before = x;
  const auto view = view_bthd(x.data(), 2, tokens, heads, dim);
  const auto out_view = view_bthd(out.data(), 2, tokens, heads, dim);
  const auto at = token_range(tokens);

  const auto refuses = [&](errc code, const char* text, const maybe_error& checked, auto&& call) {
    POSENC_EXPECT_ERROR(call(), code, text);
    ASSERT_TRUE(checked.has_value()) << text;
    EXPECT_EQ(checked->code(), code) << checked->what();
    EXPECT_NE(std::string(checked->what()).find(text), std::string::npos) << checked->what();
    EXPECT_EQ(x, before) << text;
    EXPECT_EQ(out, std::vector<float>(out.size())) << text;
  };
  const auto one = [&](errc code, const char* text, const auto& what, const token_view& where, const auto& e,
                       const posenc::rotate_options& options = {}) {
    refuses(code, text, check(what, where, e, options), [&] { rotate(what, where, e, options); });
    refuses(code, text, check(what, where, e, options), [&] { rotate_transposed(what, where, e, options); });
    refuses(code, text, check(what, where, e, options), [&] { unrotate(what, where, e, options); });
  };
  const auto two = [&](errc code, const char* text, const auto& from, const auto& to, const token_view& where,
                       const auto& e) {
    refuses(code, text, check(from, to, where, e), [&] { rotate(from, to, where, e); });
    refuses(code, text, check(from, to, where, e), [&] { rotate_transposed(from, to, where, e); });
    refuses(code, text, check(from, to, where, e), [&] { unrotate(from, to, where, e); });
  };

  // Shapes.
  one(errc::invalid_shape, "tokens: describes 4 tokens; the tensor has 3", view, token_range(4), encoding);
  const numbers positions(9, 1.0);
  one(errc::invalid_shape, "tokens: describes 3 batch rows", view, token_positions(positions.data(), 3, 3), encoding);
  one(errc::invalid_shape, "encoding: rope turns 6 dimensions from offset 3 on and heads have 8", view, at, partial);
  one(errc::invalid_shape, "x: has extent -1", view_bthd(x.data(), 2, tokens, -1, dim), at, encoding);
  one(errc::invalid_shape, "x: has 0 heads", view_bthd(x.data(), 2, tokens, 0, dim), at, encoding);
  one(errc::invalid_shape, "x: has head_dim 0", view_bthd(x.data(), 2, tokens, heads, 0), at, encoding);
  two(errc::invalid_shape, "out: has 1 heads; allowed: 2, like x", view, view_bthd(out.data(), 2, tokens, 1, dim), at,
      encoding);
  two(errc::invalid_shape, "out: has 6 dim; allowed: 8, like x", view, view_bthd(out.data(), 2, tokens, heads, 6), at,
      encoding);

  // Layouts.
  one(errc::invalid_layout, "x: is null", view_bthd(static_cast<float*>(nullptr), 2, tokens, heads, dim), at, encoding);
  two(errc::invalid_layout, "out: is null", view, view_bthd(static_cast<float*>(nullptr), 2, tokens, heads, dim), at,
      encoding);
  one(errc::invalid_layout, "x: has stride 2 between the elements",
      tensor_view<float>(x.data(), {1, 1, tokens, dim}, {0, 0, 2 * dim, 2}), at, encoding);
  one(errc::invalid_layout, "x: has stride 0 over 2 rows",
      tensor_view<float>(x.data(), {2, heads, tokens, dim}, {0, dim, heads * dim, 1}), at, encoding);
  one(errc::invalid_layout, "x: has strides [48, 8, 6]",
      tensor_view<float>(x.data(), {2, heads, tokens, dim}, {48, 8, 6, 1}), at, encoding);
  two(errc::invalid_layout, "out: has strides [48, 4, 16]", view,
      tensor_view<float>(out.data(), {2, heads, tokens, dim}, {48, 4, 16, 1}), at, encoding);
  two(errc::invalid_layout, "out: overlaps x", view, tensor_view<float>(x.data() + 1, {2, 2, 3, dim}, {48, 8, 16, 1}),
      at, encoding);
  const tensor_view<float> transposed(x.data(), {2, tokens, heads, dim}, {48, 8, 24, 1});
  two(errc::invalid_layout, "out: overlaps x", view_bhtd(x.data(), 2, tokens, heads, dim), transposed,
      token_range(heads), encoding);

  // Positions.
  for (const double& bad : not_finite()) {
    const numbers some = {1, bad, 2};
    one(errc::invalid_value, "tokens: has the position", view, token_positions(std::span<const double>(some)),
        encoding);
  }
  one(errc::invalid_layout, "tokens: has a null pointer", view, token_positions(static_cast<const double*>(nullptr), 3),
      encoding);
  const rope axes(ladder_of(8), {.frequency_axis = {0, 1, 1, 0}});
  one(errc::mismatch, "encoding: rope reads the position axis 1", view, at, axes);

  // Options.
  one(errc::invalid_value, "options.kv_heads: is 3 for 2 heads of x", view, at, encoding, {.kv_heads = 3});
  one(errc::invalid_value, "options.kv_heads: is -1", view, at, encoding, {.kv_heads = -1});

  // Queries and keys.
  const auto pair = [&](errc code, const char* text, const auto& q, const auto& k, const token_view& where) {
    refuses(code, text, check_rotate_qk(q, k, where, encoding), [&] { rotate_qk(q, k, where, encoding); });
  };
  const auto three_heads = view_bthd(x.data(), 1, tokens, 3, dim);
  pair(errc::invalid_shape, "q: has 3 heads; allowed: a multiple of the 2 heads of k", three_heads,
       view_bthd(out.data(), 1, tokens, 2, dim), at);
  pair(errc::invalid_shape, "k: has 2 batch rows; allowed: 1, like q", view_bthd(out.data(), 1, tokens, heads, dim),
       view, at);
  pair(errc::invalid_shape, "k: has 4 dim; allowed: 8, like q", view, view_bthd(out.data(), 2, tokens, heads, 4), at);
  pair(errc::invalid_layout, "k: overlaps q", view, view, at);
  const auto pair_out = [&](errc code, const char* text, const auto& q, const auto& k, const auto& q_out,
                            const auto& k_out) {
    refuses(code, text, check_rotate_qk(q, k, q_out, k_out, at, encoding),
            [&] { rotate_qk(q, k, q_out, k_out, at, encoding); });
  };
  const auto first = view_bthd(x.data(), 1, tokens, heads, dim),
             second = view_bthd(x.data() + 48, 1, tokens, heads, dim);
  const auto third = view_bthd(out.data(), 1, tokens, heads, dim),
             fourth = view_bthd(out.data() + 47, 1, tokens, heads, dim);
  pair_out(errc::invalid_layout, "k_out: overlaps q_out", first, second, third, fourth);
  pair_out(errc::invalid_layout, "q_out: overlaps k", first, second, second, third);
  pair_out(errc::invalid_layout, "k_out: overlaps q", first, second, third, first);
  pair_out(errc::invalid_shape, "k_out: has 1 heads", first, second, third,
           view_bthd(out.data() + 48, 1, tokens, 1, dim));

  // Rerotation.
  const auto again = [&](errc code, const char* text, const auto& to, double shift) {
    refuses(code, text, check(view, at, encoding, to, shift), [&] { rerotate(view, at, encoding, to, shift); });
    refuses(code, text, check(view, out_view, at, encoding, to, shift),
            [&] { rerotate(view, out_view, at, encoding, to, shift); });
  };
  for (const double& bad : not_finite()) again(errc::invalid_value, "shift: is", encoding, bad);
  again(errc::invalid_value, "shift: is 1e+16", encoding, 1e16);
  again(errc::invalid_shape, "encoding: rope turns 6 dimensions", partial, 1);
}

// Whoever forgets the role of queries would turn them as keys, with scores that look right.
TEST(RotateErrors, ARoleThatMattersMustBeGiven) {
  const posenc::xpos apart(ladder_of(8));
  const posenc::query_temperature temperature;
  const rope alike(ladder_of(8));
  std::vector<float> x(2 * 3 * 8, 1.0f), out(x.size(), 2.0f);
  const std::vector<float> before = x, out_before = out;
  const auto refuses = [&](const auto& e, index_t tokens) {
    const auto view = view_thd(x.data(), tokens, 2, 8), to = view_thd(out.data(), tokens, 2, 8);
    const token_view at = token_range(tokens, 5);
    const char* const text = "options.role: is not given and the encoding turns queries and keys differently";
    const maybe_error found[] = {check(view, at, e), check(view, to, at, e), check(view, at, e, e, 3),
                                 check(view, at, e, alike, 3), check(view, to, at, alike, e, 3)};
    for (const maybe_error& one : found) {
      ASSERT_TRUE(one.has_value());
      EXPECT_EQ(one->code(), errc::invalid_value);
      EXPECT_NE(std::string(one->what()).find(text), std::string::npos) << one->what();
    }
    POSENC_EXPECT_ERROR(rotate(view, at, e), errc::invalid_value, text);
    POSENC_EXPECT_ERROR(rotate(view, to, at, e), errc::invalid_value, text);
    POSENC_EXPECT_ERROR(rotate_transposed(view, at, e), errc::invalid_value, text);
    POSENC_EXPECT_ERROR(unrotate(view, at, e), errc::invalid_value, text);
    POSENC_EXPECT_ERROR(rerotate(view, at, e, e, 3), errc::invalid_value, text);
    POSENC_EXPECT_ERROR(rerotate(view, to, at, alike, e, 3), errc::invalid_value, text);
    EXPECT_EQ(x, before);
    EXPECT_EQ(out, out_before);
    for (const token_role role : {token_role::query, token_role::key}) {
      EXPECT_FALSE(check(view, at, e, {.role = role}).has_value());
      EXPECT_FALSE(check(view, at, e, e, 3, {.role = role}).has_value());
    }
  };
  for (const index_t tokens : {1, 3}) {
    refuses(apart, tokens);
    refuses(temperature, tokens);
    refuses(combine(alike, temperature), tokens);
    refuses(posenc::any_encoding(apart), tokens);
    refuses(per_head_turn{}, tokens);  // says nothing of it
    const auto view = view_thd(x.data(), tokens, 2, 8);
    EXPECT_FALSE(check(view, token_range(tokens), alike).has_value());
    EXPECT_FALSE(check(view, token_range(tokens), posenc::any_encoding(alike)).has_value());
    EXPECT_FALSE(check(view, token_range(tokens), posenc::any_encoding(posenc::nope{})).has_value());
    EXPECT_FALSE(check_rotate_qk(view, view_thd(out.data(), tokens, 2, 8), token_range(tokens), apart).has_value());
  }
}

TEST(RotateErrors, OfGoodArgumentsAreNone) {
  const rope encoding(ladder_of(8));
  std::vector<float> x(48), out(48);
  const auto view = view_thd(x.data(), 3, 2, 8), to = view_thd(out.data(), 3, 2, 8);
  EXPECT_FALSE(check(view, token_range(3), encoding).has_value());
  EXPECT_FALSE(check(view, to, token_range(3), encoding).has_value());
  EXPECT_FALSE(check(view, view, token_range(3), encoding).has_value());
  EXPECT_FALSE(check(view, to, token_range(3), encoding, encoding, -2.5).has_value());
  EXPECT_FALSE(check_rotate_qk(view, to, token_range(3), encoding).has_value());
  // An input may share its rows.
  const tensor_view<const float> shared(x.data(), {1, 2, 3, 8}, {0, 0, 8, 1});
  EXPECT_FALSE(check(shared, to, token_range(3), encoding).has_value());
  static_assert(noexcept(check(view, token_range(3), encoding)));
  static_assert(noexcept(check(view, to, token_range(3), encoding, encoding, 1.0)));
  static_assert(noexcept(check_rotate_qk(view, to, token_range(3), encoding)));
}

TEST(RotateErrors, ExplainColumnMajorMatrices) {
  const rope encoding(ladder_of(8));
  // Eight dimensions of five tokens: column-major is right as dim x tokens, row-major as tokens x dim.
  Eigen::MatrixXf columns = Eigen::MatrixXf::Ones(8, 5);
  Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> rows = columns.transpose();
  rotate(columns, token_range(5, 2), encoding);
  rotate(rows, token_range(5, 2), encoding);
  EXPECT_EQ(columns, rows.transpose());
  Eigen::MatrixXf wrong = Eigen::MatrixXf::Ones(5, 8);
  POSENC_EXPECT_ERROR(rotate(wrong, token_range(5), encoding), errc::invalid_shape,
                      "column-major Eigen data is read as dim x tokens");
}

}  // namespace
