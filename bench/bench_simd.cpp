// SPDX-License-Identifier: Apache-2.0
// What the facade costs in a micro-kernel: the same loop over posenc::simd and over the registers and intrinsics of the
// ISA. Names:
//   facade/rotate_half/float   40 heads of 128 dimensions in the first cache, in place, as in rotate
//   facade/fma_tile/float      a tile of sums in registers, plus the products of a column and a row, 128 times, as in attention
// intrinsics: the loop without the facade. 1 as intrinsics_ratio says that the facade costs nothing.
#include <posenc/simd/simd.hpp>

#include <cmath>
#include <memory>
#include <string>

#if defined(__AVX__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "support/buffer.hpp"
#include "support/harness.hpp"

namespace {

using posenc_bench::buffer;
using posenc_bench::comparison;
using posenc_bench::index_t;
namespace simd = posenc::simd;

// The registers of the ISA, by the names of its compilers.
#if defined(POSENC_ISA_AVX512)
using bare = __m512;
POSENC_ALWAYS_INLINE bare bare_load(const float* x) { return _mm512_loadu_ps(x); }
POSENC_ALWAYS_INLINE void bare_store(float* x, bare v) { _mm512_storeu_ps(x, v); }
POSENC_ALWAYS_INLINE bare bare_all(float x) { return _mm512_set1_ps(x); }
POSENC_ALWAYS_INLINE bare bare_multiply(bare a, bare b) { return _mm512_mul_ps(a, b); }
POSENC_ALWAYS_INLINE bare bare_fma(bare a, bare b, bare c) { return _mm512_fmadd_ps(a, b, c); }
POSENC_ALWAYS_INLINE bare bare_fms(bare a, bare b, bare c) { return _mm512_fmsub_ps(a, b, c); }
constexpr int tile_rows = 6, tile_registers = 4;
#elif defined(POSENC_ISA_AVX2)
using bare = __m256;
POSENC_ALWAYS_INLINE bare bare_load(const float* x) { return _mm256_loadu_ps(x); }
POSENC_ALWAYS_INLINE void bare_store(float* x, bare v) { _mm256_storeu_ps(x, v); }
POSENC_ALWAYS_INLINE bare bare_all(float x) { return _mm256_set1_ps(x); }
POSENC_ALWAYS_INLINE bare bare_multiply(bare a, bare b) { return _mm256_mul_ps(a, b); }
POSENC_ALWAYS_INLINE bare bare_fma(bare a, bare b, bare c) { return _mm256_fmadd_ps(a, b, c); }
POSENC_ALWAYS_INLINE bare bare_fms(bare a, bare b, bare c) { return _mm256_fmsub_ps(a, b, c); }
constexpr int tile_rows = 6, tile_registers = 2;
#elif defined(__SSE2__)
using bare = __m128;
POSENC_ALWAYS_INLINE bare bare_load(const float* x) { return _mm_loadu_ps(x); }
POSENC_ALWAYS_INLINE void bare_store(float* x, bare v) { _mm_storeu_ps(x, v); }
POSENC_ALWAYS_INLINE bare bare_all(float x) { return _mm_set1_ps(x); }
POSENC_ALWAYS_INLINE bare bare_multiply(bare a, bare b) { return _mm_mul_ps(a, b); }
POSENC_ALWAYS_INLINE bare bare_fma(bare a, bare b, bare c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
POSENC_ALWAYS_INLINE bare bare_fms(bare a, bare b, bare c) { return _mm_sub_ps(_mm_mul_ps(a, b), c); }
constexpr int tile_rows = 3, tile_registers = 4;
#elif defined(__aarch64__)
using bare = float32x4_t;
POSENC_ALWAYS_INLINE bare bare_load(const float* x) { return vld1q_f32(x); }
POSENC_ALWAYS_INLINE void bare_store(float* x, bare v) { vst1q_f32(x, v); }
POSENC_ALWAYS_INLINE bare bare_all(float x) { return vdupq_n_f32(x); }
POSENC_ALWAYS_INLINE bare bare_multiply(bare a, bare b) { return vmulq_f32(a, b); }
POSENC_ALWAYS_INLINE bare bare_fma(bare a, bare b, bare c) { return vfmaq_f32(c, a, b); }
POSENC_ALWAYS_INLINE bare bare_fms(bare a, bare b, bare c) { return vnegq_f32(vfmsq_f32(c, a, b)); }
constexpr int tile_rows = 6, tile_registers = 4;
#else
#define POSENC_BENCH_NO_INTRINSICS
#endif

#if !defined(POSENC_BENCH_NO_INTRINSICS)

using vec = simd::vec<float>;
constexpr index_t lanes = vec::lanes, heads = 40, head_dim = 128, pairs = head_dim / 2;
constexpr int at_once = pairs / lanes < 4 ? static_cast<int>(pairs / lanes) : 4;

POSENC_NOINLINE void rotate_facade(float* x, const float* cos, const float* sin) {
  for (index_t first = 0; first < pairs; first += at_once * lanes) {
    vec c[at_once], s[at_once];
    simd::unroll<at_once>([&](auto k) POSENC_INLINE_LAMBDA {
      c[k] = simd::load(cos + first + k * lanes);
      s[k] = simd::load(sin + first + k * lanes);
    });
    for (index_t h = 0; h < heads; ++h)
      simd::unroll<at_once>([&](auto k) POSENC_INLINE_LAMBDA {
        float* const at = x + h * head_dim + first + k * lanes;
        const vec a = simd::load(at), b = simd::load(at + pairs);
        simd::store(at, fma(a, c[k], -(b * s[k])));
        simd::store(at + pairs, fma(b, c[k], a * s[k]));
      });
  }
}

POSENC_NOINLINE void rotate_intrinsics(float* x, const float* cos, const float* sin) {
  for (index_t first = 0; first < pairs; first += at_once * lanes) {
    bare c[at_once], s[at_once];
    simd::unroll<at_once>([&](auto k) POSENC_INLINE_LAMBDA {
      c[k] = bare_load(cos + first + k * lanes);
      s[k] = bare_load(sin + first + k * lanes);
    });
    for (index_t h = 0; h < heads; ++h)
      simd::unroll<at_once>([&](auto k) POSENC_INLINE_LAMBDA {
        float* const at = x + h * head_dim + first + k * lanes;
        const bare a = bare_load(at), b = bare_load(at + pairs);
        bare_store(at, bare_fms(a, c[k], bare_multiply(b, s[k])));
        bare_store(at + pairs, bare_fma(b, c[k], bare_multiply(a, s[k])));
      });
  }
}

constexpr index_t depth = 128, tile_width = tile_registers * lanes;

/// out [tile_rows][tile_width] = columns [depth][tile_rows] times rows [depth][tile_width].
POSENC_NOINLINE void tile_facade(const float* columns, const float* rows, float* out) {
  vec sum[tile_rows * tile_registers];
  simd::unroll<tile_rows * tile_registers>([&](auto i) POSENC_INLINE_LAMBDA { sum[i] = vec(0.0f); });
  for (index_t d = 0; d < depth; ++d, columns += tile_rows, rows += tile_width) {
    vec b[tile_registers];
    simd::unroll<tile_registers>([&](auto j) POSENC_INLINE_LAMBDA { b[j] = simd::load(rows + j * lanes); });
    simd::unroll<tile_rows>([&](auto i) POSENC_INLINE_LAMBDA {
      const vec a(columns[i]);
      simd::unroll<tile_registers>([&](auto j) POSENC_INLINE_LAMBDA {
        sum[i * tile_registers + j] = fma(a, b[j], sum[i * tile_registers + j]);
      });
    });
  }
  simd::unroll<tile_rows * tile_registers>([&](auto i) POSENC_INLINE_LAMBDA { simd::store(out + i * lanes, sum[i]); });
}

POSENC_NOINLINE void tile_intrinsics(const float* columns, const float* rows, float* out) {
  bare sum[tile_rows * tile_registers];
  simd::unroll<tile_rows * tile_registers>([&](auto i) POSENC_INLINE_LAMBDA { sum[i] = bare_all(0.0f); });
  for (index_t d = 0; d < depth; ++d, columns += tile_rows, rows += tile_width) {
    bare b[tile_registers];
    simd::unroll<tile_registers>([&](auto j) POSENC_INLINE_LAMBDA { b[j] = bare_load(rows + j * lanes); });
    simd::unroll<tile_rows>([&](auto i) POSENC_INLINE_LAMBDA {
      const bare a = bare_all(columns[i]);
      simd::unroll<tile_registers>([&](auto j) POSENC_INLINE_LAMBDA {
        sum[i * tile_registers + j] = bare_fma(a, b[j], sum[i * tile_registers + j]);
      });
    });
  }
  simd::unroll<tile_rows * tile_registers>([&](auto i) POSENC_INLINE_LAMBDA { bare_store(out + i * lanes, sum[i]); });
}

std::string difference(const float* a, const float* b, index_t n) {
  for (index_t i = 0; i < n; ++i)
    if (!(a[i] == b[i])) return "wrong result: the two loops differ at " + std::to_string(i);
  return {};
}

comparison compare_rotation() {
  struct data {
    buffer<float> x{heads * head_dim}, y{heads * head_dim}, row{head_dim};
  };
  auto all = std::make_shared<data>();
  all->x.fill();
  all->y.fill();
  for (index_t i = 0; i < pairs; ++i) {
    all->row.data()[i] = std::cos(0.1f * static_cast<float>(i));
    all->row.data()[pairs + i] = std::sin(0.1f * static_cast<float>(i));
  }
  comparison result;
  result.work = [all] { rotate_facade(all->x.data(), all->row.data(), all->row.data() + pairs); };
  result.bytes = 2 * all->x.bytes();
  result.references.push_back(
      {"intrinsics", [all] { rotate_intrinsics(all->y.data(), all->row.data(), all->row.data() + pairs); }});
  result.verify = [all] {
    all->x.fill();
    all->y.fill();
    rotate_facade(all->x.data(), all->row.data(), all->row.data() + pairs);
    rotate_intrinsics(all->y.data(), all->row.data(), all->row.data() + pairs);
    return difference(all->x.data(), all->y.data(), all->x.size());
  };
  return result;
}

comparison compare_tile() {
  struct data {
    buffer<float> columns{depth * tile_rows}, rows{depth * tile_width}, x{tile_rows * tile_width},
        y{tile_rows * tile_width};
  };
  auto all = std::make_shared<data>();
  all->columns.fill(1);
  all->rows.fill(2);
  comparison result;
  result.work = [all] { tile_facade(all->columns.data(), all->rows.data(), all->x.data()); };
  result.flops = 2.0 * depth * tile_rows * static_cast<double>(tile_width);
  result.references.push_back(
      {"intrinsics", [all] { tile_intrinsics(all->columns.data(), all->rows.data(), all->y.data()); }});
  result.verify = [all] { return difference(all->x.data(), all->y.data(), all->x.size()); };
  return result;
}

#endif

}  // namespace

int main(int argc, char** argv) {
#if !defined(POSENC_BENCH_NO_INTRINSICS)
  posenc_bench::add("facade/rotate_half/float", compare_rotation);
  posenc_bench::add("facade/fma_tile/float", compare_tile);
#endif
  return posenc_bench::run(argc, argv);
}
