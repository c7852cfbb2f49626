// SPDX-License-Identifier: Apache-2.0
#include <posenc/encoding/rotate.hpp>

#include <gtest/gtest.h>
#include <posenc/encoding/rope.hpp>
#include <posenc/ladder/yarn.hpp>

#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "encoding/rope_support.hpp"

namespace {

using namespace rope_test;
using encoding_test::largest_difference;
using posenc::compute_type;
using posenc::rotation_op;
using posenc::token_positions;
using posenc::token_range;
using posenc::token_role;
using posenc::view_bhtd;
using posenc::view_bthd;
using posenc::view_fused;
using posenc::view_thd;

template <class T>
bool equal_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(static_cast<const void*>(a.data()), b.data(), a.size() * sizeof(T)) == 0);
}

/// All elements of a view as doubles, in the order batch, heads, tokens, dim.
template <class T>
numbers read(const tensor_view<T>& x) {
  numbers result;
  for (index_t b = 0; b < x.batch(); ++b)
    for (index_t h = 0; h < x.heads(); ++h)
      for (index_t t = 0; t < x.tokens(); ++t)
        for (index_t d = 0; d < x.dim(); ++d) result.push_back(static_cast<double>(x(b, h, t, d)));
  return result;
}

template <class T>
void write(const tensor_view<T>& x, const numbers& values) {
  std::size_t at = 0;
  for (index_t b = 0; b < x.batch(); ++b)
    for (index_t h = 0; h < x.heads(); ++h)
      for (index_t t = 0; t < x.tokens(); ++t)
        for (index_t d = 0; d < x.dim(); ++d)
          x(b, h, t, d) = static_cast<T>(static_cast<compute_type<T>>(values[at++]));
}

template <class T>
struct Rotate : testing::Test {};
TYPED_TEST_SUITE(Rotate, element_types, element_names);

// ---- reference numbers ----

template <class T>
tensor_view<T> view_of(const json& c, std::vector<T>& x, const char* heads) {
  const index_t b = c.at("batch"), h = c.at(heads), t = c.at("tokens"), d = c.at("head_dim");
  return c.at("layout") == "bhtd" ? view_bhtd(x.data(), b, h, t, d) : view_bthd(x.data(), b, t, h, d);
}

rope encoding_of(const json& c) {
  const pairing how = c.at("pairing") == "half" ? pairing::half : pairing::interleaved;
  if (c.contains("inv_freq")) {
    const numbers inv_freq = c.at("inv_freq");
    return rope(frequency_ladder::from_inv_freq(inv_freq, c.at("attention_factor").get<double>()), {.pairing = how});
  }
  const frequency_ladder ladder(c.at("rotary_dim"), {.base = c.at("base")});
  if (!c.contains("deepseek_yarn")) return rope(ladder, {.pairing = how});
  const json& y = c.at("deepseek_yarn");
  return rope(ladder | posenc::yarn{.factor = y.at("factor"),
                                    .original_context = y.at("original_max_position_embeddings"),
                                    .mscale = y.at("mscale"),
                                    .mscale_all_dim = y.at("mscale_all_dim"),
                                    .mscale_rule = posenc::yarn_mscale_rule::each},
              {.pairing = how});
}

/// The pair that dimension d belongs to; -1 if it does not turn.
index_t pair_of(const rope& encoding, index_t d) {
  const index_t i = d - encoding.options().offset;
  if (i < 0 || i >= encoding.ladder().rotary_dim()) return -1;
  return encoding.options().pairing == pairing::half ? i % encoding.ladder().size() : i / 2;
}

/// Compares with [batch, heads, tokens, dim] in the view's own layout, each element by the bound of its angle.
template <class T>
void expect_rotated(const tensor_view<T>& x, const tensor_view<double>& expected, const rope& encoding,
                    const posenc::token_view& tokens, double largest, bool deinterleaved = false) {
  const index_t pairs = encoding.ladder().size();
  for (index_t b = 0; b < x.batch(); ++b)
    for (index_t h = 0; h < x.heads(); ++h)
      for (index_t t = 0; t < x.tokens(); ++t)
        for (index_t d = 0; d < x.dim(); ++d) {
          const index_t pair = pair_of(encoding, d);
          const double angle = pair < 0 ? 0 : tokens.position(0, b, t) * encoding.ladder().inv_freq(pair);
          const index_t e = deinterleaved ? d / 2 + d % 2 * pairs : d;
          ASSERT_NEAR(static_cast<double>(x(b, h, t, d)), expected(b, h, t, e), rotation_bound<T>(angle, largest))
              << "row " << b << " head " << h << " token " << t << " dim " << d;
        }
}

TYPED_TEST(Rotate, AsTransformersAndVllmDo) {
  const json data = data_of("rope_apply.json");
  for (const json& c : data.at("cases")) {
    SCOPED_TRACE(c.at("name").get<std::string>());
    const rope encoding = encoding_of(c);
    const numbers positions = c.at("positions");
    const auto tokens = token_positions(positions.data(), c.at("tokens"), c.at("position_rows"));
    const bool deinterleaved = c.contains("output_deinterleaved");
    numbers q_out = c.at("q_out"), k_out = c.at("k_out");
    const double largest =
        (std::max)({largest_of(c.at("q")), largest_of(c.at("k")), largest_of(q_out), largest_of(k_out)});
    const auto q_expected = view_of(c, q_out, "heads"), k_expected = view_of(c, k_out, "kv_heads");

    auto q = as_elements<TypeParam>(c.at("q")), k = as_elements<TypeParam>(c.at("k"));
    std::vector<TypeParam> out(q.size());
    rotate(view_of(c, q, "heads"), view_of(c, out, "heads"), tokens, encoding);
    expect_rotated(view_of(c, out, "heads"), q_expected, encoding, tokens, largest, deinterleaved);
    EXPECT_TRUE(equal_bits(q, as_elements<TypeParam>(c.at("q"))));

    auto one = k;
    rotate(view_of(c, one, "kv_heads"), tokens, encoding);
    expect_rotated(view_of(c, one, "kv_heads"), k_expected, encoding, tokens, largest, deinterleaved);

    rotate_qk(view_of(c, q, "heads"), view_of(c, k, "kv_heads"), tokens, encoding);
    EXPECT_TRUE(equal_bits(q, out)) << "queries of rotate_qk";
    EXPECT_TRUE(equal_bits(k, one)) << "keys of rotate_qk";
  }
}

rope encoding_of_semantics(const json& e) {
  const numbers inv_freq = e.at("inv_freq");
  return rope(frequency_ladder::from_inv_freq(inv_freq, e.at("attention_factor").get<double>()),
              {.pairing = e.at("style") == "half" ? pairing::half : pairing::interleaved, .offset = e.at("offset")});
}

TYPED_TEST(Rotate, FourOperations) {
  const json data = data_of("rope_semantics.json");
  for (const json& c : data.at("cases")) {
    SCOPED_TRACE(c.at("name").get<std::string>());
    const numbers positions = c.at("positions");
    const auto tokens = token_positions(std::span<const double>(positions));
    const auto run = [&](const char* from, const char* to, const rope& angles, auto&& operation) {
      std::vector<TypeParam> x = as_elements<TypeParam>(c.at(from)), out(x.size());
      const auto view = [&](auto& y) {
        return view_bhtd(y.data(), c.at("batch"), c.at("heads"), c.at("tokens"), c.at("head_dim"));
      };
      operation(view(x), view(out));
      numbers expected = c.at(to);
      const double largest = (std::max)(largest_of(c.at(from)), largest_of(expected));
      expect_rotated(view(out), view(expected), angles, tokens, largest);
      operation(view(x), view(x));
      EXPECT_TRUE(equal_bits(x, out)) << to << " in place";
    };
    if (c.at("kind") == "rotation") {
      const rope encoding = encoding_of_semantics(c.at("encoding"));
      run("x", "rotated", encoding, [&](auto x, auto out) { rotate(x, out, tokens, encoding); });
      run("x", "rotate_transposed", encoding, [&](auto x, auto out) { rotate_transposed(x, out, tokens, encoding); });
      run("x", "unrotated", encoding, [&](auto x, auto out) { unrotate(x, out, tokens, encoding); });
    } else {
      const rope from = encoding_of_semantics(c.at("encoding_from")), to = encoding_of_semantics(c.at("encoding_to"));
      const double shift = c.at("shift");
      run("x", "cached", from, [&](auto x, auto out) { rotate(x, out, tokens, from); });
      run("cached", "rerotated", to, [&](auto x, auto out) { rerotate(x, out, tokens, from, to, shift); });
    }
  }
}

TYPED_TEST(Rotate, UnrotateUndoes) {
  const rope encoding(ladder_of(24, 1.5), {.pairing = pairing::interleaved, .offset = 3});
  const auto x = as_elements<TypeParam>(pattern(2 * 3 * 5 * 30));
  auto y = x;
  const auto view = view_bhtd(y.data(), 2, 3, 5, 30);
  rotate(view, token_range(5, 1000), encoding);
  EXPECT_GT(largest_difference(y, x), 0.5);
  unrotate(view, token_range(5, 1000), encoding);
  EXPECT_LE(largest_difference(y, x), 2 * rotation_bound<TypeParam>(1000, 4));
}

// ---- layouts ----

/// A way to lay out [batch, heads, tokens, dim], and how much memory it takes.
struct layout {
  const char* name;
  std::array<index_t, 4> strides;
  index_t first, size;
};

TYPED_TEST(Rotate, AnyStrides) {
  constexpr index_t B = 2, H = 3, T = 4, D = 22;
  const std::array<layout, 6> layouts = {{
      {"batch, heads, tokens", {H * T * D, T * D, D, 1}, 0, B * H * T * D},
      {"batch, tokens, heads", {T * H * D, D, H * D, 1}, 0, B * T * H * D},
      {"tokens, batch, heads, with gaps",
       {H * (D + 1), D + 1, B * H * (D + 1) + 7, 1},
       3,
       3 + T * (B * H * (D + 1) + 7)},
      {"heads, tokens, batch", {D, T * B * D, B * D, 1}, 0, B * H * T * D},
      {"in a fused row", {T * 5 * H * D, D, 5 * H * D, 1}, H * D, B * T * 5 * H * D},
      {"tokens and heads backwards", {H * T * D, -T * D, -D, 1}, (H - 1) * T * D + (T - 1) * D, B * H * T * D},
  }};
  const numbers values = pattern(B * H * T * D), positions = {5, 6, 7, 8, 100, 101, 102, 103};
  const auto tokens = token_positions(positions.data(), T, B);
  for (const pairing how : pairings) {
    const rope encoding(ladder_of(20, 1.25), {.pairing = how, .offset = 1});
    std::vector<TypeParam> contiguous(B * H * T * D);
    write(view_bhtd(contiguous.data(), B, H, T, D), values);
    rotate(view_bhtd(contiguous.data(), B, H, T, D), tokens, encoding);
    const numbers expected = read(view_bhtd(contiguous.data(), B, H, T, D));
    for (const layout& in : layouts)
      for (const layout& out : layouts) {
        SCOPED_TRACE(std::string(in.name) + " to " + out.name);
        std::vector<TypeParam> x(static_cast<std::size_t>(in.size), static_cast<TypeParam>(-9.0f));
        std::vector<TypeParam> y(static_cast<std::size_t>(out.size), static_cast<TypeParam>(-9.0f)), z = y;
        const tensor_view<TypeParam> from(x.data() + in.first, {B, H, T, D}, in.strides);
        const tensor_view<TypeParam> to(y.data() + out.first, {B, H, T, D}, out.strides);
        write(from, values);
        rotate(from, to, tokens, encoding);
        EXPECT_EQ(read(to), expected);
        EXPECT_EQ(read(from), values);
        // Nothing between the rows was touched.
        write(tensor_view<TypeParam>(z.data() + out.first, {B, H, T, D}, out.strides), expected);
        EXPECT_TRUE(equal_bits(y, z));
        if (&in == &out) {
          rotate(from, tokens, encoding);
          EXPECT_TRUE(equal_bits(x, z));
        }
      }
  }
}

TYPED_TEST(Rotate, QueriesAndKeysOfAFusedRow) {
  constexpr index_t B = 2, T = 3, D = 16, q_heads = 4, k_heads = 2, width = (q_heads + 2 * k_heads) * D;
  const rope encoding(ladder_of(D));
  auto data = as_elements<TypeParam>(pattern(B * T * width));
  const auto before = data;
  const auto q = view_fused(data.data(), B, T, width, 0, q_heads, D);
  const auto k = view_fused(data.data(), B, T, width, q_heads * D, k_heads, D);
  const auto v = view_fused(data.data(), B, T, width, (q_heads + k_heads) * D, k_heads, D);
  const numbers values = read(v);
  rotate_qk(q, k, token_range(T, 10), encoding);
  EXPECT_EQ(read(v), values);
  auto apart = before;
  rotate(view_fused(apart.data(), B, T, width, 0, q_heads + k_heads, D), token_range(T, 10), encoding);
  EXPECT_TRUE(equal_bits(apart, data));
  EXPECT_FALSE(equal_bits(before, data));

  // Out of place, the keys into a place of their own and another type.
  std::vector<TypeParam> q_out(B * T * q_heads * D);
  std::vector<compute_type<TypeParam>> k_out(B * T * k_heads * D);
  apart = before;
  rotate_qk(view_fused(apart.data(), B, T, width, 0, q_heads, D),
            view_fused(apart.data(), B, T, width, q_heads * D, k_heads, D), view_bthd(q_out.data(), B, T, q_heads, D),
            view_bhtd(k_out.data(), B, k_heads, T, D), token_range(T, 10), encoding);
  EXPECT_TRUE(equal_bits(apart, before));
  EXPECT_EQ(read(view_bthd(q_out.data(), B, T, q_heads, D)), read(q));
  EXPECT_LE(largest_difference(read(view_bhtd(k_out.data(), B, k_heads, T, D)), read(k)),
            rotation_bound<TypeParam>(12, 4));
}

TYPED_TEST(Rotate, AnyAlignment) {  // BR-109
  const json c = report("BR-109");
  const index_t dim = c.at("inputs").at("head_dim");
  numbers x;
  for (index_t i = 0; i < dim; ++i) x.push_back(static_cast<double>(i + 1));
  const rope encoding(frequency_ladder(dim, {.base = c.at("inputs").at("base")}));
  const numbers position = {c.at("inputs").at("position").get<double>()};
  numbers expected = c.at("expected").at("y");
  std::vector<TypeParam> first;
  alignas(64) std::array<unsigned char, 512> memory;
  for (std::size_t offset = 0; offset <= 64; offset += sizeof(TypeParam)) {
    memory.fill(0xa5);
    auto* data = reinterpret_cast<TypeParam*>(memory.data() + offset);
    const auto elements = as_elements<TypeParam>(x);
    std::memcpy(static_cast<void*>(data), elements.data(), elements.size() * sizeof(TypeParam));
    rotate(view_thd(data, 1, 1, dim), token_positions(std::span<const double>(position)), encoding);
    const std::vector<TypeParam> y(data, data + dim);
    EXPECT_LE(largest_difference(as_doubles(y), expected), tolerance<TypeParam>(c, 20)) << offset;
    if (offset == 0) first = y;
    EXPECT_TRUE(equal_bits(y, first)) << offset;
    EXPECT_EQ(memory[offset + static_cast<std::size_t>(dim) * sizeof(TypeParam)], 0xa5);
    if (offset > 0) {
      EXPECT_EQ(memory[offset - 1], 0xa5);
    }
  }
}

// ---- what does not turn ----

TYPED_TEST(Rotate, PassThroughKeepsItsBits) {
  constexpr index_t tokens = 3, heads = 2, dim = 31;
  for (const pairing how : pairings)
    for (const index_t offset : {0, 5, 11}) {
      const rope encoding(ladder_of(20, 1.5), {.pairing = how, .offset = offset});
      const rope other(ladder_of(20, 1.25, 500), {.pairing = how, .offset = offset});
      std::vector<TypeParam> x(tokens * heads * dim);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto d = static_cast<index_t>(i) % dim;
        if (d >= offset && d < offset + 20) {
          x[i] = static_cast<TypeParam>(1.0f);
        } else {  // signalling and quiet NaNs, infinities, denormals: whatever the bits say
          const std::uint64_t bits = 0xfff0'0000'7f80'0001 + 0x0101'0101'0101'0101 * i;
          std::memcpy(static_cast<void*>(&x[i]), &bits, sizeof(TypeParam));
        }
      }
      const auto expect_kept = [&](const std::vector<TypeParam>& y, const char* what) {
        bool turned = false;
        for (std::size_t i = 0; i < x.size(); ++i) {
          const auto d = static_cast<index_t>(i) % dim;
          if (d >= offset && d < offset + 20) {
            turned = turned || !same_bits(x[i], y[i]);
          } else {
            EXPECT_TRUE(same_bits(x[i], y[i])) << what << ", dim " << d << ", offset " << offset;
          }
        }
        EXPECT_TRUE(turned) << what;
      };
      const auto at = token_range(tokens, 7);
      auto in_place = x, moved = x;
      std::vector<TypeParam> out(x.size()), moved_out(x.size());
      rotate(view_thd(in_place.data(), tokens, heads, dim), at, encoding);
      expect_kept(in_place, "in place");
      rotate(view_thd(x.data(), tokens, heads, dim), view_thd(out.data(), tokens, heads, dim), at, encoding);
      expect_kept(out, "out of place");
      rerotate(view_thd(moved.data(), tokens, heads, dim), at, encoding, other, 3);
      expect_kept(moved, "rerotate in place");
      rerotate(view_thd(x.data(), tokens, heads, dim), view_thd(moved_out.data(), tokens, heads, dim), at, encoding,
               other, 3);
      expect_kept(moved_out, "rerotate out of place");
    }
}

// ---- rows, tokens, positions ----

TYPED_TEST(Rotate, EveryRowOfTheBatch) {  // BR-106
  const json c = report("BR-106");
  std::vector<TypeParam> x;
  for (int i = 0; i < 6; ++i)
    for (const double v : c.at("inputs").at("x_each").get<numbers>())
      x.push_back(static_cast<TypeParam>(static_cast<float>(v)));
  const numbers position = {c.at("inputs").at("position").get<double>()}, expected = c.at("expected").at("y_each");
  rotate(view_bhtd(x.data(), 3, 2, 1, 4), token_positions(std::span<const double>(position)), rope(ladder_of(4)));
  for (std::size_t i = 0; i < x.size(); ++i)
    EXPECT_NEAR(static_cast<double>(x[i]), expected[i % 4], tolerance<TypeParam>(c, 5)) << i;
  EXPECT_GT(largest_difference(expected, c.at("wrong").at("y_each").get<numbers>()), 1);
}

TYPED_TEST(Rotate, EachRowAtItsOwnPositions) {  // BR-107
  const json c = report("BR-107");
  const std::vector<std::int32_t> positions = c.at("inputs").at("positions");
  const numbers one = c.at("inputs").at("x_each");
  auto x = as_elements<TypeParam>({one[0], one[1], one[2], one[3], one[0], one[1], one[2], one[3]});
  rotate(view_bthd(x.data(), 2, 1, 1, 4), token_positions(positions.data(), 1, 2), rope(ladder_of(4)));
  const std::vector<numbers> expected = c.at("expected").at("y"), wrong = c.at("wrong").at("y");
  for (std::size_t b = 0; b < 2; ++b) {
    const numbers y = as_doubles(std::vector<TypeParam>(x.begin() + static_cast<std::ptrdiff_t>(4 * b),
                                                        x.begin() + static_cast<std::ptrdiff_t>(4 * b + 4)));
    EXPECT_LE(largest_difference(y, expected[b]), tolerance<TypeParam>(c, 5)) << b;
  }
  EXPECT_GT(largest_difference(expected[0], wrong[0]), 1);
}

TYPED_TEST(Rotate, TokensOfADecodingStep) {  // BR-007, BR-009
  const json c = report("BR-007"), cached = report("BR-009");
  const rope encoding(ladder_of(4));
  const std::vector<std::int64_t> positions = c.at("inputs").at("k_positions");
  auto q = as_elements<TypeParam>(c.at("inputs").at("q"));
  std::vector<TypeParam> k;
  // Keys come one at a time, are turned when they come, and stay.
  for (std::size_t j = 0; j < positions.size(); ++j) {
    for (const double v : c.at("inputs").at("k_each").get<numbers>())
      k.push_back(static_cast<TypeParam>(static_cast<float>(v)));
    rotate(view_thd(k.data() + 4 * j, 1, 1, 4), token_range(1, static_cast<double>(positions[j])), encoding);
  }
  rotate(view_thd(q.data(), 1, 1, 4), token_range(1, c.at("inputs").at("q_position").get<double>()), encoding,
         {.role = token_role::query});
  const numbers expected = c.at("expected").at("scores"), wrong = c.at("wrong").at("scores");
  for (std::size_t j = 0; j < 4; ++j) {
    double score = 0;
    for (std::size_t i = 0; i < 4; ++i) score += static_cast<double>(q[i]) * static_cast<double>(k[4 * j + i]);
    EXPECT_NEAR(score, expected[j], tolerance<TypeParam>(c, 2)) << j;
    EXPECT_GT(std::fabs(score - wrong[j]), 0.5) << j;
  }
  const numbers second(as_doubles(std::vector<TypeParam>(k.begin() + 8, k.begin() + 12)));
  EXPECT_LE(largest_difference(second, cached.at("expected").at("y").get<numbers>()), tolerance<TypeParam>(cached));
  EXPECT_GT(largest_difference(second, cached.at("wrong").at("y").get<numbers>()), 0.1);
}

TYPED_TEST(Rotate, AShiftKeepsTheAttentionFactor) {  // BR-012
  const json c = report("BR-012");
  const json& in = c.at("inputs");
  const rope encoding(
      frequency_ladder(in.at("head_dim"), {.base = in.at("base")}) |
      posenc::yarn{.factor = in.at("yarn_factor"), .original_context = in.at("original_max_position_embeddings")});
  EXPECT_NEAR(encoding.ladder().attention_factor(), c.at("expected").at("attention_factor").get<double>(), 1e-13);
  auto key = as_elements<TypeParam>(in.at("x"));
  const auto norm = [&] {
    double sum = 0;
    for (const TypeParam& v : key) sum += static_cast<double>(v) * static_cast<double>(v);
    return std::sqrt(sum);
  };
  const auto view = view_thd(key.data(), 1, 1, 4);
  rotate(view, token_range(1, in.at("position")), encoding);
  EXPECT_NEAR(norm(), c.at("expected").at("norm_before").get<double>(), tolerance<TypeParam>(c, 3));
  rerotate(view, token_range(1, in.at("position")), encoding, encoding, in.at("delta"));
  EXPECT_NEAR(norm(), c.at("expected").at("norm_after_shift").get<double>(), tolerance<TypeParam>(c, 3));
  EXPECT_GT(std::fabs(norm() - c.at("wrong").at("norm_after_shift").get<double>()), 0.5);
  auto moved = as_elements<TypeParam>(in.at("x"));
  rotate(view_thd(moved.data(), 1, 1, 4),
         token_range(1, in.at("position").get<double>() + in.at("delta").get<double>()), encoding);
  EXPECT_LE(largest_difference(as_doubles(key), as_doubles(moved)), 2 * rotation_bound<TypeParam>(7, 3));
}

TYPED_TEST(Rotate, RerotatesAcrossLaddersWidthsAndAxes) {
  constexpr index_t tokens = 4, heads = 2, dim = 24;
  const rope from(ladder_of(8, 1.5), {.offset = 2}),
      to(ladder_of(12, 1.25, 3000), {.pairing = pairing::interleaved, .offset = 6});
  const auto x = as_elements<TypeParam>(pattern(tokens * heads * dim));
  auto cached = x, expected = x;
  const auto view = [&](std::vector<TypeParam>& y) { return view_thd(y.data(), tokens, heads, dim); };
  rotate(view(cached), token_range(tokens, 50), from);
  rerotate(view(cached), token_range(tokens, 50), from, to, -20.5);
  rotate(view(expected), token_range(tokens, 29.5), to);
  EXPECT_LE(largest_difference(as_doubles(cached), as_doubles(expected)), 2 * rotation_bound<TypeParam>(50, 4));

  // A shift moves every axis.
  const rope axes(ladder_of(12), {.frequency_axis = {0, 1, 2, 1, 0, 2}});
  const numbers grid = {1, 2, 3, 4, 1, 1, 2, 2, 5, 6, 5, 6}, order = {0, 1, 2, 3};
  numbers moved_grid = grid;
  for (double& p : moved_grid) p += 7;
  auto a = x, b = x;
  const auto at = token_positions(grid.data(), tokens, 1, 3).with_order(order.data());
  rotate(view(a), at, axes);
  rerotate(view(a), at, axes, axes, 7);
  rotate(view(b), token_positions(moved_grid.data(), tokens, 1, 3).with_order(order.data()), axes);
  EXPECT_LE(largest_difference(as_doubles(a), as_doubles(b)), 2 * rotation_bound<TypeParam>(20, 4));
}

// Rotations read positions alone: no order is asked for, and one that is given changes nothing.
TYPED_TEST(Rotate, SeveralAxesNeedNoOrder) {
  constexpr index_t tokens = 3;
  const rope axes(ladder_of(12), {.frequency_axis = {0, 1, 2, 1, 0, 2}});
  const numbers grid = {1, 2, 3, 1, 1, 2, 5, 6, 5}, order = {7, 5, 9};
  const auto plain = token_positions(grid.data(), tokens, 1, 3), ordered = plain.with_order(order.data());
  const auto x = as_elements<TypeParam>(pattern(tokens * 2 * 12));
  const auto expect_equal = [&](auto&& operation) {
    auto a = x, b = x;
    operation(view_thd(a.data(), tokens, 2, 12), plain);
    operation(view_thd(b.data(), tokens, 2, 12), ordered);
    EXPECT_TRUE(equal_bits(a, b));
    EXPECT_FALSE(equal_bits(a, x));
    EXPECT_FALSE(check(view_thd(a.data(), tokens, 2, 12), plain, axes).has_value());
  };
  expect_equal([&](auto y, const posenc::token_view& at) { rotate(y, at, axes); });
  expect_equal([&](auto y, const posenc::token_view& at) { rotate_transposed(y, at, axes); });
  expect_equal([&](auto y, const posenc::token_view& at) { unrotate(y, at, axes); });
  expect_equal([&](auto y, const posenc::token_view& at) { rerotate(y, at, axes, axes, 3); });
  expect_equal([&](auto y, const posenc::token_view& at) { rotate_qk(y.heads(0, 1), y.heads(1, 1), at, axes); });
}

TEST(RotateTypes, MixOutOfPlace) {
  constexpr index_t tokens = 3, heads = 2, dim = 23;
  const numbers values = pattern(tokens * heads * dim);
  const auto check_pair = [&]<class In, class Out>(In, Out) {
    for (const pairing how : pairings) {
      const rope encoding(ladder_of(18), {.pairing = how, .offset = 2});
      auto in = as_elements<In>(values);
      std::vector<Out> out(in.size());
      rotate(view_thd(in.data(), tokens, heads, dim), view_thd(out.data(), tokens, heads, dim), token_range(tokens, 3),
             encoding);
      // The same as in float, rounded once.
      auto wide = as_elements<float>(values);
      rotate(view_thd(wide.data(), tokens, heads, dim), token_range(tokens, 3), encoding);
      EXPECT_TRUE(equal_bits(out, as_elements<Out>(as_doubles(wide))));
    }
  };
  check_pair(float(), posenc::half());
  check_pair(float(), posenc::bfloat16());
  check_pair(posenc::half(), float());
  check_pair(posenc::bfloat16(), float());
  check_pair(posenc::bfloat16(), posenc::half());
  check_pair(posenc::half(), posenc::bfloat16());
}

// ---- sizes ----

TYPED_TEST(Rotate, NothingToDo) {
  const rope encoding(ladder_of(8));
  TypeParam untouched = static_cast<TypeParam>(1.5f);
  rotate(view_bthd(&untouched, 0, 3, 2, 8), token_range(3), encoding);
  rotate(view_bthd(&untouched, 2, 0, 2, 8), token_range(0), encoding);
  rotate(view_bthd(static_cast<TypeParam*>(nullptr), 2, 0, 2, 8),
         view_bthd(static_cast<TypeParam*>(nullptr), 2, 0, 2, 8), token_range(0), encoding);
  rerotate(view_bthd(&untouched, 2, 0, 2, 8), token_range(0), encoding, encoding, 3);
  rotate_qk(view_bthd(&untouched, 0, 1, 2, 8), view_bthd(&untouched, 0, 1, 1, 8), token_range(1), encoding);
  EXPECT_EQ(static_cast<float>(untouched), 1.5f);
}

TYPED_TEST(Rotate, HeadsWiderThanUsual) {
  constexpr index_t dim = 2500;
  for (const pairing how : pairings) {
    const rope encoding(ladder_of(2400, 1.5), {.pairing = how, .offset = 60});
    const numbers x = pattern(2 * dim);
    auto y = as_elements<TypeParam>(x);
    rotate(view_thd(y.data(), 2, 1, dim), token_range(2, 33), encoding);
    for (index_t t = 0; t < 2; ++t) {
      const double position = 33 + static_cast<double>(t);
      const numbers row(x.begin() + t * dim, x.begin() + (t + 1) * dim);
      const numbers expected = turned_by_formula(row, angles_of(encoding.ladder(), position), how, 60, 1.5);
      const numbers got = as_doubles(std::vector<TypeParam>(y.begin() + t * dim, y.begin() + (t + 1) * dim));
      EXPECT_LE(largest_difference(got, expected), rotation_bound<TypeParam>(position, largest_of(expected)));
    }
    auto moved = y;
    rerotate(view_thd(moved.data(), 2, 1, dim), token_range(2, 33), encoding, encoding, -33);
    unrotate(view_thd(y.data(), 2, 1, dim), token_range(2, 33), encoding);
    rotate(view_thd(y.data(), 2, 1, dim), token_range(2), encoding);
    EXPECT_LE(largest_difference(as_doubles(moved), as_doubles(y)), 3 * rotation_bound<TypeParam>(33, 5));
  }
}

#if defined(__linux__)
TEST(RotateOffsets, BeyondTwoToThe31) {  // BR-110
  const json c = report("BR-110");
  const auto cases = c.at("inputs").at("cases").get<std::vector<std::array<index_t, 3>>>();
  const auto expected = c.at("expected").at("offset").get<std::vector<index_t>>();
  const auto wrong = c.at("wrong").at("offset").get<std::vector<index_t>>();
  const rope encoding(ladder_of(4));
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto [token, heads, width] = cases[i];
    // Address space for all, memory only for the two pages that are touched.
    const std::size_t bytes = static_cast<std::size_t>((token + 1) * heads * width) * sizeof(posenc::half);
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) GTEST_SKIP() << "no address space for " << bytes << " bytes";
    auto* data = static_cast<posenc::half*>(memory);
    const auto all = view_thd(data, token + 1, heads, width);
    EXPECT_EQ(all.row(0, 0, token) - data, expected[i]);
    EXPECT_NE(all.row(0, 0, token) - data, wrong[i]);

    // Two tokens, so far apart.
    const tensor_view<posenc::half> ends(data, {1, 1, 2, 4}, {0, 0, token * heads * width, 1});
    write(ends, {1, 2, 3, 4, 1, 2, 3, 4});
    rotate(ends, token_range(2, 3), encoding);
    auto near = as_elements<posenc::half>({1, 2, 3, 4, 1, 2, 3, 4});
    rotate(view_thd(near.data(), 2, 1, 4), token_range(2, 3), encoding);
    EXPECT_EQ(read(ends), as_doubles(near));
    munmap(memory, bytes);
  }
}
#endif

// ---- executors ----

/// Runs tasks on threads, the last task first.
struct threads {
  int count;

  void parallel_for(index_t n, const auto& f) const {
    std::atomic<index_t> next{n};
    std::vector<std::thread> workers;
    for (int i = 0; i < count; ++i)
      workers.emplace_back([&] {
        for (index_t task = --next; task >= 0; task = --next) f(task);
      });
    for (std::thread& t : workers) t.join();
  }
};

/// Counts the tasks that it is given.
struct counting {
  index_t* tasks;
  void parallel_for(index_t n, const auto& f) const {
    *tasks += n;
    for (index_t i = 0; i < n; ++i) f(i);
  }
};

TYPED_TEST(Rotate, AnyExecutorGivesTheSameBits) {
  constexpr index_t batch = 2, tokens = 301, heads = 8, dim = 66;
  const rope encoding(ladder_of(64, 1.5), {.offset = 1});
  const auto x = as_elements<TypeParam>(pattern(batch * tokens * heads * dim));
  const auto k = as_elements<TypeParam>(pattern(batch * tokens * 2 * dim, 5));
  numbers own_positions(batch * tokens);
  for (std::size_t i = 0; i < own_positions.size(); ++i) own_positions[i] = static_cast<double>(i * i % 1000);
  for (const posenc::token_view& at : {token_range(tokens, 5), token_positions(own_positions.data(), tokens, batch)}) {
    const auto run = [&](auto&& executor) {
      auto y = x, z = k, w = x;
      const auto view = [&](std::vector<TypeParam>& data, index_t h) {
        return view_bthd(data.data(), batch, tokens, h, dim);
      };
      rotate_qk(view(y, heads), view(z, 2), at, encoding, executor);
      rerotate(view(w, heads), at, encoding, encoding, 4, {}, executor);
      y.insert(y.end(), z.begin(), z.end());
      y.insert(y.end(), w.begin(), w.end());
      return y;
    };
    const auto serial = run(posenc::serial_executor{});
    EXPECT_TRUE(equal_bits(run(threads{1}), serial));
    EXPECT_TRUE(equal_bits(run(threads{3}), serial));
    index_t tasks = 0;
    EXPECT_TRUE(equal_bits(run(counting{&tasks}), serial));
    EXPECT_GT(tasks, 4) << "the test means to cut the work";
  }
}

TEST(RotateExecutor, OneTokenOfManyRowsIsCut) {
  constexpr index_t batch = 50, heads = 16, dim = 128;
  const numbers values = pattern(batch * heads * dim);
  auto x = as_elements<float>(values), y = x;
  const rope encoding(ladder_of(dim));
  index_t tasks = 0;
  rotate(view_bthd(x.data(), batch, 1, heads, dim), token_range(1, 9), encoding, {}, counting{&tasks});
  EXPECT_EQ(tasks, 2);
  rotate(view_bthd(y.data(), 1, batch, heads, dim), token_positions(numbers(batch, 9.0).data(), batch), encoding);
  EXPECT_TRUE(equal_bits(x, y));
}

// The executor without options before it, for every function in place and out of place.
TYPED_TEST(Rotate, TakesAnExecutorWithoutOptions) {
  constexpr index_t tokens = 600, heads = 8, dim = 64;
  const rope encoding(ladder_of(dim, 1.5));
  const auto x = as_elements<TypeParam>(pattern(tokens * heads * dim));
  const posenc::token_view at = token_range(tokens, 5);
  const auto runs = [&](auto&& operation, auto&& to_compare) {
    auto y = x, z = x;
    std::vector<TypeParam> out(x.size());
    const auto view = [&](std::vector<TypeParam>& data) { return view_thd(data.data(), tokens, heads, dim); };
    index_t tasks = 0;
    const counting executor{&tasks};
    to_compare(view(z));
    operation(view(y), view(out), executor);
    EXPECT_TRUE(equal_bits(out, z));
    EXPECT_TRUE(equal_bits(y, z));
  };
  const auto in_turn = [](auto&& in_place, auto&& out_of_place) {
    return [=](auto y, auto out, const counting& executor) {
      out_of_place(y, out, executor);
      const index_t first = *executor.tasks;
      EXPECT_GT(first, 1) << "the test means to cut the work";
      in_place(y, executor);
      EXPECT_EQ(*executor.tasks, 2 * first);
    };
  };
  runs(in_turn([&](auto y, auto&& e) { rotate(y, at, encoding, e); },
               [&](auto y, auto out, auto&& e) { rotate(y, out, at, encoding, e); }),
       [&](auto z) { rotate(z, at, encoding); });
  runs(in_turn([&](auto y, auto&& e) { rotate_transposed(y, at, encoding, e); },
               [&](auto y, auto out, auto&& e) { rotate_transposed(y, out, at, encoding, e); }),
       [&](auto z) { rotate_transposed(z, at, encoding); });
  runs(in_turn([&](auto y, auto&& e) { unrotate(y, at, encoding, e); },
               [&](auto y, auto out, auto&& e) { unrotate(y, out, at, encoding, e); }),
       [&](auto z) { unrotate(z, at, encoding); });
  runs(in_turn([&](auto y, auto&& e) { rerotate(y, at, encoding, encoding, 3, e); },
               [&](auto y, auto out, auto&& e) { rerotate(y, out, at, encoding, encoding, 3, e); }),
       [&](auto z) { rerotate(z, at, encoding, encoding, 3); });
  posenc::serial_executor one;
  auto y = x, z = x;
  rotate(view_thd(y.data(), tokens, heads, dim), at, encoding, one);
  rotate(view_thd(z.data(), tokens, heads, dim), at, encoding, posenc::serial_executor{});
  EXPECT_TRUE(equal_bits(y, z));
}

TEST(RotateExecutor, SmallWorkIsNotCut) {
  std::vector<float> x(16 * 4 * 64, 1.0f);
  index_t tasks = 0;
  rotate(view_thd(x.data(), 16, 4, 64), token_range(16), rope(ladder_of(64)), {}, counting{&tasks});
  EXPECT_EQ(tasks, 0);
  EXPECT_NE(x.back(), 1.0f);
}

}  // namespace
