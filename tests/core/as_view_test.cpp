// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <posenc/core/as_view.hpp>
#include <posenc/core/eigen.hpp>

#include <array>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <vector>

/// A type of a user's, with heads and tokens in one count of rows.
namespace toy {
struct rows {
  std::vector<float> data;
  posenc::index_t count, width;
};
}  // namespace toy

template <>
struct posenc::view_traits<toy::rows> {
  static tensor_view<float> view(toy::rows& x) noexcept { return view_bhtd(x.data.data(), 1, 1, x.count, x.width); }
};
template <>
struct posenc::view_traits<const toy::rows> {
  static tensor_view<const float> view(const toy::rows& x) noexcept {
    return view_bhtd(x.data.data(), 1, 1, x.count, x.width);
  }
};

namespace {

using posenc::as_view;
using posenc::index_t;
using posenc::tensor_view;

/// What std::mdspan offers, with extents and strides of another integer type.
template <class T, std::size_t Rank>
struct mdspan_toy {
  using element_type = T;
  T* data;
  std::array<unsigned, Rank> extents, strides;

  static constexpr std::size_t rank() { return Rank; }
  constexpr unsigned extent(std::size_t i) const { return extents[i]; }
  constexpr unsigned stride(std::size_t i) const { return strides[i]; }
  constexpr T* data_handle() const { return data; }
};

template <class View>
std::array<index_t, 8> shape_of(const View& v) {
  return {v.extent(0), v.extent(1), v.extent(2), v.extent(3), v.stride(0), v.stride(1), v.stride(2), v.stride(3)};
}
using shape = std::array<index_t, 8>;

TEST(AsView, TensorViewIsItself) {
  std::vector<float> data(24);
  const auto view = posenc::view_bhtd(data.data(), 1, 2, 3, 4);
  auto copy = view;
  EXPECT_EQ(shape_of(as_view(view)), shape_of(view));
  EXPECT_EQ(as_view(copy).data_handle(), data.data());
  static_assert(std::is_same_v<decltype(as_view(view)), tensor_view<float>>, "a view's constness is shallow");
  static_assert(std::is_same_v<decltype(as_view(posenc::view_bhtd(data.data(), 1, 2, 3, 4))), tensor_view<float>>);
  const tensor_view<const float> read_only = view;
  static_assert(std::is_same_v<decltype(as_view(read_only)), tensor_view<const float>>);
}

TEST(AsView, MdspanOfRankTwoThreeAndFour) {
  std::vector<double> data(500);
  const mdspan_toy<double, 2> two{data.data(), {3, 4}, {9, 1}};
  const auto v2 = as_view(two);
  EXPECT_EQ((shape{1, 1, 3, 4}), (shape{v2.extent(0), v2.extent(1), v2.extent(2), v2.extent(3)}));
  EXPECT_EQ(v2.stride(2), 9);
  EXPECT_EQ(v2.row(0, 0, 2), data.data() + 18);

  const mdspan_toy<const double, 3> three{data.data() + 1, {2, 3, 4}, {5, 10, 1}};
  const auto v3 = as_view(three);
  static_assert(std::is_same_v<decltype(v3), const tensor_view<const double>>);
  EXPECT_EQ(v3.heads(), 2);
  EXPECT_EQ(v3.row(0, 1, 2), data.data() + 1 + 5 + 20);

  mdspan_toy<double, 4> four{data.data(), {2, 3, 4, 5}, {1, 2, 3, 4}};
  EXPECT_EQ(shape_of(as_view(four)), (shape{2, 3, 4, 5, 1, 2, 3, 4}));
  static_assert(!posenc::viewable<mdspan_toy<double, 1>>);
  static_assert(!posenc::viewable<mdspan_toy<double, 5>>);
}

TEST(AsView, UsersOwnType) {
  toy::rows x{std::vector<float>(12), 3, 4};
  const toy::rows& read_only = x;
  static_assert(std::is_same_v<decltype(as_view(x)), tensor_view<float>>);
  static_assert(std::is_same_v<decltype(as_view(read_only)), tensor_view<const float>>);
  static_assert(std::is_same_v<posenc::view_element<const toy::rows>, const float>);
  EXPECT_EQ(as_view(read_only).row(0, 0, 2), x.data.data() + 8);
}

TEST(AsView, WhatHasNoView) {
  static_assert(!posenc::viewable<std::vector<float>>);
  static_assert(!posenc::viewable<float*>);
  static_assert(!posenc::viewable<int>);
  static_assert(!posenc::viewable<decltype(Eigen::MatrixXf() + Eigen::MatrixXf())>, "an expression has no memory");
}

using row_major = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using column_major = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;

template <class Matrix>
Matrix counted(index_t rows, index_t columns) {
  Matrix m(rows, columns);
  std::iota(m.data(), m.data() + m.size(), 0.0f);
  return m;
}

// Element (token, d) of every Eigen view against Eigen's own access.
template <class Matrix>
void expect_same_elements(Matrix& m, bool tokens_are_rows) {
  const auto v = as_view(m);
  ASSERT_EQ(v.batch(), 1);
  ASSERT_EQ(v.heads(), 1);
  ASSERT_EQ(v.tokens(), tokens_are_rows ? m.rows() : m.cols());
  ASSERT_EQ(v.dim(), tokens_are_rows ? m.cols() : m.rows());
  EXPECT_EQ(v.from_columns(), !tokens_are_rows);
  for (index_t t = 0; t < v.tokens(); ++t)
    for (index_t d = 0; d < v.dim(); ++d) EXPECT_EQ(v(0, 0, t, d), tokens_are_rows ? m(t, d) : m(d, t));
}

TEST(AsViewEigen, RowMajorIsTokensByDim) {
  auto m = counted<row_major>(5, 7);
  expect_same_elements(m, true);
  EXPECT_EQ(as_view(m).stride(3), 1);
  static_assert(std::is_same_v<decltype(as_view(m)), tensor_view<float>>);
}

TEST(AsViewEigen, ColumnMajorIsDimByTokens) {
  auto m = counted<column_major>(7, 5);
  expect_same_elements(m, false);
  EXPECT_EQ(as_view(m).stride(3), 1);
}

TEST(AsViewEigen, ConstIsReadOnly) {
  const auto m = counted<row_major>(2, 3);
  static_assert(std::is_same_v<decltype(as_view(m)), tensor_view<const float>>);
  const Eigen::Map<const row_major> map(m.data(), 2, 3);
  static_assert(std::is_same_v<decltype(as_view(map)), tensor_view<const float>>);
  Eigen::Map<const row_major> lvalue(m.data(), 2, 3);
  static_assert(std::is_same_v<decltype(as_view(lvalue)), tensor_view<const float>>);
  EXPECT_EQ(as_view(map).data_handle(), m.data());
}

TEST(AsViewEigen, MapsWithStrides) {
  std::vector<float> data(200);
  std::iota(data.begin(), data.end(), 0.0f);
  Eigen::Map<row_major, 0, Eigen::OuterStride<>> rows(data.data() + 3, 4, 6, Eigen::OuterStride<>(11));
  expect_same_elements(rows, true);
  EXPECT_EQ(as_view(rows).stride(2), 11);
  Eigen::Map<column_major, 0, Eigen::OuterStride<>> columns(data.data() + 3, 6, 4, Eigen::OuterStride<>(11));
  expect_same_elements(columns, false);
  // A transposed layout shows in the stride of dim, which the entry points refuse.
  Eigen::Map<row_major, 0, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>> sparse(
      data.data(), 4, 6, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>(20, 3));
  expect_same_elements(sparse, true);
  EXPECT_EQ(as_view(sparse).stride(3), 3);
}

TEST(AsViewEigen, BlocksAndTemporaries) {
  auto m = counted<row_major>(9, 12);
  auto block = m.block(2, 3, 4, 5);
  expect_same_elements(block, true);
  EXPECT_EQ(as_view(block).data_handle(), m.data() + 2 * 12 + 3);
  EXPECT_EQ(as_view(m.middleCols(4, 8)).stride(2), 12);
  auto c = counted<column_major>(9, 12);
  auto tokens = c.middleCols(2, 6);
  expect_same_elements(tokens, false);
  Eigen::Ref<row_major> reference(m);
  expect_same_elements(reference, true);
}

TEST(AsViewEigen, ArraysAndFixedSizes) {
  Eigen::Array<double, 3, 4, Eigen::RowMajor> a;
  a.setZero();
  static_assert(std::is_same_v<decltype(as_view(a)), tensor_view<double>>);
  EXPECT_EQ(shape_of(as_view(a)), (shape{1, 1, 3, 4, 12, 12, 4, 1}));
  Eigen::Matrix<float, 1, 6> one_token;
  EXPECT_EQ(as_view(one_token).tokens(), 1);
  EXPECT_EQ(as_view(one_token).dim(), 6);
  Eigen::VectorXf column(6);  // column-major: one token of six
  EXPECT_EQ(as_view(column).tokens(), 1);
  EXPECT_EQ(as_view(column).dim(), 6);
}

TEST(AsViewEigen, SixteenBitTypes) {
  static_assert(std::is_same_v<posenc::compute_type<posenc::half>, float>);
  static_assert(std::is_same_v<posenc::compute_type<posenc::bfloat16>, float>);
  static_assert(posenc::mixable<float, const posenc::half, posenc::bfloat16>);
  static_assert(!posenc::mixable<posenc::half, double>);
  std::vector<std::uint16_t> bits = {0x3c00, 0xc000, 0x3f80, 0xc000};  // half 1 and -2, bfloat16 1 and -2
  EXPECT_EQ(static_cast<float>(posenc::as_half(bits.data())[0]), 1.0f);
  EXPECT_EQ(static_cast<float>(posenc::as_half(bits.data())[1]), -2.0f);
  const std::uint16_t* const read_only = bits.data();
  static_assert(std::is_same_v<decltype(posenc::as_bfloat16(read_only)), const posenc::bfloat16*>);
  static_assert(std::is_same_v<decltype(posenc::as_half(read_only)), const posenc::half*>);
  EXPECT_EQ(static_cast<float>(posenc::as_bfloat16(read_only)[2]), 1.0f);
  EXPECT_EQ(static_cast<float>(posenc::as_bfloat16(bits.data())[3]), -2.0f);
  Eigen::Matrix<posenc::half, 2, 3, Eigen::RowMajor> m;
  static_assert(std::is_same_v<decltype(as_view(m)), tensor_view<posenc::half>>);
}

}  // namespace
