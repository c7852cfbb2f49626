// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_MICRO_KERNEL_HPP
#define POSENC_ATTENTION_MICRO_KERNEL_HPP

#include "../simd/simd.hpp"
#include "tile_shape.hpp"

/// The two products of attention on register tiles. They know the compute type and the ISA and nothing else: no policy
/// reaches them, and they are never inlined into their callers (compilers then spill in the inner loops).
namespace posenc::inline POSENC_ABI::detail {

/// scores[r][c] = sum over d of queries[r][d] * keys[d][c], for Rows rows and tile_shape::width columns.
/// queries: rows `query_stride` apart. keys: [depth][block_keys], at the first column. scores: rows `score_stride` apart.
template <class Real, int Rows>
POSENC_NOINLINE void score_kernel(const Real* queries, index_t query_stride, const Real* keys, index_t depth,
                                  Real* scores, index_t score_stride) noexcept {
  using simd::vec;
  using shape = tile_shape<Real>;
  vec<Real> sum[Rows][shape::vectors];
  simd::unroll<Rows>([&](auto r) POSENC_INLINE_LAMBDA {
    simd::unroll<shape::vectors>([&](auto c) POSENC_INLINE_LAMBDA { sum[r][c] = vec<Real>(Real{0}); });
  });
  for (index_t d = 0; d < depth; ++d) {
    vec<Real> key[shape::vectors];
    simd::unroll<shape::vectors>(
        [&](auto c) POSENC_INLINE_LAMBDA { key[c] = simd::load(keys + d * block_keys + c * shape::lanes); });
    simd::unroll<Rows>([&](auto r) POSENC_INLINE_LAMBDA {
      const vec<Real> query(queries[r * query_stride + d]);
      simd::unroll<shape::vectors>([&](auto c)
                                       POSENC_INLINE_LAMBDA { sum[r][c] = simd::fma(query, key[c], sum[r][c]); });
    });
  }
  simd::unroll<Rows>([&](auto r) POSENC_INLINE_LAMBDA {
    simd::unroll<shape::vectors>(
        [&](auto c) POSENC_INLINE_LAMBDA { simd::store(scores + r * score_stride + c * shape::lanes, sum[r][c]); });
  });
}

/// out[r][c] = out[r][c] * rescale[r] + sum over the keys j of all blocks of weights[r][j] * values[j][c], for Rows rows
/// and one panel. weights: block b's keys begin at b * block_keys. values[b]: panel [block_keys][tile_shape::width] of
/// block b.
template <class Real, int Rows>
POSENC_NOINLINE void value_kernel(const Real* weights, index_t weight_stride, const Real* const* values, index_t blocks,
                                  const Real* rescale, Real* out, index_t out_stride) noexcept {
  using simd::vec;
  using shape = tile_shape<Real>;
  vec<Real> sum[Rows][shape::vectors];
  simd::unroll<Rows>([&](auto r) POSENC_INLINE_LAMBDA {
    const vec<Real> factor(rescale[r]);
    simd::unroll<shape::vectors>(
        [&](auto c) POSENC_INLINE_LAMBDA { sum[r][c] = simd::load(out + r * out_stride + c * shape::lanes) * factor; });
  });
  for (index_t b = 0; b < blocks; ++b) {
    const Real* panel = values[b];
    const Real* weight = weights + b * block_keys;
    for (index_t j = 0; j < block_keys; ++j) {
      vec<Real> value[shape::vectors];
      simd::unroll<shape::vectors>(
          [&](auto c) POSENC_INLINE_LAMBDA { value[c] = simd::load(panel + j * shape::width + c * shape::lanes); });
      simd::unroll<Rows>([&](auto r) POSENC_INLINE_LAMBDA {
        const vec<Real> w(weight[r * weight_stride + j]);
        simd::unroll<shape::vectors>([&](auto c)
                                         POSENC_INLINE_LAMBDA { sum[r][c] = simd::fma(w, value[c], sum[r][c]); });
      });
    }
  }
  simd::unroll<Rows>([&](auto r) POSENC_INLINE_LAMBDA {
    simd::unroll<shape::vectors>(
        [&](auto c) POSENC_INLINE_LAMBDA { simd::store(out + r * out_stride + c * shape::lanes, sum[r][c]); });
  });
}

/// Calls f(integral_constant Rows, first row) over `rows` rows: full register tiles, then smaller ones for the rest.
template <int Rows, class F>
void for_row_tiles(index_t rows, F&& f, index_t first = 0) {
  for (; rows - first >= Rows; first += Rows) f(std::integral_constant<int, Rows>{}, first);
  if constexpr (Rows > 1) {
    if (first < rows) for_row_tiles<(Rows > 4 ? 4 : Rows / 2)>(rows, f, first);
  }
}

/// The scores of `rows` queries against one whole block of keys.
template <class Real>
void score_block(const Real* queries, index_t query_stride, index_t rows, const Real* keys, index_t depth, Real* scores,
                 index_t score_stride) noexcept {
  for (index_t c = 0; c < block_keys; c += tile_shape<Real>::width)
    for_row_tiles<tile_shape<Real>::rows>(rows, [&](auto tile, index_t r) {
      score_kernel<Real, tile>(queries + r * query_stride, query_stride, keys + c, depth, scores + r * score_stride + c,
                               score_stride);
    });
}

/// The weighted sums of `rows` rows over some blocks, all panels. values[b] is the first panel of block b.
template <class Real>
void value_blocks(const Real* weights, index_t weight_stride, index_t rows, const Real* const* values, index_t blocks,
                  index_t padded_value_dim, const Real* rescale, Real* out, index_t out_stride) noexcept {
  constexpr index_t width = tile_shape<Real>::width;
  for (index_t p = 0; p < padded_value_dim / width; ++p) {
    const Real* panels[chunk_blocks];
    for (index_t b = 0; b < blocks; ++b) panels[b] = values[b] + p * block_keys * width;
    for_row_tiles<tile_shape<Real>::rows>(rows, [&](auto tile, index_t r) {
      value_kernel<Real, tile>(weights + r * weight_stride, weight_stride, panels, blocks, rescale + r,
                               out + r * out_stride + p * width, out_stride);
    });
  }
}

/// The same for one block whose values are not all finite: keys of weight zero are left out, since zero times infinity
/// or NaN would reach the row.
template <class Real>
POSENC_NOINLINE void value_block_with_holes(const Real* weights, index_t weight_stride, index_t rows,
                                            const Real* values, index_t padded_value_dim, Real* out,
                                            index_t out_stride) noexcept {
  using simd::vec;
  constexpr index_t width = tile_shape<Real>::width, lanes = vec<Real>::lanes;
  for (index_t r = 0; r < rows; ++r)
    for (index_t j = 0; j < block_keys; ++j) {
      const Real weight = weights[r * weight_stride + j];
      if (weight == Real{0}) continue;
      for (index_t c = 0; c < padded_value_dim; c += lanes) {
        const Real* value = values + (c / width) * block_keys * width + j * width + c % width;
        Real* to = out + r * out_stride + c;
        simd::store(to, simd::fma(vec<Real>(weight), simd::load(value), simd::load(to)));
      }
    }
}

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ATTENTION_MICRO_KERNEL_HPP
