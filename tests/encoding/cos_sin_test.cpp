// SPDX-License-Identifier: Apache-2.0
// Tables of cosines and sines: written for others, and those of others applied.
#include <posenc/encoding/cos_sin.hpp>

#include <gtest/gtest.h>
#include <posenc/encoding/any_encoding.hpp>
#include <posenc/encoding/cos_sin_tables.hpp>

#include <limits>
#include <string>
#include <vector>

#include "encoding/rope_support.hpp"

namespace {

using namespace rope_test;
using posenc::cos_sin_form;
using posenc::cos_sin_tables;
using posenc::errc;
using posenc::token_range;
using posenc::view_thd;

constexpr cos_sin_form forms[] = {cos_sin_form::one_a_pair, cos_sin_form::twice_in_halves,
                                  cos_sin_form::twice_neighbouring};

index_t width_of(cos_sin_form form, index_t pairs) { return form == cos_sin_form::one_a_pair ? pairs : 2 * pairs; }

/// Which pair column i of a row belongs to.
index_t pair_of(cos_sin_form form, index_t i, index_t pairs) {
  return form == cos_sin_form::twice_neighbouring ? i / 2 : i % pairs;
}

template <class T>
struct tables {
  std::vector<T> cos, sin;
  index_t width, stride;

  tables(const rope& encoding, const posenc::token_view& tokens, posenc::cos_sin_options options) {
    width = width_of(options.form, encoding.ladder().size());
    stride = options.row_stride == 0 ? width : options.row_stride;
    const auto size = static_cast<std::size_t>(tokens.batch() * tokens.count() * stride);
    cos.assign(size, T(-7));
    sin.assign(size, T(-7));
    posenc::write_cos_sin(encoding, tokens, cos.data(), sin.data(), options);
  }
};

template <class T>
struct CosSin : testing::Test {};
TYPED_TEST_SUITE(CosSin, element_types, element_names);

template <class T>
double table_bound() {
  switch (posenc::dtype_of<T>) {
    case posenc::dtype::float64: return 2e-15;
    case posenc::dtype::float32: return 1e-7;
    case posenc::dtype::half: return 0x1p-11;
    default: return 0x1p-8;
  }
}

TYPED_TEST(CosSin, RowsAreThoseOfTheFormula) {
  for (const index_t pairs : {index_t{5}, index_t{32}})
    for (const index_t count : {index_t{3}, index_t{300}})
      for (const cos_sin_form form : forms)
        for (const index_t extra : {index_t{0}, index_t{3}}) {
          const rope encoding(ladder_of(2 * pairs, 1.25));
          posenc::cos_sin_options options{.form = form};
          if (extra != 0) options.row_stride = width_of(form, pairs) + extra;
          const tables<TypeParam> t(encoding, token_range(count, 40), options);
          for (index_t r = 0; r < count; ++r)
            for (index_t i = 0; i < t.stride; ++i) {
              const double c = static_cast<double>(t.cos[static_cast<std::size_t>(r * t.stride + i)]);
              const double s = static_cast<double>(t.sin[static_cast<std::size_t>(r * t.stride + i)]);
              if (i >= t.width) {
                ASSERT_EQ(c, -7) << "written between the rows";
                continue;
              }
              const long double angle =
                  static_cast<long double>(40 + r) * encoding.ladder().inv_freq(pair_of(form, i, pairs));
              ASSERT_NEAR(c, static_cast<double>(1.25L * std::cos(angle)), 1.25 * table_bound<TypeParam>());
              ASSERT_NEAR(s, static_cast<double>(1.25L * std::sin(angle)), 1.25 * table_bound<TypeParam>());
            }
        }
}

// A token's own positions, several axes, rows of a batch.
TYPED_TEST(CosSin, RowsOfTokensWithSeveralAxes) {
  const rope encoding(ladder_of(16), {.frequency_axis = posenc::mrope_sections({2, 3, 3})});
  const numbers positions = {0, 1, 2, 3, 9, 8, /**/ 5, 5, 6, 6, 1, 0, /**/ 4, 3, 2, 1, 0, 0.5};
  const numbers order(6, 0.0);
  const auto tokens = posenc::token_positions(positions.data(), 3, 2, 3).with_order(order.data());
  const tables<TypeParam> t(encoding, tokens, {.form = cos_sin_form::twice_in_halves});
  for (index_t row = 0; row < 6; ++row)
    for (index_t i = 0; i < 16; ++i) {
      const index_t pair = i % 8, axis = pair < 2 ? 0 : pair < 5 ? 1 : 2;
      const double angle = positions[static_cast<std::size_t>(axis * 6 + row)] * encoding.ladder().inv_freq(pair);
      EXPECT_NEAR(static_cast<double>(t.cos[static_cast<std::size_t>(row * 16 + i)]), std::cos(angle),
                  table_bound<TypeParam>());
    }
}

/// A row of one number a pair in another form.
template <class T>
std::vector<T> in_form(const std::vector<T>& one_a_pair, cos_sin_form form) {
  const auto pairs = static_cast<index_t>(one_a_pair.size());
  std::vector<T> row;
  for (index_t i = 0; i < width_of(form, pairs); ++i)
    row.push_back(one_a_pair[static_cast<std::size_t>(pair_of(form, i, pairs))]);
  return row;
}

// Registers and what is left of a row, in every form, hold the bits of the first form.
TYPED_TEST(CosSin, FormsHoldTheSameBits) {
  numbers positions = encoding_test::range(-3, 150);
  std::swap(positions.front(), positions.back());  // and so these are no range
  const posenc::token_view scattered = posenc::token_positions(positions.data(), 150), series = token_range(150, -3);
  for (const index_t pairs : {1, 2, 3, 5, 8, 12, 16, 17, 31, 40, 64})
    for (const index_t extra : {index_t{0}, index_t{1}, index_t{2}}) {
      const rope encoding(ladder_of(2 * pairs, 1.25));
      const posenc::token_view& tokens = extra == 2 ? scattered : series;
      const tables<TypeParam> one(encoding, tokens, {});
      for (const cos_sin_form form : forms) {
        const tables<TypeParam> t(encoding, tokens,
                                  {.form = form, .row_stride = extra == 0 ? 0 : width_of(form, pairs) + extra});
        for (index_t r = 0; r < 150; ++r)
          for (index_t i = 0; i < t.stride; ++i) {
            const auto at = static_cast<std::size_t>(r * t.stride + i);
            const auto from = static_cast<std::size_t>(r * pairs + pair_of(form, i, pairs));
            ASSERT_TRUE(same_bits(t.cos[at], i < t.width ? one.cos[from] : TypeParam(-7))) << pairs << " " << i;
            ASSERT_TRUE(same_bits(t.sin[at], i < t.width ? one.sin[from] : TypeParam(-7))) << pairs << " " << i;
          }
      }
    }
}

// A token's row is the same, whatever the form of the tables that it is read from, and nothing is read behind them.
TYPED_TEST(CosSin, TablesOfAllFormsGiveTheSameRow) {
  using posenc::rotation_op;
  const auto check = [&]<class Real>(Real, index_t pairs) {
    const std::vector<TypeParam> c = as_elements<TypeParam>(pattern(pairs)),
                                 s = as_elements<TypeParam>(pattern(pairs, 2));
    for (const cos_sin_form form : forms)
      for (const auto op : {rotation_op::rotate, rotation_op::transposed, rotation_op::inverse}) {
        const std::vector<TypeParam> cos = in_form(c, form), sin = in_form(s, form);
        const cos_sin_tables<TypeParam> own(cos.data(), sin.data(), 1, width_of(form, pairs),
                                            {.rotary_dim = 2 * pairs});
        const double position = 0;
        std::vector<Real> row(static_cast<std::size_t>(2 * pairs + 1), Real(-7));
        own.prepare_rotation({}, posenc::position_span(&position, 1), {posenc::token_role::key, op}, row.data());
        for (index_t i = 0; i < pairs; ++i) {
          const auto at = static_cast<std::size_t>(i), behind = static_cast<std::size_t>(pairs + i);
          const double x = static_cast<double>(c[at]), y = static_cast<double>(s[at]);
          const double size = op == rotation_op::inverse ? std::fma(x, x, y * y) : 1, bound = size == 1 ? 0 : 1e-15;
          const double sign = op == rotation_op::rotate ? 1 : -1;
          const auto expected_cos = static_cast<Real>(x / size), expected_sin = static_cast<Real>(sign * y / size);
          ASSERT_NEAR(static_cast<double>(row[at]), static_cast<double>(expected_cos), bound * std::fabs(x / size));
          ASSERT_NEAR(static_cast<double>(row[behind]), static_cast<double>(expected_sin), bound * std::fabs(y / size));
        }
        ASSERT_EQ(row.back(), Real(-7));
      }
  };
  for (const index_t pairs : {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 24, 33, 64}) {
    check(float{}, pairs);
    check(double{}, pairs);
  }
}

// A single bit of a number that should stand twice is seen, in either table and at any place; what lies between the rows
// does not count.
TYPED_TEST(CosSin, TablesLookAtEveryNumber) {
  constexpr index_t rows = 3;
  for (const index_t pairs : {2, 3, 8, 17, 33})
    for (const cos_sin_form form : {cos_sin_form::twice_in_halves, cos_sin_form::twice_neighbouring}) {
      const index_t width = 2 * pairs, stride = width + 3;
      const std::vector<TypeParam> row = in_form(as_elements<TypeParam>(pattern(pairs)), form),
                                   gap = as_elements<TypeParam>({1, 2, 3});
      std::vector<TypeParam> cos;
      for (index_t r = 0; r < rows; ++r) {
        cos.insert(cos.end(), row.begin(), row.end());
        if (r + 1 < rows) cos.insert(cos.end(), gap.begin(), gap.end());
      }
      std::vector<TypeParam> sin = cos;
      const auto check = [&] {
        return cos_sin_tables<TypeParam>::check(cos.data(), sin.data(), rows, width,
                                                {.rotary_dim = width, .row_stride = stride});
      };
      ASSERT_FALSE(check());
      for (std::vector<TypeParam>* table : {&cos, &sin})
        for (index_t r = 0; r < rows; ++r)
          for (index_t i = 0; i < width; ++i) {
            auto* const bytes = reinterpret_cast<unsigned char*>(table->data() + r * stride + i);
            for (std::size_t byte = 0; byte < sizeof(TypeParam); ++byte) {
              bytes[byte] ^= 1;
              const auto found = check();
              bytes[byte] ^= 1;
              ASSERT_TRUE(found) << pairs << " row " << r << " column " << i;
              ASSERT_EQ(found->code(), errc::invalid_value);
            }
          }
    }
}

template <class T, class E>
std::vector<T> turned(const numbers& x, index_t tokens, index_t heads, index_t dim, const posenc::token_view& at,
                      const E& encoding, posenc::rotation_op op = posenc::rotation_op::rotate) {
  std::vector<T> data = as_elements<T>(x);
  const auto view = view_thd(data.data(), tokens, heads, dim);
  if (op == posenc::rotation_op::rotate) posenc::rotate(view, at, encoding);
  if (op == posenc::rotation_op::transposed) posenc::rotate_transposed(view, at, encoding);
  if (op == posenc::rotation_op::inverse) posenc::unrotate(view, at, encoding);
  return data;
}

// What is exported rotates like the encoding that it came from: in every form, type, pairing and operation.
TYPED_TEST(CosSin, TablesRotateAsTheEncodingDoes) {
  constexpr index_t count = 70, heads = 3, dim = 24;
  const numbers x = pattern(count * heads * dim);
  for (const pairing how : pairings)
    for (const cos_sin_form form : forms)
      for (const auto op :
           {posenc::rotation_op::rotate, posenc::rotation_op::transposed, posenc::rotation_op::inverse}) {
        const rope encoding(ladder_of(16, 1.25), {.pairing = how, .offset = 4});
        const auto at = token_range(count, 100);
        const auto check = [&]<class Table>() {
          const tables<Table> t(encoding, token_range(200, 50), {.form = form});
          const cos_sin_tables<Table> own(t.cos.data(), t.sin.data(), 200, t.width,
                                          {.rotary_dim = 16, .pairing = how, .offset = 4, .first_position = 50});
          const auto a = as_doubles(turned<TypeParam>(x, count, heads, dim, at, own, op)),
                     b = as_doubles(turned<TypeParam>(x, count, heads, dim, at, encoding, op));
          const double bound = std::max(rotation_bound<TypeParam>(170, 4.0), 8 * table_bound<Table>());
          EXPECT_LE(encoding_test::largest_difference(a, b), bound);
        };
        check.template operator()<TypeParam>();
        check.template operator()<float>();
        check.template operator()<posenc::half>();
        check.template operator()<posenc::bfloat16>();
      }
}

TEST(CosSinTables, RotateThroughAnyEncodingToo) {
  const rope encoding(ladder_of(16));
  const tables<float> t(encoding, token_range(20), {});
  const cos_sin_tables<float> own(t.cos.data(), t.sin.data(), 20, 8, {.rotary_dim = 16});
  const numbers x = pattern(20 * 16);
  const auto a = turned<float>(x, 20, 1, 16, token_range(20), posenc::any_encoding(own)),
             b = turned<float>(x, 20, 1, 16, token_range(20), encoding);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i], b[i]);
}

TEST(CosSinTables, SayWhatTheyFound) {
  std::vector<float> c(64, 0.5f), s(64, 0.25f);
  const auto check = [&](index_t width, index_t rotary_dim) {
    return cos_sin_tables<float>::check(c.data(), s.data(), 2, width, {.rotary_dim = rotary_dim});
  };
  EXPECT_FALSE(check(8, 16));
  EXPECT_FALSE(check(16, 16));
  const auto narrow = check(12, 16);
  ASSERT_TRUE(narrow);
  EXPECT_EQ(narrow->code(), errc::invalid_shape);
  EXPECT_NE(std::string(narrow->what()).find("width: is 12 for rotary_dim 16; allowed: 8 (one number a pair) or 16"),
            std::string::npos)
      << narrow->what();
  EXPECT_TRUE(check(8, 15));
  EXPECT_TRUE(check(8, 0));
  // Numbers that should stand twice.
  c[3] = 0.75f;
  const auto unlike = check(16, 16);
  ASSERT_TRUE(unlike);
  EXPECT_EQ(unlike->code(), errc::invalid_value);
  EXPECT_TRUE(cos_sin_tables<float>::check(nullptr, s.data(), 2, 8, {.rotary_dim = 16}));
  EXPECT_TRUE(cos_sin_tables<float>::check(c.data(), s.data(), 0, 8, {.rotary_dim = 16}));
  EXPECT_TRUE(cos_sin_tables<float>::check(c.data(), s.data(), 2, 8, {.rotary_dim = 16, .offset = -1}));
  EXPECT_TRUE(cos_sin_tables<float>::check(c.data(), s.data(), 2, 8, {.rotary_dim = 16, .first_position = 0.5}));
  EXPECT_TRUE(cos_sin_tables<float>::check(c.data(), s.data(), 2, 8, {.rotary_dim = 16, .row_stride = 7}));
}

TEST(CosSinTables, RefusePositionsWithoutARow) {
  std::vector<float> c(64, 0.5f), s(64, 0.25f), x(3 * 16, 1.0f);
  const cos_sin_tables<float> own(c.data(), s.data(), 4, 8, {.rotary_dim = 16, .first_position = 10});
  const auto view = view_thd(x.data(), 3, 1, 16);
  EXPECT_FALSE(posenc::check(view, token_range(3, 11), own));
  const auto late = posenc::check(view, token_range(3, 12), own);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->code(), errc::out_of_range);
  EXPECT_NE(std::string(late->what()).find("position 14 at token 2"), std::string::npos) << late->what();
  EXPECT_TRUE(posenc::check(view, token_range(3, 9), own));
  EXPECT_TRUE(posenc::check(view, token_range(3, 10.5), own));
  EXPECT_TRUE(posenc::check(view_thd(x.data(), 3, 1, 8), token_range(3, 11), own));
}

TEST(WriteCosSin, RefusesWhatItCannotWrite) {
  const rope encoding(ladder_of(16));
  std::vector<float> c(64), s(64);
  EXPECT_FALSE(posenc::check_cos_sin(encoding, token_range(8), c.data(), s.data()));
  EXPECT_TRUE(posenc::check_cos_sin(encoding, token_range(8), c.data(), c.data()));
  EXPECT_TRUE(posenc::check_cos_sin(encoding, token_range(8), c.data(), static_cast<float*>(nullptr)));
  EXPECT_TRUE(posenc::check_cos_sin(encoding, token_range(8), c.data(), s.data(), {.row_stride = 7}));
  EXPECT_TRUE(posenc::check_cos_sin(rope(ladder_of(16), {.frequency_axis = posenc::mrope_sections({4, 4})}),
                                    token_range(8), c.data(), s.data()));
}

struct backwards {
  template <class F>
  void parallel_for(index_t n, F&& f) const {
    for (index_t i = n - 1; i >= 0; --i) f(i);
  }
};

// Executors do not change a bit.
TEST(WriteCosSin, DoesNotDependOnTheExecutor) {
  const rope encoding(ladder_of(64));
  const index_t rows = 3000;
  std::vector<float> c(rows * 32), s(rows * 32), c2(rows * 32), s2(rows * 32);
  posenc::write_cos_sin(encoding, token_range(rows), c.data(), s.data());
  posenc::write_cos_sin(encoding, token_range(rows), c2.data(), s2.data(), {}, backwards{});
  EXPECT_EQ(c, c2);
  EXPECT_EQ(s, s2);
}

// ---- float32, as common practice has it ----

TEST(Float32Angles, AreThoseOfTheCommonPractice) {
  const json data = data_of("rope_float32_practice.json");
  double worst_error = 0;
  for (const json& set : data.at("cases")) {
    const frequency_ladder ladder = frequency_ladder::from_inv_freq(numbers(set.at("inv_freq")));
    const rope practice(ladder, {.arithmetic = posenc::angle_arithmetic::float32});
    const rope exact(frequency_ladder(128, {.base = set.at("base")}));
    for (const json& at : set.at("positions")) {
      const double position = at.at("position");
      float row[128], right[128];
      practice.prepare_rotation({}, posenc::position_span(&position, 1), {}, row);
      exact.prepare_rotation({}, posenc::position_span(&position, 1), {}, right);
      double worst = 0;
      for (std::size_t k = 0; k < 128; ++k) {
        // Other libraries' float cosines are not always rounded to the nearest.
        const double expected = k < 64 ? at.at("cos")[k] : at.at("sin")[k - 64];
        EXPECT_NEAR(static_cast<double>(row[k]), expected, 1.2e-7) << "at " << position;
        worst = std::max(worst, std::fabs(static_cast<double>(row[k]) - static_cast<double>(right[k])));
      }
      EXPECT_NEAR(worst, at.at("error").get<double>(), 2e-7) << "at " << position;
      worst_error = std::max(worst_error, worst);
    }
  }
  EXPECT_GT(worst_error, 0.5);  // the practice is that far off
}

TEST(Float32Angles, OfGgmlAreARunningProduct) {
  const rope running(ladder_of(64), {.arithmetic = posenc::angle_arithmetic::float32_running});
  const double position = 4095;
  float row[64];
  running.prepare_rotation({}, posenc::position_span(&position, 1), {}, row);
  volatile float theta = 4095.0f;
  const float ratio = static_cast<float>(std::pow(10000.0, -2.0 / 64));
  for (std::size_t k = 0; k < 32; ++k) {
    EXPECT_NEAR(static_cast<double>(row[k]), std::cos(static_cast<double>(theta)), 0x1p-25 + 1e-11);
    theta = theta * ratio;
  }
  // Axes run over all pairs.
  const rope axes(ladder_of(64), {.frequency_axis = posenc::mrope_interleaved({12, 10, 10}),
                                  .arithmetic = posenc::angle_arithmetic::float32_running});
  const double same[] = {position, position, position};
  float other[64];
  axes.prepare_rotation({}, same, {}, other);
  for (std::size_t k = 0; k < 64; ++k) EXPECT_EQ(row[k], other[k]);
  EXPECT_TRUE(rope::check(frequency_ladder::from_inv_freq(numbers{1, 0.5, 0.3}),
                          {.arithmetic = posenc::angle_arithmetic::float32_running}));
  EXPECT_FALSE(rope::check(frequency_ladder::from_inv_freq(numbers{1, 0.5, 0.25}),
                           {.arithmetic = posenc::angle_arithmetic::float32_running}));
}

TEST(Float32Angles, AreAnotherRotation) {
  EXPECT_FALSE(rope(ladder_of(8)) == rope(ladder_of(8), {.arithmetic = posenc::angle_arithmetic::float32}));
}

}  // namespace
