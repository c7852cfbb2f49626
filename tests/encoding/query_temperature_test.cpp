// SPDX-License-Identifier: Apache-2.0
#include <posenc/core/token_builders.hpp>
#include <posenc/encoding/query_temperature.hpp>

#include "encoding/encoding_support.hpp"

namespace {

using namespace encoding_test;
using posenc::query_temperature;
using posenc::rotation_op;
using posenc::token_role;

template <class Real>
class QueryTemperature : public testing::Test {};
TYPED_TEST_SUITE(QueryTemperature, real_types, real_names);

TYPED_TEST(QueryTemperature, FactorsOfTheReport) {
  const json c = report("BR-117");
  const query_temperature encoding{.coefficient = c.at("inputs").at("attn_scale"),
                                   .length = c.at("inputs").at("floor_scale")};
  const double tolerance = c.at("tolerance").at(std::is_same_v<TypeParam, double> ? "abs_f64" : "abs_f32");
  std::vector<TypeParam> factors;
  for (const double position : c.at("inputs").at("positions").get<numbers>())
    factors.push_back(turned<TypeParam>(encoding, position, {0, 1, 0})[1]);
  EXPECT_LE(largest_difference(factors, c.at("expected").at("scale").get<numbers>()), tolerance);
  EXPECT_GT(largest_difference(factors, c.at("wrong").at("scale").get<numbers>()), tolerance);
}

TYPED_TEST(QueryTemperature, ScalesQueriesOnlyAndCanBeUndone) {
  const query_temperature encoding{.coefficient = 0.5, .length = 4, .shift = 0};
  const std::vector<TypeParam> x{1, -2, 3};
  const auto factor = static_cast<TypeParam>(1 + 0.5 * std::log(3.0));
  const auto close = [](const std::vector<TypeParam>& a, std::vector<TypeParam> b, TypeParam scale) {
    for (TypeParam& value : b) value *= scale;
    return largest_difference(a, b) <= 4 * std::numeric_limits<TypeParam>::epsilon();
  };
  EXPECT_TRUE(close(turned(encoding, 11.0, x), x, factor));
  EXPECT_TRUE(close(turned(encoding, 11.0, x, token_role::query, rotation_op::transposed), x, factor));
  EXPECT_TRUE(close(turned(encoding, 11.0, x, token_role::query, rotation_op::inverse), x, 1 / factor));
  for (const auto op : {rotation_op::rotate, rotation_op::transposed, rotation_op::inverse})
    EXPECT_EQ(turned(encoding, 11.0, x, token_role::key, op), x);
  EXPECT_EQ(turned(encoding, 3.0, x), x);  // the first step begins at 4
  EXPECT_NE(turned(encoding, 4.0, x), x);
}

TEST(QueryTemperatureFactor, StepsAtExactMultiples) {
  // 1/49 and the like are rounded: quotients near whole numbers must not move a step.
  for (const double length : {3.0, 7.0, 49.0, 10.0, 8192.0, 0.1}) {
    const query_temperature encoding{.coefficient = 1, .length = length, .shift = 0};
    for (double step = 1; step < 3000; step += 7) {
      const double at = step * length, before = std::nextafter(at, 0.0);
      EXPECT_EQ(encoding.factor(at), 1 + std::log1p(step)) << length << " x " << step;
      EXPECT_EQ(encoding.factor(before), 1 + std::log1p(step - 1)) << length << " x " << step;
    }
  }
}

TEST(QueryTemperatureArguments, BadOnesAreErrors) {
  const auto tokens = posenc::token_range(10);
  EXPECT_EQ(check_text(query_temperature{}, tokens, 4, 2, 8), "");
  EXPECT_NE(check_text(query_temperature{.coefficient = -0.1}, tokens, 4, 2, 8).find("coefficient: is -0.1"),
            std::string::npos);
  EXPECT_NE(check_text(query_temperature{.length = 0}, tokens, 4, 2, 8).find("length: is 0"), std::string::npos);
  EXPECT_NE(check_text(query_temperature{.axis = 1}, tokens, 4, 2, 8).find("axis 1"), std::string::npos);
  EXPECT_NE(check_text(query_temperature{.axis = -1}, tokens, 4, 2, 8).find("axis -1; allowed: 0 to 0"),
            std::string::npos);
  for (const double& bad : not_finite()) {
    query_temperature coefficient, length, shift;
    coefficient.coefficient = length.length = shift.shift = bad;
    EXPECT_NE(check_text(coefficient, tokens, 4, 2, 8).find("coefficient"), std::string::npos);
    EXPECT_NE(check_text(length, tokens, 4, 2, 8).find("length"), std::string::npos);
    EXPECT_NE(check_text(shift, tokens, 4, 2, 8).find("shift"), std::string::npos);
  }
}

TEST(QueryTemperatureArguments, NegativePositionsAreErrorsUnlessPadding) {
  EXPECT_EQ(check_text(query_temperature{}, posenc::token_range(4, -1), 4, 2, 8), "");
  EXPECT_NE(check_text(query_temperature{}, posenc::token_range(4, -2), 4, 2, 8).find("position -2 at token 0"),
            std::string::npos);
  const std::vector<int> mask{0, 1, 1};
  const auto tokens = posenc::opt_positions(mask.data(), 1, 3);  // -1, 0, 1
  EXPECT_EQ(check_text(query_temperature{.shift = 0}, tokens, 4, 2, 8), "");
  const std::vector<std::int64_t> documents{-1, 0, 0};
  const auto range = posenc::token_range(3, -2).with_documents(documents.data());
  EXPECT_NE(check_text(query_temperature{.shift = 0}, range, 4, 2, 8).find("position -1 at token 1"),
            std::string::npos);
}

}  // namespace
