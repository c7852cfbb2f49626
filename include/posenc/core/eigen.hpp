// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_CORE_EIGEN_HPP
#define POSENC_CORE_EIGEN_HPP

#include <Eigen/Core>

#include <cstdint>
#include <type_traits>

#include "as_view.hpp"
#include "dtype.hpp"

namespace posenc::inline POSENC_ABI {

using Eigen::bfloat16;
using Eigen::half;

template <>
struct dtype_traits<Eigen::half> {
  static constexpr dtype value = dtype::half;
};

template <>
struct dtype_traits<Eigen::bfloat16> {
  static constexpr dtype value = dtype::bfloat16;
};

/// IEEE binary16 numbers that lie in a buffer of 16-bit integers.
inline half* as_half(std::uint16_t* data) noexcept { return reinterpret_cast<half*>(data); }
inline const half* as_half(const std::uint16_t* data) noexcept { return reinterpret_cast<const half*>(data); }

/// bfloat16 numbers (the upper half of a float) that lie in a buffer of 16-bit integers.
inline bfloat16* as_bfloat16(std::uint16_t* data) noexcept { return reinterpret_cast<bfloat16*>(data); }
inline const bfloat16* as_bfloat16(const std::uint16_t* data) noexcept {
  return reinterpret_cast<const bfloat16*>(data);
}

namespace detail {
template <class X>
concept eigen_dense = std::is_base_of_v<Eigen::DenseBase<std::remove_cv_t<X>>, std::remove_cv_t<X>> &&
                      (std::remove_cv_t<X>::Flags & Eigen::DirectAccessBit) != 0;
}  // namespace detail

/// Eigen's matrices, maps, references and blocks with memory behind them. A row-major one is tokens x dim, a
/// column-major one dim x tokens: in both, the elements of a token lie side by side.
template <detail::eigen_dense X>
struct view_traits<X> {
  using plain = std::remove_cv_t<X>;
  static constexpr bool writable = !std::is_const_v<X> && (plain::Flags & Eigen::LvalueBit) != 0;
  using element = std::conditional_t<writable, typename plain::Scalar, const typename plain::Scalar>;

  static tensor_view<element> view(X& x) noexcept {
    const auto rows = static_cast<index_t>(x.rows()), columns = static_cast<index_t>(x.cols());
    const auto inner = static_cast<index_t>(x.innerStride()), outer = static_cast<index_t>(x.outerStride());
    constexpr bool by_rows = plain::IsRowMajor;
    const index_t tokens = by_rows ? rows : columns, dim = by_rows ? columns : rows;
    tensor_view<element> result(x.data(), {1, 1, tokens, dim}, {tokens * outer, tokens * outer, outer, inner});
    return result.set_from_columns(!by_rows);
  }
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_CORE_EIGEN_HPP
