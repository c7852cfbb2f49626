// SPDX-License-Identifier: Apache-2.0
#include <posenc/core/eigen.hpp>
#include <posenc/core/token_builders.hpp>
#include <posenc/encoding/add_positions.hpp>
#include <posenc/encoding/combine.hpp>
#include <posenc/encoding/learned.hpp>
#include <posenc/encoding/sinusoidal.hpp>

#include <random>

#include "encoding/encoding_support.hpp"

namespace {

using namespace encoding_test;
using posenc::add_positions;
using posenc::sinusoidal;
using posenc::tensor_view;
using posenc::token_range;
using posenc::view_bhtd;

template <class T>
std::vector<T> random_values(std::size_t count, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> any(-255, 255);
  std::vector<T> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(static_cast<T>(static_cast<float>(any(random)) / 64.0F));
  return values;
}

template <class T>
class AddPositions : public testing::Test {};
using element_types = testing::Types<float, double, posenc::half, posenc::bfloat16>;
TYPED_TEST_SUITE(AddPositions, element_types);

/// What an element should become: the exact sum, rounded to float (or double) and then to the element type.
template <class T>
T expected_sum(T x, double p) {
  using real = posenc::compute_type<T>;
  return static_cast<T>(static_cast<real>(static_cast<double>(static_cast<real>(x)) + p));
}

TYPED_TEST(AddPositions, InPlaceAndIntoOtherMemory) {
  constexpr index_t batch = 2, count = 5, dim = 9;
  const sinusoidal encoding(dim);
  const std::vector<double> positions{0, 7, -3, 0.5, 1e5, 1, 2, 3, 4, 6};
  const auto tokens = posenc::token_positions(positions.data(), count, batch);
  const auto x = random_values<TypeParam>(batch * count * dim);
  auto in_place = x;
  add_positions(view_bhtd(in_place.data(), batch, 1, count, dim), tokens, encoding);
  std::vector<TypeParam> out(x.size(), static_cast<TypeParam>(77.0F));
  add_positions(view_bhtd(x.data(), batch, 1, count, dim), view_bhtd(out.data(), batch, 1, count, dim), tokens,
                encoding);
  for (std::size_t t = 0; t < positions.size(); ++t) {
    std::vector<double> p(dim);
    encoding.write_position(positions[t], std::span<double>(p));
    for (std::size_t i = 0; i < dim; ++i) {
      const auto expected = static_cast<double>(expected_sum(x[t * dim + i], p[i]));
      EXPECT_EQ(static_cast<double>(in_place[t * dim + i]), expected);
      EXPECT_EQ(static_cast<double>(out[t * dim + i]), expected);
    }
  }
}

TYPED_TEST(AddPositions, AnyStridesAndNothingBesideTheRows) {
  // Rows with gaps, tokens backwards, and a batch that shares the positions.
  constexpr index_t batch = 3, count = 4, dim = 6, row = 11;
  const sinusoidal encoding(dim);
  const auto before = random_values<TypeParam>(batch * count * row);
  auto memory = before;
  const tensor_view<TypeParam> x(memory.data() + (count - 1) * row, {batch, 1, count, dim}, {count * row, 5, -row, 1});
  add_positions(x, token_range(count, 2), encoding);
  for (index_t b = 0; b < batch; ++b)
    for (index_t t = 0; t < count; ++t) {
      std::vector<double> p(dim);
      encoding.write_position(static_cast<double>(2 + count - 1 - t), std::span<double>(p));
      for (index_t i = 0; i < row; ++i) {
        const auto at = static_cast<std::size_t>((b * count + t) * row + i);
        const auto expected = i < dim ? expected_sum(before[at], p[static_cast<std::size_t>(i)]) : before[at];
        EXPECT_EQ(static_cast<double>(memory[at]), static_cast<double>(expected));
      }
    }
}

TEST(AddPositionsMixed, FloatHalfAndBfloat16) {
  constexpr index_t count = 3, dim = 4;
  const sinusoidal encoding(dim);
  const auto x = random_values<posenc::half>(count * dim);
  std::vector<float> floats(x.size());
  std::vector<posenc::bfloat16> bfloats(x.size());
  const auto view = view_bhtd(x.data(), 1, 1, count, dim);
  add_positions(view, view_bhtd(floats.data(), 1, 1, count, dim), token_range(count), encoding);
  add_positions(view, view_bhtd(bfloats.data(), 1, 1, count, dim), token_range(count), encoding);
  for (std::size_t t = 0; t < count; ++t) {
    std::vector<double> p(dim);
    encoding.write_position(static_cast<double>(t), std::span<double>(p));
    for (std::size_t i = 0; i < dim; ++i) {
      const float expected = expected_sum(static_cast<float>(x[t * dim + i]), p[i]);
      EXPECT_EQ(floats[t * dim + i], expected);
      EXPECT_EQ(static_cast<float>(bfloats[t * dim + i]), static_cast<float>(static_cast<posenc::bfloat16>(expected)));
    }
  }
}

TEST(AddPositionsMixed, EigenMatricesOfBothOrders) {
  const sinusoidal encoding(4);
  Eigen::Matrix<float, 3, 4, Eigen::RowMajor> rows = Eigen::Matrix<float, 3, 4>::Random();
  Eigen::Matrix<float, 4, 3> columns = rows.transpose();
  add_positions(rows, token_range(3), encoding);
  add_positions(columns, token_range(3), encoding);
  EXPECT_EQ(rows, columns.transpose());
  Eigen::MatrixXf wrong_way = Eigen::MatrixXf::Zero(3, 4);
  const Eigen::MatrixXf before = wrong_way;
  POSENC_EXPECT_ERROR(add_positions(wrong_way, token_range(4), encoding), posenc::errc::invalid_shape, "column-major");
  EXPECT_EQ(wrong_way, before);
}

TEST(AddPositionsMixed, CombinedEncodingsAddInOrder) {
  Eigen::Matrix<float, 6, 4, Eigen::RowMajor> table = Eigen::Matrix<float, 6, 4>::Random();
  const sinusoidal wave(4);
  const posenc::learned_positions learned(table);
  Eigen::Matrix<float, 6, 4, Eigen::RowMajor> x = Eigen::Matrix<float, 6, 4>::Random(), one_by_one = x;
  add_positions(x, token_range(6), posenc::combine(wave, learned));
  add_positions(one_by_one, token_range(6), wave);
  add_positions(one_by_one, token_range(6), learned);
  EXPECT_EQ(x, one_by_one);
}

TEST(AddPositionsMixed, EmptyTensorsAreValid) {
  float* none = nullptr;
  const sinusoidal encoding(4);
  add_positions(view_bhtd(none, 0, 1, 3, 4), token_range(3), encoding);
  add_positions(view_bhtd(none, 2, 1, 0, 4), token_range(0), encoding);
  EXPECT_FALSE(posenc::check(view_bhtd(none, 2, 1, 0, 4), token_range(0), encoding).has_value());
}

TEST(AddPositionsMixed, SeveralAxesNeedNoOrder) {
  const std::vector<double> positions = {9, 8, 7, 0, 1, 2};
  Eigen::Matrix<float, 3, 4, Eigen::RowMajor> x = Eigen::Matrix<float, 3, 4>::Random(), y = x;
  add_positions(x, posenc::token_positions(positions.data(), 3, 1, 2), sinusoidal(4, {.axis = 1}));
  add_positions(y, token_range(3), sinusoidal(4));
  EXPECT_EQ(x, y);
}

TEST(AddPositionsErrors, NameWhatIsWrongAndWriteNothing) {
  const sinusoidal encoding(4);
  std::vector<float> memory(240, 5.0F), other(240, 6.0F);
  float* none = nullptr;
  const auto expect = [&](const tensor_view<float>& x, const posenc::token_view& tokens, posenc::errc code,
                          const char* text) {
    POSENC_EXPECT_ERROR(add_positions(x, tokens, encoding), code, text);
    const posenc::maybe_error value = posenc::check(x, tokens, encoding);
    ASSERT_TRUE(value.has_value());
    EXPECT_EQ(value->code(), code);
    EXPECT_NE(std::string(value->what()).find(text), std::string::npos);
  };
  const auto x = view_bhtd(memory.data(), 2, 1, 3, 4);
  expect(view_bhtd(memory.data(), 1, 2, 3, 4), token_range(3), posenc::errc::invalid_shape,
         "x: has 2 heads; allowed: 1");
  expect(x, token_range(4), posenc::errc::invalid_shape, "describes 4 tokens; the tensor has 3");
  expect(view_bhtd(memory.data(), 1, 1, 3, 5), token_range(3), posenc::errc::invalid_shape,
         "has rows of 5 elements; the sinusoidal encoding was made for 4");
  expect(view_bhtd(none, 1, 1, 3, 4), token_range(3), posenc::errc::invalid_layout, "null");
  expect({memory.data(), {1, 1, 3, 4}, {0, 0, 8, 2}}, token_range(3), posenc::errc::invalid_layout, "stride 2");
  expect({memory.data(), {2, 1, 3, 4}, {0, 0, 4, 1}}, token_range(3), posenc::errc::invalid_layout, "stride 0");
  expect({memory.data(), {1, 1, 3, 4}, {0, 0, 3, 1}}, token_range(3), posenc::errc::invalid_layout, "share memory");
  expect({memory.data(), {1, 1, -3, 4}, {12, 12, 4, 1}}, token_range(3), posenc::errc::invalid_shape, "-3");
  const std::vector<double> nan{0, 1, not_finite()[0]};
  expect(x, posenc::token_positions(std::span<const double>(nan)), posenc::errc::invalid_value, "token 2");

  const auto expect_out = [&](const tensor_view<const float>& in, const tensor_view<float>& out, posenc::errc code,
                              const char* text) {
    POSENC_EXPECT_ERROR(add_positions(in, out, token_range(3), encoding), code, text);
    EXPECT_TRUE(posenc::check(in, out, token_range(3), encoding).has_value());
  };
  expect_out(x, view_bhtd(other.data(), 1, 1, 3, 4), posenc::errc::invalid_shape,
             "out: is [1, 1, 3, 4] and x [2, 1, 3, 4]");
  expect_out(x, view_bhtd(memory.data() + 4, 2, 1, 3, 4), posenc::errc::invalid_layout, "overlaps");
  expect_out(x, {other.data(), {2, 1, 3, 4}, {0, 0, 4, 1}}, posenc::errc::invalid_layout, "out");
  expect_out(x, view_bhtd(none, 2, 1, 3, 4), posenc::errc::invalid_layout, "out: is null");
  EXPECT_EQ(memory, std::vector<float>(240, 5.0F));
  EXPECT_EQ(other, std::vector<float>(240, 6.0F));

  // Reading shared rows is fine, and x itself is a valid out.
  const tensor_view<const float> shared(memory.data(), {2, 1, 3, 4}, {0, 0, 4, 1});
  EXPECT_FALSE(posenc::check(shared, view_bhtd(other.data(), 2, 1, 3, 4), token_range(3), encoding).has_value());
  EXPECT_FALSE(posenc::check(x, x, token_range(3), encoding).has_value());
}

}  // namespace
