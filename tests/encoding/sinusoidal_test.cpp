// SPDX-License-Identifier: Apache-2.0
#include <posenc/encoding/sinusoidal.hpp>

#include <numbers>
#include <random>

#include "encoding/encoding_support.hpp"

namespace {

using namespace encoding_test;
using posenc::sinusoidal;
using posenc::sinusoidal_divisor;
using posenc::sinusoidal_layout;
using posenc::sinusoidal_odd_width;
using posenc::sinusoidal_options;
using posenc::sinusoidal_table;

sinusoidal_options options_of(const json& c) {
  sinusoidal_options o;
  o.layout = c.at("layout") == "halves" ? sinusoidal_layout::halves : sinusoidal_layout::interleaved;
  o.divisor =
      c.at("divisor") == "half_width" ? sinusoidal_divisor::half_width : sinusoidal_divisor::half_width_minus_one;
  o.odd_width =
      c.at("odd_width") == "zero_column" ? sinusoidal_odd_width::zero_column : sinusoidal_odd_width::extra_column;
  o.cos_first = c.at("cos_first");
  o.scale = c.at("scale");
  if (c.contains("padding_idx")) o.padding_idx = c.at("padding_idx").get<index_t>();
  return o;
}

template <class Real>
std::vector<Real> row_of(const sinusoidal& encoding, double position) {
  std::vector<Real> row(static_cast<std::size_t>(encoding.width()), Real(-5));
  sinusoidal_table(encoding, std::span<const double>(&position, 1), row.data());
  return row;
}

TEST(SinusoidalTables, AreTheReferences) {
  const json data = data_of("encoding_sinusoidal.json");
  EXPECT_EQ(data.at("cases").size(), 22U);
  for (const json& c : data.at("cases")) {
    const sinusoidal encoding(c.at("d_model"), options_of(c));
    const auto positions = c.at("positions").get<numbers>();
    const auto table = c.at("table").get<std::vector<numbers>>();
    double largest = 0;
    for (const numbers& row : table)
      for (const double x : row) largest = (std::max)(largest, std::fabs(x));
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const std::string where = c.at("name").get<std::string>() + " at " + std::to_string(positions[i]);
      // The angle of every column is at most the position.
      EXPECT_LE(largest_difference(row_of<double>(encoding, positions[i]), table[i]),
                (1e-13 + 1e-15 * positions[i]) * largest)
          << where;
      EXPECT_LE(largest_difference(row_of<float>(encoding, positions[i]), table[i]), 4e-7 * largest) << where;
    }
  }
}

TEST(SinusoidalTables, KnownRows) {
  // Four decimals, as textbooks print them.
  const auto expect_row = [](const sinusoidal& encoding, double position, const numbers& row) {
    EXPECT_LE(largest_difference(row_of<double>(encoding, position), row), 5.001e-5);
  };
  expect_row(sinusoidal(4), 1, {0.8415, 0.5403, 0.0100, 0.9999});
  expect_row(sinusoidal(4), 7, {0.6570, 0.7539, 0.0699, 0.9976});
  const sinusoidal eight(8);
  const numbers divisors{1, 10, 100, 1000};
  for (std::size_t k = 0; k < 4; ++k) {
    EXPECT_NEAR(1 / eight.frequencies()[k] / divisors[k], 1, 1e-15);
    EXPECT_NEAR(2 * std::numbers::pi / eight.frequencies()[k], 6.283185307179586 * divisors[k], 1e-11);
  }
}

TEST(SinusoidalTables, ReportsOfWrongOnes) {
  const json c102 = report("BR-102"), c104 = report("BR-104"), c105 = report("BR-105");
  const auto compare = [](const json& c, const sinusoidal& encoding) {
    const numbers row = row_of<double>(encoding, c.at("inputs").at("position"));
    EXPECT_LE(largest_difference(row, c.at("expected").at("pe").get<numbers>()), 1e-15) << c.at("id");
    EXPECT_LE(largest_difference(row_of<float>(encoding, c.at("inputs").at("position")),
                                 c.at("expected").at("pe").get<numbers>()),
              1e-6)
        << c.at("id");
    double away = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const json& wrong = c.at("wrong").at("pe").at(i);
      if (wrong.is_number()) away = (std::max)(away, std::fabs(row[i] - wrong.get<double>()));
    }
    EXPECT_GT(away, 1e-6) << c.at("id");
  };
  compare(c102, sinusoidal(5));
  compare(c104,
          sinusoidal(8, {.layout = sinusoidal_layout::halves, .divisor = sinusoidal_divisor::half_width_minus_one}));
  compare(c105, sinusoidal(8, {.layout = sinusoidal_layout::halves, .cos_first = true}));
}

TEST(SinusoidalTables, CosFirstSwapsTheTwo) {
  for (const index_t width : {6, 7}) {
    const auto plain = row_of<double>(sinusoidal(width), 2.5);
    const auto swapped = row_of<double>(sinusoidal(width, {.cos_first = true}), 2.5);
    for (index_t k = 0; k + 1 < width; k += 2) {
      const auto i = static_cast<std::size_t>(k);
      EXPECT_EQ(plain[i], swapped[i + 1]);
      EXPECT_EQ(plain[i + 1], swapped[i]);
    }
    if (width == 7) {
      EXPECT_EQ(swapped[6], std::cos(2.5 * sinusoidal(7).frequencies()[3]));
    }
  }
}

TEST(SinusoidalTables, OptionsThatNoReferenceHas) {
  const auto base = row_of<double>(sinusoidal(4, {.base = 100}), 3);
  EXPECT_NEAR(base[2], std::sin(0.3), 1e-15);
  // An odd width whose last column is zero: the others are the formula's for that width.
  const auto odd = row_of<double>(sinusoidal(5, {.odd_width = sinusoidal_odd_width::zero_column}), 3);
  EXPECT_EQ(odd[4], 0.0);
  EXPECT_NEAR(odd[2], std::sin(3 * std::pow(10000.0, -0.4)), 1e-15);
  const auto one = row_of<double>(sinusoidal(1), 2);
  EXPECT_EQ(one[0], std::sin(2.0));
  EXPECT_EQ(row_of<float>(sinusoidal(1, {.odd_width = sinusoidal_odd_width::zero_column}), 2)[0], 0.0F);
}

TEST(SinusoidalTables, WholeTableFromZero) {
  const sinusoidal encoding(6, {.padding_idx = 2});
  const auto table = sinusoidal_table(encoding, 5);
  ASSERT_EQ(table.size(), 30U);
  for (std::size_t row = 0; row < 5; ++row) {
    const std::vector<float> part(table.begin() + static_cast<index_t>(6 * row),
                                  table.begin() + static_cast<index_t>(6 * row + 6));
    EXPECT_EQ(part, row_of<float>(encoding, static_cast<double>(row)));
    EXPECT_EQ(part == std::vector<float>(6, 0.0F), row == 2);
  }
  EXPECT_TRUE(sinusoidal_table<double>(encoding, 0).empty());
  POSENC_EXPECT_ERROR(sinusoidal_table(encoding, -1), posenc::errc::invalid_shape, "rows: is -1");
  POSENC_EXPECT_ERROR(sinusoidal_table(encoding, posenc::index_t{1} << 62), posenc::errc::invalid_shape,
                      "rows: is 4611686018427387904; allowed: 0 to ");
}

TEST(SinusoidalAngles, AreThoseOfTheExactProduct) {
  // Positions have 11 bits, so that long double holds position * frequency exactly. Plain double would be off by 1e-7.
  std::mt19937_64 random(11);
  const sinusoidal encoding(64);
  double largest = 0, plain = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const double position = std::ldexp(std::uniform_int_distribution<int>(-2047, 2047)(random), trial % 32 - 11);
    const auto row = row_of<double>(encoding, position);
    for (std::size_t k = 0; k < 32; ++k) {
      const double w = encoding.frequencies()[k];
      const long double angle = static_cast<long double>(position) * static_cast<long double>(w);
      // Sine and cosine of it from those of its two halves: some modes have inexact ones of long double.
      const double high = posenc::detail::settled(static_cast<double>(angle));
      const auto low = static_cast<double>(angle - static_cast<long double>(high));
      const double sine = std::sin(high) * std::cos(low) + std::cos(high) * std::sin(low);
      const double cosine = std::cos(high) * std::cos(low) - std::sin(high) * std::sin(low);
      largest = (std::max)({largest, std::fabs(sine - row[2 * k]), std::fabs(cosine - row[2 * k + 1])});
      plain = (std::max)(plain, std::fabs(sine - std::sin(high)));
    }
  }
#if __LDBL_MANT_DIG__ > __DBL_MANT_DIG__
  EXPECT_LE(largest, 1e-14);
  EXPECT_GT(plain, 1e-9);
#endif
}

TEST(SinusoidalAngles, ShiftIsAFixedRotationOfEachPair) {
  const sinusoidal encoding(16);
  std::mt19937 random(3);
  std::uniform_real_distribution<double> any(-1000, 1000);
  for (int trial = 0; trial < 100; ++trial) {
    const double position = any(random), shift = any(random);
    const auto from = row_of<double>(encoding, position), to = row_of<double>(encoding, position + shift);
    for (std::size_t k = 0; k < 8; ++k) {
      const double c = std::cos(shift * encoding.frequencies()[k]), s = std::sin(shift * encoding.frequencies()[k]);
      EXPECT_NEAR(to[2 * k], from[2 * k] * c + from[2 * k + 1] * s, 1e-12);
      EXPECT_NEAR(to[2 * k + 1], from[2 * k + 1] * c - from[2 * k] * s, 1e-12);
    }
  }
}

template <class Real>
class Sinusoidal : public testing::Test {};
TYPED_TEST_SUITE(Sinusoidal, real_types, real_names);

TYPED_TEST(Sinusoidal, AddsToTheEmbeddingAndRoundsOnce) {
  const sinusoidal encoding(6, {.axis = 1});
  const numbers position{1e9, 3.25};
  std::vector<TypeParam> x{TypeParam(0.1), 2, -3, 400, TypeParam(1e-3), 0};
  const std::vector<TypeParam> before = x;
  encoding.add_position(posenc::position_span(position), std::span<TypeParam>(x));
  const auto row = row_of<double>(encoding, 3.25);
  for (std::size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(x[i], static_cast<TypeParam>(static_cast<double>(before[i]) + row[i]));
}

TEST(SinusoidalArguments, BadOnesAreErrors) {
  POSENC_EXPECT_ERROR(sinusoidal(0), posenc::errc::invalid_shape, "width: is 0");
  POSENC_EXPECT_ERROR((sinusoidal(3, {.divisor = sinusoidal_divisor::half_width_minus_one})),
                      posenc::errc::invalid_shape, "4 and more");
  POSENC_EXPECT_ERROR((sinusoidal(8, {.base = 0})), posenc::errc::invalid_value, "base: is 0");
  POSENC_EXPECT_ERROR((sinusoidal(8, {.base = -10000})), posenc::errc::invalid_value, "base");
  POSENC_EXPECT_ERROR((sinusoidal(8, {.axis = 8})), posenc::errc::invalid_value, "axis: is 8");
  for (const double& bad : not_finite()) {
    sinusoidal_options base, scale;
    base.base = bad;
    scale.scale = bad;
    POSENC_EXPECT_ERROR(sinusoidal(8, base), posenc::errc::invalid_value, "base");
    POSENC_EXPECT_ERROR(sinusoidal(8, scale), posenc::errc::invalid_value, "scale");
    EXPECT_TRUE(sinusoidal::check(8, base).has_value());
  }
  EXPECT_FALSE(sinusoidal::check(4, {.divisor = sinusoidal_divisor::half_width_minus_one}).has_value());
}

}  // namespace
