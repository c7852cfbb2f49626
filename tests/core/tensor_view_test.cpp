// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <posenc/core/dtype.hpp>
#include <posenc/core/tensor_view.hpp>

#include <array>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "support/expect_error.hpp"

namespace {

using posenc::index_t;
using posenc::tensor_view;

std::vector<float> counted(index_t n) {
  std::vector<float> data(static_cast<std::size_t>(n));
  std::iota(data.begin(), data.end(), 0.0f);
  return data;
}

TEST(TensorView, DefaultIsEmptyAndNull) {
  constexpr tensor_view<float> view;
  EXPECT_TRUE(view.empty());
  EXPECT_EQ(view.data_handle(), nullptr);
  EXPECT_EQ(view.rank(), 4u);
}

TEST(TensorView, ContiguousHeadsBeforeTokens) {
  std::vector<float> data = counted(2 * 3 * 4 * 5);
  const auto view = posenc::view_bhtd(data.data(), 2, 3, 4, 5);
  EXPECT_EQ(view.batch(), 2);
  EXPECT_EQ(view.heads(), 3);
  EXPECT_EQ(view.tokens(), 4);
  EXPECT_EQ(view.dim(), 5);
  for (index_t b = 0; b < 2; ++b)
    for (index_t h = 0; h < 3; ++h)
      for (index_t t = 0; t < 4; ++t)
        for (index_t d = 0; d < 5; ++d) EXPECT_EQ(view(b, h, t, d), static_cast<float>(((b * 3 + h) * 4 + t) * 5 + d));
}

TEST(TensorView, ContiguousTokensBeforeHeads) {
  std::vector<float> data = counted(2 * 4 * 3 * 5);
  const auto view = posenc::view_bthd(data.data(), 2, 4, 3, 5);
  for (index_t b = 0; b < 2; ++b)
    for (index_t h = 0; h < 3; ++h)
      for (index_t t = 0; t < 4; ++t)
        for (index_t d = 0; d < 5; ++d) EXPECT_EQ(view(b, h, t, d), static_cast<float>(((b * 4 + t) * 3 + h) * 5 + d));
}

TEST(TensorView, RaggedRowsHaveOneBatchRow) {
  std::vector<float> data = counted(7 * 2 * 3);
  const auto view = posenc::view_thd(data.data(), 7, 2, 3);
  EXPECT_EQ(view.batch(), 1);
  EXPECT_EQ(view.tokens(), 7);
  EXPECT_EQ(view(0, 1, 6, 2), static_cast<float>((6 * 2 + 1) * 3 + 2));
}

TEST(TensorView, PartsKeepTheStrides) {
  std::vector<int> data(2 * 3 * 4 * 5);
  std::iota(data.begin(), data.end(), 0);
  const auto x = posenc::view_bhtd(data.data(), 2, 3, 4, 5);
  const auto part = x.batch(1, 1).heads(1, 2).tokens(2, 2);
  EXPECT_EQ(part.batch(), 1);
  EXPECT_EQ(part.heads(), 2);
  EXPECT_EQ(part.tokens(), 2);
  EXPECT_EQ(&part(0, 1, 1, 3), &x(1, 2, 3, 3));
  EXPECT_TRUE(x.tokens(4, 0).empty());
  POSENC_EXPECT_ERROR(x.tokens(3, 2), posenc::errc::out_of_range, "tokens: [3, 3 + 2) reach beyond the view's 4");
  POSENC_EXPECT_ERROR(x.heads(-1, 2), posenc::errc::out_of_range, "heads: [-1");
  POSENC_EXPECT_ERROR(x.batch(0, -1), posenc::errc::out_of_range, "batch: [0");
}

TEST(TensorView, FusedProjectionIsCutByColumns) {
  // q has 4 heads of 2, then k and v have 2 heads of 2: rows of 16 numbers.
  std::vector<float> data = counted(2 * 3 * 16);
  const auto k = posenc::view_fused(data.data(), 2, 3, 16, 8, 2, 2);
  EXPECT_EQ(posenc::view_fused(data.data(), 2, 3, 16, 12, 2, 2).dim(), 2) << "up to the row's end";
  POSENC_EXPECT_ERROR(posenc::view_fused(data.data(), 2, 3, 16, 13, 2, 2), posenc::errc::out_of_range,
                      "first: is 13: 2 heads of 2 from there on do not fit a row of 16");
  POSENC_EXPECT_ERROR(posenc::view_fused(data.data(), 2, 3, 16, -1, 2, 2), posenc::errc::out_of_range, "first: is -1");
  POSENC_EXPECT_ERROR(posenc::view_fused(data.data(), 2, 3, 16, 0, index_t{1} << 62, 4), posenc::errc::out_of_range,
                      "do not fit a row of 16");
  EXPECT_EQ(k.heads(), 2);
  EXPECT_EQ(k.tokens(), 3);
  for (index_t b = 0; b < 2; ++b)
    for (index_t h = 0; h < 2; ++h)
      for (index_t t = 0; t < 3; ++t)
        for (index_t d = 0; d < 2; ++d) EXPECT_EQ(k(b, h, t, d), static_cast<float>((b * 3 + t) * 16 + 8 + h * 2 + d));
}

TEST(TensorView, StridesMayBeZeroNegativeAndNested) {
  std::vector<float> data = counted(100);
  // Tokens run backwards, batch rows share everything, a row of heads is 7 apart.
  const tensor_view<float> view(data.data() + 60, {3, 2, 4, 5}, {0, 7, -15, 1});
  EXPECT_EQ(view(2, 1, 3, 4), static_cast<float>(60 + 7 - 45 + 4));
  EXPECT_EQ(view.row(0, 1, 3), data.data() + 60 + 7 - 45);
}

TEST(TensorView, OneEmptyExtentMakesItEmpty) {
  float x = 0;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    std::array<index_t, 4> extents{2, 3, 4, 5};
    extents[axis] = 0;
    EXPECT_TRUE((tensor_view<float>(&x, extents, {60, 20, 5, 1}).empty())) << axis;
  }
  EXPECT_FALSE((tensor_view<float>(&x, {2, 3, 4, 5}, {60, 20, 5, 1}).empty()));
}

TEST(TensorView, BecomesConstAndNotBack) {
  static_assert(std::is_convertible_v<tensor_view<float>, tensor_view<const float>>);
  static_assert(!std::is_convertible_v<tensor_view<const float>, tensor_view<float>>);
  static_assert(!std::is_convertible_v<tensor_view<double>, tensor_view<const float>>);
  std::vector<float> data = counted(24);
  tensor_view<float> view(data.data() + 1, {1, 2, 3, 4}, {-24, 12, 4, 1});
  view.set_from_columns(true);
  const tensor_view<const float> same = view;
  EXPECT_EQ(same.data_handle(), view.data_handle());
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(same.extent(i), view.extent(i));
    EXPECT_EQ(same.stride(i), view.stride(i));
  }
  EXPECT_TRUE(same.from_columns());
}

// Offsets of 2^31 elements and more do not wrap (reported against several libraries).
TEST(TensorView, OffsetsBeyond32Bits) {
  struct example {
    index_t token, heads, width, offset;
  };
  for (const example& e : {example{524288, 32, 128, 2147483648}, example{65535, 128, 512, 4294901760}}) {
    const tensor_view<float> view = posenc::view_bthd(static_cast<float*>(nullptr), 2, e.token + 1, e.heads, e.width);
    EXPECT_EQ(view.stride(2) * e.token, e.offset);
    EXPECT_EQ(view.stride(0), e.offset + e.heads * e.width);
  }
}

TEST(Identical, SameElementsInTheSameOrder) {
  std::vector<float> data = counted(200);
  const tensor_view<float> a(data.data(), {1, 2, 3, 4}, {24, 12, 4, 1});
  const auto identical = [&](const tensor_view<float>& b) { return posenc::detail::identical(a, b); };
  EXPECT_TRUE(identical(a));
  EXPECT_TRUE(identical({data.data(), {1, 2, 3, 4}, {999, 12, 4, 1}})) << "the stride of an extent of 1 does not count";
  EXPECT_FALSE(identical({data.data() + 1, {1, 2, 3, 4}, {24, 12, 4, 1}}));
  EXPECT_FALSE(identical({data.data(), {1, 2, 3, 3}, {24, 12, 4, 1}}));
  EXPECT_FALSE(identical({data.data(), {1, 2, 3, 4}, {24, 16, 4, 1}}));
  EXPECT_FALSE(identical({data.data(), {1, 3, 2, 4}, {24, 4, 12, 1}}));
  const tensor_view<double> wide(reinterpret_cast<double*>(data.data()), {1, 2, 3, 4}, {24, 12, 4, 1});
  EXPECT_FALSE(posenc::detail::identical(a, wide));
}

TEST(Dtype, ComputeTypesAndMixes) {
  static_assert(std::is_same_v<posenc::compute_type<double>, double>);
  static_assert(std::is_same_v<posenc::compute_type<float>, float>);
  static_assert(posenc::scalar<const float>);
  static_assert(!posenc::scalar<int>);
  static_assert(!posenc::scalar<long double>);
  static_assert(posenc::mixable<float, const float>);
  static_assert(!posenc::mixable<float, double>);
  static_assert(!posenc::mixable<double, float>);
  static_assert(posenc::dtype_of<const double> == posenc::dtype::float64);
  using posenc::dtype;
  const auto name = [](dtype d) { return std::string(posenc::detail::dtype_name(d)); };
  EXPECT_EQ(name(dtype::float32), "float");
  EXPECT_EQ(name(dtype::float64), "double");
  EXPECT_EQ(name(dtype::half), "half");
  EXPECT_EQ(name(dtype::bfloat16), "bfloat16");
  EXPECT_EQ(posenc::detail::dtype_size(dtype::float32), 4);
  EXPECT_EQ(posenc::detail::dtype_size(dtype::float64), 8);
  EXPECT_EQ(posenc::detail::dtype_size(dtype::half), 2);
  EXPECT_EQ(posenc::detail::dtype_size(dtype::bfloat16), 2);
}

}  // namespace
