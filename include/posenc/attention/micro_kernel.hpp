// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_MICRO_KERNEL_HPP
#define POSENC_ATTENTION_MICRO_KERNEL_HPP

#include <bit>
#include <cstdint>

#include "../core/finite.hpp"
#include "../simd/convert.hpp"
#include "../simd/simd.hpp"
#include "tile_shape.hpp"

/// The two products of attention on register tiles. They know the compute type and the ISA and nothing else: no policy
/// reaches them, and they are never inlined into their callers (compilers then spill in the inner loops).
namespace posenc::inline POSENC_ABI::detail {

/// Fetches the cache line of an address into the second cache; any address is allowed.
POSENC_ALWAYS_INLINE void fetch_ahead(const void* at) noexcept { __builtin_prefetch(at, 0, 2); }

/// Kernels of few rows are fed by memory and not by the first cache: while they go through n bytes they fetch n bytes of
/// what is read next, in step with their own.
template <class Real, int Rows, index_t Bytes>
POSENC_ALWAYS_INLINE void fetch_step(const char* ahead) noexcept {
  if constexpr (Rows < tile_shape<Real>::rows)
    simd::unroll<static_cast<int>((Bytes + 63) / 64)>([&](auto line)
                                                          POSENC_INLINE_LAMBDA { fetch_ahead(ahead + 64 * line); });
}

/// scores[r][c] = sum over d of queries[r][d] * keys[d][c], for Rows rows and Vectors registers of columns.
/// queries: rows `query_stride` apart. keys: [depth][block_keys], at the first column, of the compute type or narrower.
/// scores: rows `score_stride` apart.
template <class Real, int Rows, int Vectors, class Stored>
POSENC_NOINLINE void score_kernel(const Real* queries, index_t query_stride, const Stored* keys, index_t depth,
                                  Real* scores, index_t score_stride, const char* ahead) noexcept {
  using simd::vec;
  constexpr index_t lanes = vec<Real>::lanes;
  vec<Real> sum[Rows][Vectors];
  simd::unroll<Rows>([&](auto r) POSENC_INLINE_LAMBDA {
    simd::unroll<Vectors>([&](auto c) POSENC_INLINE_LAMBDA { sum[r][c] = vec<Real>(Real{0}); });
  });
  for (index_t d = 0; d < depth; ++d) {
    constexpr index_t step = block_keys * static_cast<index_t>(sizeof(Stored));
    fetch_step<Real, Rows, step * Vectors * lanes / block_keys>(ahead + d * step);
    vec<Real> key[Vectors];
    simd::unroll<Vectors>(
        [&](auto c) POSENC_INLINE_LAMBDA { key[c] = simd::load_as<Real>(keys + d * block_keys + c * lanes); });
    simd::unroll<Rows>([&](auto r) POSENC_INLINE_LAMBDA {
      const vec<Real> query(queries[r * query_stride + d]);
      simd::unroll<Vectors>([&](auto c) POSENC_INLINE_LAMBDA { sum[r][c] = simd::fma(query, key[c], sum[r][c]); });
    });
  }
  simd::unroll<Rows>([&](auto r) POSENC_INLINE_LAMBDA {
    simd::unroll<Vectors>([&](auto c)
                              POSENC_INLINE_LAMBDA { simd::store(scores + r * score_stride + c * lanes, sum[r][c]); });
  });
}

/// Keys [first, end) of a chunk of blocks.
struct key_span {
  index_t first = 0, end = 0;
};

/// out[r][c] = out[r][c] * rescale[r] + sum over some keys j of a chunk of weights[r][j] * values[j][c], for Rows rows
/// and Panels panels. weights: block b's keys begin at b * block_keys. values[b]: the first of the panels
/// [block_keys][tile_shape::width] of block b, of the compute type or narrower; ahead[b]: what to fetch meanwhile.
template <class Real, int Rows, int Panels, class Stored>
POSENC_NOINLINE void value_kernel(const Real* weights, index_t weight_stride, const Stored* const* values,
                                  const char* const* ahead, key_span keys, const Real* rescale, Real* out,
                                  index_t out_stride) noexcept {
  using simd::vec;
  using shape = tile_shape<Real>;
  constexpr int vectors = Panels * shape::panel_vectors;
  constexpr index_t lanes = vec<Real>::lanes, width = shape::width, panel = block_keys * width;
  vec<Real> sum[Rows][vectors];
  simd::unroll<Rows>([&](auto r) POSENC_INLINE_LAMBDA {
    const vec<Real> factor(rescale[r]);
    simd::unroll<vectors>(
        [&](auto c) POSENC_INLINE_LAMBDA { sum[r][c] = simd::load(out + r * out_stride + c * lanes) * factor; });
  });
  for (index_t b = keys.first / block_keys; b * block_keys < keys.end; ++b) {
    const Stored* value_rows = values[b];
    const Real* weight = weights + b * block_keys;
    const index_t before = keys.first - b * block_keys, until = keys.end - b * block_keys;
    const index_t end = until < block_keys ? until : block_keys;
    for (index_t j = before > 0 ? before : 0; j < end; ++j) {
      constexpr index_t step = Panels * width * static_cast<index_t>(sizeof(Stored));
      fetch_step<Real, Rows, step>(ahead[b] + j * step);
      vec<Real> value[vectors];
      simd::unroll<vectors>([&](auto c) POSENC_INLINE_LAMBDA {
        constexpr index_t in_panel = c % shape::panel_vectors, panels_before = c / shape::panel_vectors;
        value[c] = simd::load_as<Real>(value_rows + panels_before * panel + j * width + in_panel * lanes);
      });
      simd::unroll<Rows>([&](auto r) POSENC_INLINE_LAMBDA {
        const vec<Real> w(weight[r * weight_stride + j]);
        simd::unroll<vectors>([&](auto c) POSENC_INLINE_LAMBDA { sum[r][c] = simd::fma(w, value[c], sum[r][c]); });
      });
    }
  }
  simd::unroll<Rows>([&](auto r) POSENC_INLINE_LAMBDA {
    simd::unroll<vectors>([&](auto c)
                              POSENC_INLINE_LAMBDA { simd::store(out + r * out_stride + c * lanes, sum[r][c]); });
  });
}

/// The keys of a block that some of `rows` rows see; `bits`: of the block, see softmax_step.
inline std::uint64_t seen_by_any(const std::uint64_t* bits, index_t rows) noexcept {
  std::uint64_t seen = 0;
  for (index_t r = 0; r < rows; ++r) seen |= bits[r * chunk_blocks];
  return seen;
}

/// out[r][c] *= rescale[r]
template <class Real>
void rescale_rows(const Real* rescale, index_t rows, index_t padded_value_dim, Real* out, index_t out_stride) noexcept {
  for (index_t r = 0; r < rows; ++r) {
    if (rescale[r] == Real{1}) continue;
    for (index_t c = 0; c < padded_value_dim; c += simd::vec<Real>::lanes)
      simd::store(out + r * out_stride + c, simd::load(out + r * out_stride + c) * simd::vec<Real>(rescale[r]));
  }
}

/// Calls f(integral_constant Rows, first row) over `rows` rows: full register tiles, then smaller ones for the rest.
template <int Rows, class F>
void for_row_tiles(index_t rows, F&& f, index_t first = 0) {
  for (; rows - first >= Rows; first += Rows) f(std::integral_constant<int, Rows>{}, first);
  if constexpr (Rows > 1) {
    if (first < rows) for_row_tiles<(Rows > 4 ? 4 : Rows / 2)>(rows, f, first);
  }
}

/// Calls f(integral_constant n) for an n from 1 to Most.
template <int Most, class F>
POSENC_ALWAYS_INLINE void with_constant(index_t n, F&& f) {
  if constexpr (Most > 1)
    if (n < Most) return with_constant<Most - 1>(n, f);
  f(std::integral_constant<int, Most>{});
}

/// The scores of `rows` queries against one block of keys, [depth][block_keys], in tiles of at most Rows rows. `bits`: of
/// the block, see softmax_step. The edge of a mask cuts register tiles: registers of keys that none of its rows sees are
/// left out, and their scores stay what they were.
template <int Rows, class Real, class Stored>
void score_block(const Real* queries, index_t query_stride, const std::uint64_t* bits, index_t rows, const Stored* keys,
                 index_t depth, Real* scores, index_t score_stride, const char* ahead) noexcept {
  using shape = tile_shape<Real>;
  constexpr int lanes = shape::lanes, columns = shape::vectors * lanes;
  constexpr std::uint64_t group = columns == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << columns % 64) - 1;
  for (index_t c = 0; c < block_keys; c += columns)
    for_row_tiles<Rows>(rows, [&](auto tile, index_t r) {
      const auto from_vector = [&](auto vectors, index_t first) POSENC_INLINE_LAMBDA {
        const index_t at = c + first * lanes;
        score_kernel<Real, tile, vectors>(queries + r * query_stride, query_stride, keys + at, depth,
                                          scores + r * score_stride + at, score_stride,
                                          ahead + at * static_cast<index_t>(sizeof(Stored)));
      };
      if constexpr (tile == shape::rows) {
        const std::uint64_t seen = seen_by_any(bits + r * chunk_blocks, tile) >> c & group;
        if (seen == 0) return;
        const index_t first = std::countr_zero(seen) / lanes, end = (63 - std::countl_zero(seen)) / lanes + 1;
        with_constant<shape::vectors>(end - first,
                                      [&](auto vectors) POSENC_INLINE_LAMBDA { from_vector(vectors, first); });
      } else {
        from_vector(std::integral_constant<int, shape::vectors>{}, 0);
      }
    });
}

/// The keys of a chunk that some of `rows` rows see: the first one and the last one + 1, numbered from the chunk's start.
inline key_span seen_keys(const std::uint64_t* bits, index_t rows, index_t blocks) noexcept {
  key_span seen{blocks * block_keys, 0};
  for (index_t b = 0; b < blocks; ++b) {
    const std::uint64_t any = seen_by_any(bits + b, rows);
    if (any == 0) continue;
    const index_t first = b * block_keys + std::countr_zero(any);
    seen.first = first < seen.first ? first : seen.first;
    seen.end = (b + 1) * block_keys - std::countl_zero(any);
  }
  return seen;
}

/// The weighted sums of `rows` rows over some blocks, all panels. values[b] is the first panel of block b. Rows that see
/// nothing of a block, as `bits` say (see softmax_step), have no work with it where their neighbours do not either.
template <int Rows, class Real, class Stored>
void value_blocks(const Real* weights, index_t weight_stride, const std::uint64_t* bits, index_t rows,
                  const Stored* const* values, const char* const* ahead, index_t blocks, index_t padded_value_dim,
                  const Real* rescale, Real* out, index_t out_stride) noexcept {
  using shape = tile_shape<Real>;
  const index_t panels = padded_value_dim / shape::width;
  const auto some_panels = [&](auto count, index_t p) {
    const Stored* from[chunk_blocks];
    const char* next[chunk_blocks];
    const index_t offset = p * block_keys * shape::width;
    for (index_t b = 0; b < blocks; ++b) {
      from[b] = values[b] + offset;
      next[b] = ahead[b] + offset * static_cast<index_t>(sizeof(Stored));
    }
    for_row_tiles<Rows>(rows, [&](auto tile, index_t r) {
      const key_span seen = seen_keys(bits + r * chunk_blocks, tile, blocks);
      if (seen.end == 0) return;
      value_kernel<Real, tile, count>(weights + r * weight_stride, weight_stride, from, next, seen, rescale + r,
                                      out + r * out_stride + p * shape::width, out_stride);
    });
  };
  constexpr int most = shape::vectors / shape::panel_vectors;
  index_t p = 0;
  for (; p + most <= panels; p += most) some_panels(std::integral_constant<int, most>{}, p);
  if constexpr (most > 1)
    for (; p < panels; ++p) some_panels(std::integral_constant<int, 1>{}, p);
}

/// The same for one block whose values are not all finite: keys of weight zero are left out, since zero times infinity
/// or NaN would reach the row.
template <class Real, class Stored>
POSENC_NOINLINE void value_block_with_holes(const Real* weights, index_t weight_stride, index_t rows,
                                            const Stored* values, index_t padded_value_dim, Real* out,
                                            index_t out_stride) noexcept {
  using simd::vec;
  constexpr index_t width = tile_shape<Real>::width, lanes = vec<Real>::lanes;
  for (index_t r = 0; r < rows; ++r)
    for (index_t j = 0; j < block_keys; ++j) {
      const Real weight = weights[r * weight_stride + j];
      if (is_zero(weight)) continue;
      for (index_t c = 0; c < padded_value_dim; c += lanes) {
        const Stored* value = values + (c / width) * block_keys * width + j * width + c % width;
        Real* to = out + r * out_stride + c;
        simd::store(to, simd::fma(vec<Real>(weight), simd::load_as<Real>(value), simd::load(to)));
      }
    }
}

template <class Real>
struct kv_pointer;

/// The queries of a score tile, rotated and scaled: rows `stride` apart, filled up with zeros; and, where some block needs
/// them, their parts (`parts_layout`).
template <class Real>
struct query_rows {
  const Real* numbers = nullptr;
  index_t stride = 0;
  const std::uint16_t* parts = nullptr;
};

/// What a tile asks blocks for: its rows, and whether it takes blocks that are split for a matrix unit.
struct tile_use {
  index_t rows = 0;
  bool split = false;
};

/// The products over blocks of one stored type and layout, for the score tile that only knows the compute type.
template <class Real>
struct block_kernels {
  /// Fetches the block's values meanwhile, if the rows are few.
  void (*score)(const query_rows<Real>& queries, const std::uint64_t* bits, index_t rows, const kv_pointer<Real>& block,
                index_t depth, Real* scores, index_t score_stride) noexcept;
  /// ahead[b]: the keys that will be read next, fetched during block b, if the rows are few. work: for the parts of weights
  /// of 32 rows, where blocks are split.
  void (*values)(const Real* weights, index_t weight_stride, const std::uint64_t* bits, index_t rows,
                 const kv_pointer<Real>* chunk, const void* const* ahead, index_t blocks, index_t padded_value_dim,
                 const Real* rescale, Real* out, index_t out_stride, std::uint16_t* work) noexcept;
  /// One block whose values are not all finite.
  void (*values_with_holes)(const Real* weights, index_t weight_stride, index_t rows, const kv_pointer<Real>& block,
                            index_t padded_value_dim, Real* out, index_t out_stride) noexcept;
};

/// One KV head of one block, and the kernels that read it.
template <class Real>
struct kv_pointer {
  const void *keys = nullptr, *values = nullptr;
  bool finite_values = true;
  const block_kernels<Real>* kernels = nullptr;
  // Only of blocks that lie in rows: keys, elements from one to the next, elements of one, and a row's memory for each of
  // few rows.
  index_t count = 0, key_stride = 0, value_stride = 0, key_dim = 0, value_dim = 0;
  Real* scratch = nullptr;
  // Only of blocks that are split for a matrix unit: the parts that are not 0 everywhere.
  split_parts parts = {};
};

template <class Real, class Stored, int Rows>
inline constexpr block_kernels<Real> block_kernels_of{
    [](const query_rows<Real>& queries, const std::uint64_t* bits, index_t rows, const kv_pointer<Real>& block,
       index_t depth, Real* scores, index_t score_stride) noexcept {
      score_block<Rows>(queries.numbers, queries.stride, bits, rows, static_cast<const Stored*>(block.keys), depth,
                        scores, score_stride, static_cast<const char*>(block.values));
    },
    [](const Real* weights, index_t weight_stride, const std::uint64_t* bits, index_t rows,
       const kv_pointer<Real>* chunk, const void* const* ahead, index_t blocks, index_t padded_value_dim,
       const Real* rescale, Real* out, index_t out_stride, std::uint16_t*) noexcept {
      const Stored* from[chunk_blocks];
      const char* next[chunk_blocks];
      for (index_t b = 0; b < blocks; ++b) {
        from[b] = static_cast<const Stored*>(chunk[b].values);
        next[b] = static_cast<const char*>(ahead[b]);
      }
      value_blocks<Rows>(weights, weight_stride, bits, rows, from, next, blocks, padded_value_dim, rescale, out,
                         out_stride);
    },
    [](const Real* weights, index_t weight_stride, index_t rows, const kv_pointer<Real>& block,
       index_t padded_value_dim, Real* out, index_t out_stride) noexcept {
      value_block_with_holes(weights, weight_stride, rows, static_cast<const Stored*>(block.values), padded_value_dim,
                             out, out_stride);
    }};

/// Rows of a tile that reads keys and values as they are stored, and fetches ahead.
inline constexpr int streaming_rows = 4;

/// The kernels for a tile of `rows` rows over blocks of the compute type.
template <class Real>
const block_kernels<Real>* kernels_for(index_t rows) noexcept {
  constexpr int few = streaming_rows < tile_shape<Real>::rows ? streaming_rows : tile_shape<Real>::rows;
  return rows <= split_rows ? &block_kernels_of<Real, Real, few>
                            : &block_kernels_of<Real, Real, tile_shape<Real>::rows>;
}

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ATTENTION_MICRO_KERNEL_HPP
