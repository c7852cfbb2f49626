// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_ROW_KERNEL_HPP
#define POSENC_ATTENTION_ROW_KERNEL_HPP

#include "kv_block.hpp"
#include "micro_kernel.hpp"

/// The two products for few queries over keys and values that lie in rows, as in a caller's own cache: each is read once,
/// where packing would read it, write it and read it again.
namespace posenc::inline POSENC_ABI::detail {

/// The first n numbers of a row, n up to a register's lanes, then zeros. Reads nothing beyond them.
template <class Real, class Stored>
POSENC_ALWAYS_INLINE simd::vec<Real> load_first(const Stored* from, index_t n) noexcept {
  if (n >= simd::vec<Real>::lanes) return simd::load_as<Real>(from);
  Real numbers[simd::vec<Real>::lanes] = {};
  simd::load_row(from, n, numbers);
  return simd::load(numbers);
}

/// Fetches what lies `bytes` bytes from `at` on.
inline void fetch_row(const char* at, index_t bytes) noexcept {
  for (index_t line = 0; line < bytes; line += 64) fetch_ahead(at + line);
}

/// Lane i of x[0] becomes the sum of the lanes of x[i]: each step leaves N registers, with partial sums of twice as many of
/// the first ones.
template <int N, class Real>
POSENC_ALWAYS_INLINE void fold(simd::vec<Real>* x) noexcept {
  if constexpr (N > 0) {
    simd::unroll<N>([&](auto i)
                        POSENC_INLINE_LAMBDA { x[i] = simd::zip<0>(x[i], x[i + N]) + simd::zip<1>(x[i], x[i + N]); });
    fold<N / 2>(x);
  }
}

/// scores[r][j] = sum over d of queries[r][d] * keys[j][d] for Rows rows and as many keys as fill a register with sums.
/// Rows of queries are padded with zeros to whole registers. Where the keys' rows are read, as much is fetched of the rows
/// `ahead`.
template <class Real, int Rows, class Stored>
POSENC_NOINLINE void row_score_kernel(const Real* queries, index_t query_stride, const Stored* keys, index_t key_stride,
                                      index_t depth, Real* scores, index_t score_stride, const char* ahead,
                                      index_t ahead_stride) noexcept {
  using simd::vec;
  constexpr int lanes = vec<Real>::lanes, count = lanes / Rows;
  vec<Real> sum[lanes];
  simd::unroll<lanes>([&](auto i) POSENC_INLINE_LAMBDA { sum[i] = vec<Real>(Real{0}); });
  const auto step = [&](index_t d, auto&& load) POSENC_INLINE_LAMBDA {
    vec<Real> key[count];
    simd::unroll<count>([&](auto k) POSENC_INLINE_LAMBDA {
      fetch_ahead(ahead + k * ahead_stride + d * static_cast<index_t>(sizeof(Stored)));
      key[k] = load(keys + k * key_stride + d);
    });
    simd::unroll<Rows>([&](auto r) POSENC_INLINE_LAMBDA {
      const vec<Real> query = simd::load(queries + r * query_stride + d);
      simd::unroll<count>(
          [&](auto k) POSENC_INLINE_LAMBDA { sum[r * count + k] = simd::fma(query, key[k], sum[r * count + k]); });
    });
  };
  index_t d = 0;
  for (; d + lanes <= depth; d += lanes)
    step(d, [](const Stored* from) POSENC_INLINE_LAMBDA { return simd::load_as<Real>(from); });
  if (d < depth) step(d, [&](const Stored* from) POSENC_INLINE_LAMBDA { return load_first<Real>(from, depth - d); });
  fold<lanes / 2>(sum);
  Real all[lanes];
  simd::store(all, sum[0]);
  simd::unroll<Rows>([&](auto r) POSENC_INLINE_LAMBDA {
    simd::unroll<count>([&](auto k) POSENC_INLINE_LAMBDA { scores[r * score_stride + k] = all[r * count + k]; });
  });
}

/// out[r][c] += sum over j of weights[r][j] * values[j][c] for Rows rows, `count` keys and Vectors registers of columns, of
/// which the last has `last` columns.
template <class Real, int Rows, int Vectors, class Stored>
POSENC_NOINLINE void row_value_kernel(const Real* weights, index_t weight_stride, const Stored* values,
                                      index_t value_stride, index_t count, index_t last, Real* out, index_t out_stride,
                                      const char* ahead, index_t ahead_stride, index_t ahead_bytes) noexcept {
  using simd::vec;
  constexpr int lanes = vec<Real>::lanes;
  vec<Real> sum[Rows][Vectors];
  simd::unroll<Rows>([&](auto r) POSENC_INLINE_LAMBDA {
    simd::unroll<Vectors>([&](auto c)
                              POSENC_INLINE_LAMBDA { sum[r][c] = simd::load(out + r * out_stride + c * lanes); });
  });
  for (index_t j = 0; j < count; ++j) {
    fetch_row(ahead + j * ahead_stride, ahead_bytes);
    vec<Real> value[Vectors];
    simd::unroll<Vectors - 1>(
        [&](auto c) POSENC_INLINE_LAMBDA { value[c] = simd::load_as<Real>(values + j * value_stride + c * lanes); });
    value[Vectors - 1] = load_first<Real>(values + j * value_stride + (Vectors - 1) * lanes, last);
    simd::unroll<Rows>([&](auto r) POSENC_INLINE_LAMBDA {
      const vec<Real> weight(weights[r * weight_stride + j]);
      simd::unroll<Vectors>([&](auto c) POSENC_INLINE_LAMBDA { sum[r][c] = simd::fma(weight, value[c], sum[r][c]); });
    });
  }
  simd::unroll<Rows>([&](auto r) POSENC_INLINE_LAMBDA {
    simd::unroll<Vectors>([&](auto c)
                              POSENC_INLINE_LAMBDA { simd::store(out + r * out_stride + c * lanes, sum[r][c]); });
  });
}

/// Rows of a register tile here. A power of two, as the sums of a tile fill one register.
template <class Real>
inline constexpr int row_tile = simd::vec<Real>::lanes < streaming_rows ? simd::vec<Real>::lanes : streaming_rows;

/// The scores of some rows against one block, whose values are fetched meanwhile.
template <class Real, class Stored>
void row_score_block(const query_rows<Real>& queries, const std::uint64_t*, index_t rows, const kv_pointer<Real>& block,
                     index_t depth, Real* scores, index_t score_stride) noexcept {
  const auto* keys = static_cast<const Stored*>(block.keys);
  const auto* values = static_cast<const char*>(block.values);
  const index_t value_bytes = block.value_stride * static_cast<index_t>(sizeof(Stored));
  for_row_tiles<row_tile<Real>>(rows, [&](auto tile, index_t r) {
    constexpr index_t together = simd::vec<Real>::lanes / tile;
    const Real* query = queries.numbers + r * queries.stride;
    Real* to = scores + r * score_stride;
    index_t j = 0;
    for (; j + together <= block.count; j += together) {
      row_score_kernel<Real, tile>(query, queries.stride, keys + j * block.key_stride, block.key_stride, depth, to + j,
                                   score_stride, values + j * value_bytes, value_bytes);
    }
    // The rest one by one: a stride of 0 computes it several times.
    for (; j < block.count; ++j) {
      Real same[static_cast<int>(tile) * together];
      row_score_kernel<Real, tile>(query, queries.stride, keys + j * block.key_stride, 0, depth, same, together,
                                   values + j * value_bytes, 0);
      for (index_t i = 0; i < tile; ++i) to[i * score_stride + j] = same[i * together];
    }
  });
}

/// The weighted sums of some rows over one block. If they do not stay finite they are made anew without the keys of weight
/// zero, whose infinities and NaN must not reach a row; the block's scratch holds them meanwhile.
template <class Real, class Stored>
void row_value_block(const Real* weights, index_t weight_stride, index_t rows, const kv_pointer<Real>& block,
                     const char* ahead, Real* out, index_t out_stride) noexcept {
  constexpr index_t lanes = simd::vec<Real>::lanes;
  constexpr auto size = static_cast<index_t>(sizeof(Stored));
  const auto* values = static_cast<const Stored*>(block.values);
  Real* before = block.scratch;
  const index_t padded = (block.value_dim + lanes - 1) / lanes * lanes;
  for (index_t r = 0; r < rows; ++r)
    for (index_t c = 0; c < padded; ++c) before[r * padded + c] = out[r * out_stride + c];
  const auto columns = [&](auto vectors, index_t c) {
    const index_t rest = block.value_dim - c - (vectors - 1) * lanes, last = rest < lanes ? rest : lanes;
    for_row_tiles<row_tile<Real>>(rows, [&](auto tile, index_t r) {
      // The first tile fetches as many columns of the next keys as it reads of the values.
      const index_t left = block.key_dim - c, mine = left < vectors * lanes ? left : vectors * lanes;
      row_value_kernel<Real, tile, vectors>(weights + r * weight_stride, weight_stride, values + c, block.value_stride,
                                            block.count, last, out + r * out_stride + c, out_stride, ahead + c * size,
                                            block.key_stride * size, r == 0 ? mine * size : 0);
    });
  };
  index_t c = 0;
  for (; c + 4 * lanes <= padded; c += 4 * lanes) columns(std::integral_constant<int, 4>{}, c);
  for (; c < padded; c += lanes) columns(std::integral_constant<int, 1>{}, c);
  for (index_t r = 0; r < rows; ++r) {
    Real* row = out + r * out_stride;
    if (all_finite(row, block.value_dim)) continue;
    for (index_t i = 0; i < padded; ++i) row[i] = before[r * padded + i];
    for (index_t j = 0; j < block.count; ++j) {
      const Real weight = weights[r * weight_stride + j];
      if (is_zero(weight)) continue;
      for (index_t i = 0; i < padded; i += lanes)
        simd::store(row + i, simd::fma(simd::vec<Real>(weight),
                                       load_first<Real>(values + j * block.value_stride + i, block.value_dim - i),
                                       simd::load(row + i)));
    }
  }
}

template <class Real, class Stored>
inline constexpr block_kernels<Real> row_kernels_of{
    row_score_block<Real, Stored>,
    [](const Real* weights, index_t weight_stride, const std::uint64_t*, index_t rows, const kv_pointer<Real>* chunk,
       const void* const* ahead, index_t blocks, index_t padded_value_dim, const Real* rescale, Real* out,
       index_t out_stride, std::uint16_t*) noexcept {
      rescale_rows(rescale, rows, padded_value_dim, out, out_stride);
      for (index_t b = 0; b < blocks; ++b)
        row_value_block<Real, Stored>(weights + b * block_keys, weight_stride, rows, chunk[b],
                                      static_cast<const char*>(ahead[b]), out, out_stride);
    },
    nullptr};  // finds out by itself whether values are finite

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ATTENTION_ROW_KERNEL_HPP
