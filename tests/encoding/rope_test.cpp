// SPDX-License-Identifier: Apache-2.0
#include <posenc/encoding/rope.hpp>

#include <gtest/gtest.h>
#include <posenc/ladder/rotary_dim.hpp>
#include <posenc/ladder/yarn.hpp>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "encoding/rope_support.hpp"

namespace {

using namespace rope_test;
using encoding_test::check_text;
using encoding_test::largest_difference;
using encoding_test::real_names;
using encoding_test::real_types;
using encoding_test::turned;
using posenc::dim_range;
using posenc::errc;
using posenc::position_span;
using posenc::rotation_op;
using posenc::token_positions;
using posenc::token_range;
using posenc::token_role;

/// The row that describes a rotation.
template <class Real>
std::vector<Real> row_of(const rope& encoding, const numbers& position, rotation_op op = rotation_op::rotate) {
  std::vector<Real> row(static_cast<std::size_t>(encoding.rotation_size({})) + 1, Real(-77));
  encoding.prepare_rotation({}, position_span(position), {token_role::key, op}, row.data());
  EXPECT_EQ(row.back(), Real(-77)) << "written past the end of the row";
  row.pop_back();
  return row;
}

// ---- angles ----

template <class Real>
struct RopeAngles : testing::Test {};
TYPED_TEST_SUITE(RopeAngles, real_types, real_names);

TYPED_TEST(RopeAngles, AreThoseOfTheExactProduct) {
  double practice = 0;
  const json data = data_of("rope_cos_sin.json");
  for (const json& set : data.at("cases")) {
    const numbers rounded = set.at("inv_freq_float");
    const rope exact(frequency_ladder(128, {.base = set.at("base")})),
        from_floats(frequency_ladder::from_inv_freq(rounded));
    for (const json& at : set.at("positions")) {
      const double position = at.at("position");
      const auto compare = [&](const rope& encoding, const char* cos, const char* sin, double angle_error) {
        const std::vector<TypeParam> row = row_of<TypeParam>(encoding, {position});
        const numbers c = at.at(cos), s = at.at(sin);
        for (std::size_t k = 0; k < 64; ++k) {
          const double angle = position * encoding.ladder().inv_freq(static_cast<index_t>(k));
          // Half an ulp of float and what the bound on angles allows; for double, an ulp and the frequency's own rounding.
          const double bound = std::is_same_v<TypeParam, float> ? 0x1p-25 + 0x1p-36 : 3e-16 + angle_error * angle;
          EXPECT_NEAR(row[k], c[k], bound) << cos << " of pair " << k << " at " << position;
          EXPECT_NEAR(row[64 + k], s[k], bound) << sin << " of pair " << k << " at " << position;
        }
      };
      // The table's frequencies are real numbers, the ladder's are rounded to double.
      compare(exact, "cos", "sin", 0x1p-53);
      compare(from_floats, "cos_float", "sin_float", 0);
      practice = (std::max)(practice, at.at("float_practice_error").get<double>());
    }
  }
  EXPECT_GT(practice, 0.5);  // what the test would be up against
}

TYPED_TEST(RopeAngles, OfLowPrecisionTablesAreNotOurs) {  // BR-001, BR-003
  const json first = report("BR-001"), second = report("BR-003");
  const rope one(frequency_ladder::from_inv_freq(numbers{first.at("inputs").at("inv_freq")}));
  const auto row = row_of<TypeParam>(one, {first.at("inputs").at("position")});
  EXPECT_NEAR(row[0], first.at("expected").at("cos").get<double>(), tolerance<TypeParam>(first));
  EXPECT_NEAR(row[1], first.at("expected").at("sin").get<double>(), tolerance<TypeParam>(first));
  EXPECT_GT(std::fabs(row[0] - first.at("wrong").at("cos").get<double>()), 0.1);

  const auto pair = second.at("inputs").at("pair").get<std::size_t>();
  const rope usual(frequency_ladder(second.at("inputs").at("rotary_dim"), {.base = second.at("inputs").at("base")}));
  const auto usual_row = row_of<TypeParam>(usual, {second.at("inputs").at("position")});
  EXPECT_NEAR(usual_row[pair], second.at("expected").at("cos").get<double>(), tolerance<TypeParam>(second));
  EXPECT_NEAR(usual_row[64 + pair], second.at("expected").at("sin").get<double>(), tolerance<TypeParam>(second));
  EXPECT_GT(std::fabs(usual_row[pair] - second.at("wrong").at("cos").get<double>()), 0.1);
}

TYPED_TEST(RopeAngles, AreReducedHoweverLarge) {  // BR-004
  const json c = report("BR-004");
  const rope one(frequency_ladder::from_inv_freq(numbers{c.at("inputs").at("inv_freq")}));
  EXPECT_NEAR(row_of<TypeParam>(one, {c.at("inputs").at("position_cos")})[0], c.at("expected").at("cos").get<double>(),
              tolerance<TypeParam>(c));
  EXPECT_NEAR(row_of<TypeParam>(one, {c.at("inputs").at("position_sin")})[1], c.at("expected").at("sin").get<double>(),
              tolerance<TypeParam>(c));
  EXPECT_GT(std::fabs(c.at("wrong").at("cos").get<double>()), 1);
}

TYPED_TEST(RopeAngles, HoldForFractionalAndNegativePositions) {
  const rope encoding(ladder_of(10));
  for (const double position : {-3.0, 0.25, -1000000.5, 2147483647.0}) {
    const auto row = row_of<TypeParam>(encoding, {position});
    const numbers angles = angles_of(encoding.ladder(), position);
    for (std::size_t i = 0; i < 5; ++i) {
      const long double angle = static_cast<long double>(position) * encoding.ladder().inv_freq()[i];
      const double bound = std::is_same_v<TypeParam, float> ? 0x1p-25 + 0x1p-36 : 3e-16 + 1e-19 * std::fabs(angles[i]);
      EXPECT_NEAR(row[i], static_cast<double>(std::cos(angle)), bound) << position;
      EXPECT_NEAR(row[5 + i], static_cast<double>(std::sin(angle)), bound) << position;
    }
  }
}

TYPED_TEST(RopeAngles, OfTheFourOperations) {
  const double factor = 1.25;
  const rope encoding(ladder_of(12, factor));
  const auto forward = row_of<TypeParam>(encoding, {41});
  const auto transposed = row_of<TypeParam>(encoding, {41}, rotation_op::transposed);
  const auto inverse = row_of<TypeParam>(encoding, {41}, rotation_op::inverse);
  const double eps = std::is_same_v<TypeParam, float> ? 3e-7 : 1e-15;
  for (std::size_t i = 0; i < 6; ++i) {
    const double angle = 41 * encoding.ladder().inv_freq()[i];
    EXPECT_NEAR(forward[i], factor * std::cos(angle), eps);
    EXPECT_NEAR(forward[6 + i], factor * std::sin(angle), eps);
    EXPECT_EQ(transposed[i], forward[i]);
    EXPECT_EQ(transposed[6 + i], -forward[6 + i]);
    EXPECT_NEAR(inverse[i], std::cos(angle) / factor, eps);
    EXPECT_NEAR(inverse[6 + i], -std::sin(angle) / factor, eps);
  }
}

// ---- the rotation of one head ----

template <class Real>
struct RopeTurns : testing::Test {};
TYPED_TEST_SUITE(RopeTurns, real_types, real_names);

TYPED_TEST(RopeTurns, EveryWidthOffsetAndPairing) {
  const double position = 17, factor = 1.125;
  for (const pairing how : pairings)
    for (index_t rotary_dim = 2; rotary_dim <= 150; rotary_dim += rotary_dim < 74 ? 2 : 18)
      for (const index_t offset : {0, 1, 4}) {
        const rope encoding(ladder_of(rotary_dim, factor), {.pairing = how, .offset = offset});
        const index_t head_dim = offset + rotary_dim + 3;
        const numbers x = pattern(head_dim, static_cast<int>(rotary_dim));
        const auto y = turned(encoding, position, as_elements<TypeParam>(x));
        const numbers expected = turned_by_formula(x, angles_of(encoding.ladder(), position), how, offset, factor);
        EXPECT_LE(largest_difference(as_doubles(y), expected),
                  rotation_bound<TypeParam>(position, largest_of(expected)))
            << rotary_dim << " dimensions from " << offset << (how == pairing::half ? ", half" : ", interleaved");
        for (index_t d = 0; d < head_dim; ++d)
          if (d < offset || d >= offset + rotary_dim) {
            EXPECT_EQ(y[static_cast<std::size_t>(d)], static_cast<TypeParam>(x[static_cast<std::size_t>(d)]));
          }
      }
}

TYPED_TEST(RopeTurns, AHeadAsItsPairingSays) {  // BR-020
  const json c = report("BR-020");
  const numbers x = c.at("inputs").at("x");
  for (const pairing how : pairings) {
    const char* name = how == pairing::half ? "half" : "interleaved";
    const rope encoding(frequency_ladder(4, {.base = c.at("inputs").at("base")}), {.pairing = how});
    const numbers y = as_doubles(turned(encoding, c.at("inputs").at("position"), as_elements<TypeParam>(x)));
    EXPECT_LE(largest_difference(y, c.at("expected").at(name).get<numbers>()), tolerance<TypeParam>(c)) << name;
    EXPECT_GT(largest_difference(y, c.at("wrong").at(name).get<numbers>()), 0.1) << name;
  }
}

TYPED_TEST(RopeTurns, ScoresAlikeInBothPairingsAfterReordering) {  // BR-022
  const json c = report("BR-022");
  const numbers q = c.at("inputs").at("q"), k = c.at("inputs").at("k");
  const auto score = [&](pairing how, const numbers& a, const numbers& b) {
    const rope encoding(frequency_ladder(4, {.base = c.at("inputs").at("base")}), {.pairing = how});
    const auto x = turned(encoding, c.at("inputs").at("q_position"), as_elements<TypeParam>(a));
    const auto y = turned(encoding, c.at("inputs").at("k_position"), as_elements<TypeParam>(b));
    double sum = 0;
    for (std::size_t i = 0; i < 4; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
    return sum;
  };
  const auto reordered = [](const numbers& x) { return numbers{x[0], x[2], x[1], x[3]}; };
  EXPECT_NEAR(score(pairing::half, q, k), c.at("expected").at("score_half").get<double>(), tolerance<TypeParam>(c));
  EXPECT_NEAR(score(pairing::interleaved, reordered(q), reordered(k)),
              c.at("expected").at("score_interleaved_after_reorder").get<double>(), tolerance<TypeParam>(c));
  EXPECT_GT(std::fabs(score(pairing::interleaved, q, k) - c.at("expected").at("score_half").get<double>()), 1);
}

TYPED_TEST(RopeTurns, PartOfAHead) {  // BR-024
  const json c = report("BR-024");
  const index_t rotary_dim = posenc::partial_rotary_dim(c.at("inputs").at("head_dim"),
                                                        c.at("inputs").at("partial_rotary_factor").get<double>());
  EXPECT_EQ(rotary_dim, c.at("expected").at("rotary_dim").get<index_t>());
  const rope encoding{frequency_ladder(rotary_dim, {.base = c.at("inputs").at("base")})};
  const numbers y =
      as_doubles(turned(encoding, c.at("inputs").at("position"), as_elements<TypeParam>(c.at("inputs").at("x"))));
  EXPECT_LE(largest_difference(y, c.at("expected").at("y").get<numbers>()), tolerance<TypeParam>(c));
  EXPECT_GT(largest_difference(y, c.at("wrong").at("y").get<numbers>()), 1);
}

TYPED_TEST(RopeTurns, ByRelativePosition) {
  // <R(25) q, R(10) k> = <R(15) q, k>, and the same difference gives the same score wherever it stands.
  for (const pairing how : pairings) {
    const rope encoding(ladder_of(64), {.pairing = how});
    const auto q = as_elements<TypeParam>(pattern(64, 3)), k = as_elements<TypeParam>(pattern(64, 4));
    const auto score = [&](double a, double b) {
      const auto x = turned(encoding, a, q), y = turned(encoding, b, k);
      double sum = 0;
      for (std::size_t i = 0; i < 64; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
      return sum;
    };
    const double bound = std::is_same_v<TypeParam, float> ? 5e-5 : 1e-12;
    EXPECT_NEAR(score(25, 10), score(15, 0), bound);
    EXPECT_NEAR(score(100025, 100010), score(15, 0), bound);
    EXPECT_NEAR(score(-3.5, -18.5), score(15, 0), bound);
    EXPECT_GT(std::fabs(score(25, 10) - score(25, 11)), 0.01);
  }
}

TYPED_TEST(RopeTurns, NearFarPositionsApart) {  // BR-005
  const json c = report("BR-005");
  const rope encoding(frequency_ladder::from_inv_freq(c.at("inputs").at("inv_freq").get<numbers>()));
  const numbers positions = c.at("inputs").at("positions");
  std::vector<numbers> y;
  for (const double p : positions) y.push_back(as_doubles(turned(encoding, p, as_elements<TypeParam>({1, 0}))));
  EXPECT_LE(largest_difference(y[0], c.at("expected").at("y0").get<numbers>()), tolerance<TypeParam>(c));
  EXPECT_LE(largest_difference(y[1], c.at("expected").at("y1").get<numbers>()), tolerance<TypeParam>(c));
  const double dot = y[0][0] * y[1][0] + y[0][1] * y[1][1];
  EXPECT_NEAR(dot, c.at("expected").at("dot").get<double>(), tolerance<TypeParam>(c));
  EXPECT_GT(std::fabs(dot - c.at("wrong").at("dot").get<double>()), 0.4);
}

TYPED_TEST(RopeTurns, UnrotatedComesBack) {
  for (const pairing how : pairings) {
    const rope encoding(ladder_of(40, 1.3), {.pairing = how, .offset = 2});
    const auto x = as_elements<TypeParam>(pattern(45));
    auto y = turned(encoding, 777, x);
    EXPECT_GT(largest_difference(y, x), 0.5);
    y = turned(encoding, 777, y, token_role::key, rotation_op::inverse);
    EXPECT_LE(largest_difference(y, x), (std::is_same_v<TypeParam, float> ? 2e-6 : 1e-14));
  }
}

// ---- several position axes ----

TYPED_TEST(RopeTurns, EachPairByItsOwnAxis) {  // BR-118
  const json c = report("BR-118");
  const rope encoding(frequency_ladder(8, {.base = c.at("inputs").at("base")}),
                      {.frequency_axis = posenc::mrope_sections(c.at("inputs").at("mrope_section"))});
  const auto turn = [&](const numbers& position) {
    std::vector<TypeParam> x = as_elements<TypeParam>(c.at("inputs").at("x"));
    const auto row = row_of<TypeParam>(encoding, position);
    encoding.apply_rotation({8, 1}, row.data(), 0, x.data());
    return as_doubles(x);
  };
  const double text = c.at("inputs").at("text_position");
  EXPECT_LE(largest_difference(turn({text, text, text}), c.at("expected").at("y_text").get<numbers>()),
            tolerance<TypeParam>(c));
  const numbers image = turn(c.at("inputs").at("thw"));
  EXPECT_LE(largest_difference(image, c.at("expected").at("y_thw").get<numbers>()), tolerance<TypeParam>(c));
  EXPECT_GT(largest_difference(image, c.at("wrong").at("y_thw").get<numbers>()), 0.01);
}

TYPED_TEST(RopeTurns, AxesInAnyOrder) {
  // More pairs than are computed at once, the axes mixed up; against the row of each axis on its own.
  const index_t pairs = 150;
  std::vector<index_t> axes;
  for (index_t i = 0; i < pairs; ++i) axes.push_back((i * 7 + i / 5) % 4);
  const frequency_ladder ladder = ladder_of(2 * pairs, 1.5);
  const rope mixed(ladder, {.frequency_axis = axes}), plain(ladder);
  const numbers position = {3, -20.5, 123456, 0};
  for (const rotation_op op : {rotation_op::rotate, rotation_op::transposed, rotation_op::inverse}) {
    const auto row = row_of<TypeParam>(mixed, position, op);
    std::vector<std::vector<TypeParam>> of_axis;
    for (const double p : position) of_axis.push_back(row_of<TypeParam>(plain, {p}, op));
    for (index_t i = 0; i < pairs; ++i) {
      const auto at = static_cast<std::size_t>(i), sine = static_cast<std::size_t>(pairs + i);
      EXPECT_EQ(row[at], of_axis[static_cast<std::size_t>(axes[at])][at]) << i;
      EXPECT_EQ(row[sine], of_axis[static_cast<std::size_t>(axes[at])][sine]) << i;
    }
  }
}

using axis_list = std::vector<index_t>;

TEST(RopeAxes, SectionsAndInterleaved) {
  EXPECT_EQ(posenc::mrope_sections({2, 3, 3}), (axis_list{0, 0, 1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(posenc::mrope_sections({1, 0, 2, 1}), (axis_list{0, 2, 2, 3}));
  EXPECT_EQ(posenc::mrope_interleaved({3, 3, 2}), (axis_list{0, 1, 2, 0, 1, 2, 0, 1}));
  EXPECT_EQ(posenc::mrope_interleaved({2, 1, 0}), (axis_list{0, 1, 0}));
  const axis_list qwen = posenc::mrope_interleaved({24, 20, 20});
  ASSERT_EQ(qwen.size(), 64u);
  for (std::size_t i = 0; i < 60; ++i) EXPECT_EQ(qwen[i], static_cast<index_t>(i % 3));
  EXPECT_EQ(axis_list(qwen.begin() + 60, qwen.end()), (axis_list{0, 0, 0, 0}));
  axis_list other = posenc::mrope_interleaved({12, 10, 10});  // 32 pairs, the last two of time
  EXPECT_EQ(axis_list(other.end() - 3, other.end()), (axis_list{2, 0, 0}));
}

TEST(RopeAxes, SectionsThatCannotBe) {
  POSENC_EXPECT_ERROR(posenc::mrope_sections({}), errc::invalid_shape, "sections: has 0 entries");
  POSENC_EXPECT_ERROR((posenc::mrope_sections({4, -1})), errc::invalid_value, "sections: has -1 pairs");
  POSENC_EXPECT_ERROR(posenc::mrope_sections(axis_list(9, 1)), errc::invalid_shape, "has 9 entries");
  POSENC_EXPECT_ERROR((posenc::mrope_interleaved({4, 4})), errc::invalid_shape, "allowed: 3");
  POSENC_EXPECT_ERROR((posenc::mrope_interleaved({2, 5, 1})), errc::invalid_value, "has 5 pairs for axis 1");
}

// ---- the object ----

TEST(Rope, SaysWhatItTurns) {
  const rope encoding(ladder_of(6), {.offset = 5});
  const dim_range turned_dims = encoding.rotated_dims({16, 2});
  EXPECT_EQ(turned_dims.begin, 5);
  EXPECT_EQ(turned_dims.end, 11);
  EXPECT_EQ(encoding.rotation_size({16, 2}), 6);
  EXPECT_FALSE(posenc::detail::depends_on_role<rope>());
  static_assert(posenc::rotary_encoding<rope> && posenc::attention_encoding<rope>);
  static_assert(posenc::detail::check_rotary_encoding<rope>());
}

TEST(Rope, EqualityIsThatOfTheRotation) {
  const frequency_ladder ladder = ladder_of(8);
  const rope plain(ladder);
  EXPECT_TRUE(plain == rope(ladder));
  EXPECT_TRUE(plain == rope(ladder, {.frequency_axis = {0, 0, 0, 0}}));
  EXPECT_FALSE(plain == rope(ladder, {.frequency_axis = {0, 0, 0, 1}}));
  EXPECT_FALSE(plain == rope(ladder, {.pairing = pairing::interleaved}));
  EXPECT_FALSE(plain == rope(ladder, {.offset = 1}));
  EXPECT_FALSE(plain == rope(ladder_of(8, 1, 10001)));
  EXPECT_FALSE(plain == rope(ladder_of(8, 1.5)));
}

TEST(Rope, RefusesOptionsThatCannotBe) {
  POSENC_EXPECT_ERROR((rope(ladder_of(8), {.offset = -1})), errc::invalid_value, "offset: is -1");
  POSENC_EXPECT_ERROR((rope(ladder_of(8), {.frequency_axis = {0, 1, 2}})), errc::invalid_shape,
                      "frequency_axis: has 3 entries for a ladder of 4 pairs");
  POSENC_EXPECT_ERROR((rope(ladder_of(8), {.frequency_axis = {0, 1, 2, 8}})), errc::invalid_value,
                      "frequency_axis: [3] is 8; allowed: 0 to 7");
  POSENC_EXPECT_ERROR((rope(ladder_of(8), {.frequency_axis = {0, -1, 2, 3}})), errc::invalid_value, "[1] is -1");
  EXPECT_FALSE(rope::check(ladder_of(8), {.frequency_axis = {0, 7, 0, 0}}).has_value());
}

TEST(Rope, ChecksHeadsAndTokens) {
  const rope encoding(ladder_of(6), {.offset = 3});
  EXPECT_EQ(check_text(encoding, token_range(5), 4, 2, 9), "");
  EXPECT_NE(
      check_text(encoding, token_range(5), 4, 2, 8).find("rope turns 6 dimensions from offset 3 on and heads have 8"),
      std::string::npos);
  const numbers positions(15, 1.0);
  const auto three = token_positions(positions.data(), 5, 1, 3).with_order(positions.data());
  const rope two_axes(ladder_of(6), {.frequency_axis = {0, 1, 0}}),
      four_axes(ladder_of(6), {.frequency_axis = {0, 3, 2}});
  EXPECT_EQ(check_text(two_axes, three, 4, 2, 8), "");
  const auto lacks_axes = [&](const rope& e, const posenc::token_view& tokens, const char* text) {
    const std::string found = check_text(e, tokens, 4, 2, 8);
    EXPECT_NE(found.find(text), std::string::npos) << found;
  };
  lacks_axes(two_axes, token_range(5),
             "rope reads the position axis 1 (counted from 0) and tokens.q has 1 axis; allowed: tokens with 2 axes and "
             "more");
  lacks_axes(four_axes, three,
             "rope reads the position axis 3 (counted from 0) and tokens.q has 3 axes; allowed: tokens with 4 axes and "
             "more");
}

}  // namespace
