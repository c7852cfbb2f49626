// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_MATRIX_KERNEL_HPP
#define POSENC_ATTENTION_MATRIX_KERNEL_HPP

#include <bit>
#include <cstdint>
#include <iterator>

#include "block_parts.hpp"
#include "micro_kernel.hpp"

/// The two products of attention on a matrix unit that multiplies bfloat16 numbers and adds up floats. Of the nine products
/// of two floats' parts, six are taken; the others are below 2^-24 of the product.
namespace posenc::inline POSENC_ABI::detail {

/// Whether blocks of floats are split for the matrix unit: there is one, and padding to its squares costs less than it
/// saves.
template <class Real>
bool uses_matrix_unit(index_t head_dim, index_t value_dim) noexcept {
#if defined(POSENC_ISA_AMX)
  if constexpr (std::is_same_v<Real, float>)
    return head_dim >= parts_layout::side && value_dim >= parts_layout::side && simd::matrix_unit_allowed();
#endif
  static_cast<void>(head_dim);
  static_cast<void>(value_dim);
  return false;
}

/// The kernels for split blocks; null without a matrix unit, or for doubles.
template <class Real>
const block_kernels<Real>* matrix_kernels() noexcept {
  return nullptr;
}

/// A split block.
template <class Real>
kv_pointer<Real> split_pointer(const kv_layout<Real>& layout, const Real* block, split_parts parts) noexcept {
  kv_pointer<Real> result{block, block + parts_layout_of(layout).key_elements() / 2, true, matrix_kernels<Real>()};
  result.parts = parts;
  return result;
}

/// A block of numbers; split into `parts` first where the tile wants that, has the rows to pay for it, and parts do.
template <class Real>
kv_pointer<Real> number_pointer(const kv_layout<Real>& layout, const Real* block, bool finite, tile_use use,
                                Real* parts = nullptr) noexcept {
  const Real* values = block + layout.key_elements();
  if (parts != nullptr && use.split && use.rows > split_rows && finite)
    if (const split_parts found = split_if_parts_do(layout, block, values, parts); found.keys > 0)
      return split_pointer(layout, parts, found);
  return {block, values, finite, kernels_for<Real>(use.rows)};
}

#if defined(POSENC_ISA_AMX)

template <>
inline const block_kernels<float>* matrix_kernels<float>() noexcept;

/// Squares of one operand that follow each other along the sum: of one row of squares, and of the next.
struct matrix_operand {
  const std::uint16_t* squares;
  index_t next_row;
};

/// The products of parts that are taken, part of a and part of b, where b has so many parts that are not 0: the small ones
/// first. Those of parts that are 0 would not change a bit of the sums.
template <int Parts>
inline constexpr int part_products[6][2] = {{2, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 2}, {0, 0}};
template <>
inline constexpr int part_products<2>[5][2] = {{2, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 0}};
template <>
inline constexpr int part_products<1>[3][2] = {{2, 0}, {1, 0}, {0, 0}};

/// sums[i][j] (+)= sum over k of a[i][k] b[k][j] for Rows x Columns squares of sums. Steps of a, 32 numbers each, follow each
/// other; b is cut into pieces of `piece` steps that stand where they may; steps [first, end) are done.
template <int Rows, int Columns, int Parts, bool Adds>
POSENC_NOINLINE void matrix_kernel(matrix_operand a, const matrix_operand* b, index_t piece, index_t first, index_t end,
                                   float* sums, index_t stride) noexcept {
  constexpr int sums_at = 0, a_at = 4, b_at = 6;
  constexpr index_t side = parts_layout::side, depth = parts_layout::depth;
  constexpr auto& order = part_products<Parts>;
  const auto each_sum = [](auto&& f) POSENC_INLINE_LAMBDA {
    simd::unroll<Rows>(
        [&](auto r) POSENC_INLINE_LAMBDA { simd::unroll<Columns>([&](auto c) POSENC_INLINE_LAMBDA { f(r, c); }); });
  };
  each_sum([&](auto r, auto c) POSENC_INLINE_LAMBDA {
    if constexpr (Adds) {
      simd::load_matrix<sums_at + 2 * r + c>(sums + r * side * stride + c * side, stride);
    } else {
      simd::clear_matrix<sums_at + 2 * r + c>();
    }
  });
  for (index_t step = first; step < end; ++step) {
    const matrix_operand& from = b[step / piece];
    const std::uint16_t* a_squares = a.squares + step * parts_layout::squares;
    const std::uint16_t* b_squares = from.squares + step % piece * parts_layout::squares;
    simd::unroll<static_cast<int>(std::size(order))>([&](auto i) POSENC_INLINE_LAMBDA {
      constexpr int a_part = order[i][0], b_part = order[i][1], before = i == 0 ? 0 : i - 1;
      if constexpr (i == 0 || order[before][0] != a_part)
        simd::unroll<Rows>([&](auto r) POSENC_INLINE_LAMBDA {
          simd::load_matrix<a_at + r>(a_squares + r * a.next_row + a_part * parts_layout::square, depth);
        });
      if constexpr (i == 0 || order[before][1] != b_part)
        simd::unroll<Columns>([&](auto c) POSENC_INLINE_LAMBDA {
          simd::load_matrix<b_at + c>(b_squares + c * from.next_row + b_part * parts_layout::square, depth);
        });
      each_sum([&](auto r, auto c)
                   POSENC_INLINE_LAMBDA { simd::multiply_matrices<sums_at + 2 * r + c, a_at + r, b_at + c>(); });
    });
  }
  each_sum([&](auto r, auto c) POSENC_INLINE_LAMBDA {
    simd::store_matrix<sums_at + 2 * r + c>(sums + r * side * stride + c * side, stride);
  });
}

/// The same for 1 or 2 rows and columns of squares and 1 to 3 parts, known at run time.
template <bool Adds>
void matrix_product(index_t rows, index_t columns, int parts, matrix_operand a, const matrix_operand* b, index_t piece,
                    index_t first, index_t end, float* sums, index_t stride) noexcept {
  with_constant<2>(rows, [&](auto r) {
    with_constant<2>(columns, [&](auto c) {
      with_constant<3>(parts, [&](auto p) { matrix_kernel<r, c, p, Adds>(a, b, piece, first, end, sums, stride); });
    });
  });
}

/// Calls f(first row, rows, rows of squares: 1 or 2) over rows, 2 squares of them at a time.
template <class F>
void for_square_rows(index_t rows, F&& f) {
  constexpr index_t side = parts_layout::side;
  for (index_t r = 0; r < rows; r += 2 * side) {
    const index_t here = rows - r < 2 * side ? rows - r : 2 * side;
    f(r, here, here > side ? index_t{2} : index_t{1});
  }
}

inline void matrix_scores(const query_rows<float>& queries, const std::uint64_t* bits, index_t rows,
                          const kv_pointer<float>& block, index_t depth, float* scores, index_t stride) noexcept {
  constexpr index_t side = parts_layout::side;
  const index_t steps = parts_layout{depth, 0}.key_steps(), group = steps * parts_layout::squares;
  const auto* keys = static_cast<const std::uint16_t*>(block.keys);
  const simd::matrix_session session;
  for_square_rows(rows, [&](index_t r, index_t here, index_t squares) {
    const std::uint64_t seen = seen_by_any(bits + r * chunk_blocks, here);
    if (seen == 0) return;
    const index_t end = (63 - std::countl_zero(seen)) / side + 1;
    for (index_t c = std::countr_zero(seen) / side; c < end; c += 2) {
      const matrix_operand key{keys + c * group, group};
      matrix_product<false>(squares, end - c > 1 ? 2 : 1, block.parts.keys, {queries.parts + r / side * group, group},
                            &key, steps, 0, steps, scores + r * stride + c * side, stride);
    }
  });
}

inline void matrix_values(const float* weights, index_t weight_stride, const std::uint64_t* bits, index_t rows,
                          const kv_pointer<float>* chunk, index_t blocks, index_t padded_value_dim,
                          const float* rescale, float* out, index_t out_stride, std::uint16_t* work) noexcept {
  constexpr index_t side = parts_layout::side, piece = parts_layout::block_steps, group = piece * parts_layout::squares;
  const index_t steps = blocks * piece;
  const simd::matrix_session session;
  int parts = 1;
  for (index_t b = 0; b < blocks; ++b) parts = chunk[b].parts.values > parts ? chunk[b].parts.values : parts;
  for_square_rows(rows, [&](index_t r, index_t here, index_t squares) {
    rescale_rows(rescale + r, here, padded_value_dim, out + r * out_stride, out_stride);
    const key_span seen = seen_keys(bits + r * chunk_blocks, here, blocks);
    if (seen.end == 0) return;
    const index_t first = seen.first / parts_layout::depth, end = (seen.end - 1) / parts_layout::depth + 1;
    split_rows_of(weights + r * weight_stride, weight_stride, here, first, end, steps, work);
    for (index_t c = 0; c < padded_value_dim; c += 2 * side) {
      matrix_operand values[chunk_blocks];
      for (index_t b = 0; b < blocks; ++b)
        values[b] = {static_cast<const std::uint16_t*>(chunk[b].values) + c / side * group, group};
      matrix_product<true>(squares, padded_value_dim - c > side ? 2 : 1, parts, {work, steps * parts_layout::squares},
                           values, piece, first, end, out + r * out_stride + c, out_stride);
    }
  });
}

inline constexpr block_kernels<float> matrix_block_kernels{
    matrix_scores,
    [](const float* weights, index_t weight_stride, const std::uint64_t* bits, index_t rows,
       const kv_pointer<float>* chunk, const void* const*, index_t blocks, index_t padded_value_dim,
       const float* rescale, float* out, index_t out_stride, std::uint16_t* work) noexcept {
      matrix_values(weights, weight_stride, bits, rows, chunk, blocks, padded_value_dim, rescale, out, out_stride,
                    work);
    },
    nullptr};  // values that are not finite are never split

template <>
inline const block_kernels<float>* matrix_kernels<float>() noexcept {
  return &matrix_block_kernels;
}

#endif

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ATTENTION_MATRIX_KERNEL_HPP
