// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_BENCH_SUPPORT_LIMITS_HPP
#define POSENC_BENCH_SUPPORT_LIMITS_HPP

#include <benchmark/benchmark.h>
#include <posenc/core/dtype.hpp>
#include <posenc/simd/convert.hpp>
#include <posenc/simd/simd.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "buffer.hpp"
#include "harness.hpp"

/// What the hardware can do, as loops with nothing else in them.
namespace posenc_bench {

namespace simd = posenc::simd;

/// out = in * factor. 16-bit elements are converted, multiplied as floats and converted back, as any work on them must.
/// n is a multiple of 64.
template <class T>
POSENC_NOINLINE void scale(const T* in, T* out, index_t n, posenc::compute_type<T> factor) {
  using vec = simd::vec<posenc::compute_type<T>>;
  for (index_t i = 0; i < n; i += vec::lanes)
    simd::store_as(out + i, simd::load_as<typename vec::value_type>(in + i) * vec(factor));
}

/// The factor of in-place scaling: it comes back after two calls, and the compiler does not know it.
template <class Real>
Real unknown_minus_one() {
  volatile Real x = Real(-1);
  return x;
}

template <class T>
POSENC_NOINLINE void fill(T* out, index_t n, T value) {
  const simd::vec<T> v(value);
  for (index_t i = 0; i < n; i += simd::vec<T>::lanes) simd::store(out + i, v);
  benchmark::ClobberMemory();
}

/// Reads n bytes, a multiple of 8 registers, in eight independent sums.
inline POSENC_NOINLINE void read(const void* from, index_t bytes) {
  using vec = simd::vec<float>;
  constexpr index_t step = 8 * vec::lanes;
  const auto* x = static_cast<const float*>(from);
  vec sum[8];
  simd::unroll<8>([&](auto k) POSENC_INLINE_LAMBDA { sum[k] = vec(0.0f); });
  for (index_t i = 0; i + step <= bytes / 4; i += step)
    simd::unroll<8>([&](auto k) POSENC_INLINE_LAMBDA { sum[k] = sum[k] + simd::load(x + i + k * vec::lanes); });
  vec total(0.0f);
  simd::unroll<8>([&](auto k) POSENC_INLINE_LAMBDA { total = total + sum[k]; });
  benchmark::DoNotOptimize(simd::reduce_add(total));
}

namespace detail {

inline constexpr int peak_chains = 12;
inline constexpr index_t peak_steps = 4096;

// Two forms, because each is compiled badly by some compiler: an array of sums that a lambda sees, and named sums.
template <class Real>
POSENC_NOINLINE Real peak_of_array(Real a, Real b) {
  using vec = simd::vec<Real>;
  vec sum[peak_chains];
  simd::unroll<peak_chains>([&](auto k) POSENC_INLINE_LAMBDA { sum[k] = vec(static_cast<Real>(decltype(k)::value)); });
  const vec va(a), vb(b);
  for (index_t i = 0; i < peak_steps; ++i)
    simd::unroll<peak_chains>([&](auto k) POSENC_INLINE_LAMBDA { sum[k] = fma(sum[k], va, vb); });
  simd::unroll<peak_chains - 1>([&](auto k) POSENC_INLINE_LAMBDA { sum[0] = sum[0] + sum[k + 1]; });
  return simd::reduce_add(sum[0]);
}

template <class Real>
POSENC_NOINLINE Real peak_of_names(Real a, Real b) {
  using vec = simd::vec<Real>;
  const vec va(a), vb(b);
  vec s0(Real(0)), s1(Real(1)), s2(Real(2)), s3(Real(3)), s4(Real(4)), s5(Real(5));
  vec s6(Real(6)), s7(Real(7)), s8(Real(8)), s9(Real(9)), s10(Real(10)), s11(Real(11));
  for (index_t i = 0; i < peak_steps; ++i) {
    s0 = simd::opaque(fma(s0, va, vb)), s1 = simd::opaque(fma(s1, va, vb)), s2 = simd::opaque(fma(s2, va, vb));
    s3 = simd::opaque(fma(s3, va, vb)), s4 = simd::opaque(fma(s4, va, vb)), s5 = simd::opaque(fma(s5, va, vb));
    s6 = simd::opaque(fma(s6, va, vb)), s7 = simd::opaque(fma(s7, va, vb)), s8 = simd::opaque(fma(s8, va, vb));
    s9 = simd::opaque(fma(s9, va, vb)), s10 = simd::opaque(fma(s10, va, vb)), s11 = simd::opaque(fma(s11, va, vb));
  }
  return simd::reduce_add(((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)) + ((s8 + s9) + (s10 + s11)));
}

}  // namespace detail

/// The arithmetic peak of the core: multiply-adds in registers, in the form that this compiler makes the most of.
/// Where the ISA has no such instruction, a multiplication and an addition.
template <class Real>
reference fma_peak(std::string name = "limit") {
  const std::function<void()> forms[] = {
      [] { benchmark::DoNotOptimize(detail::peak_of_array<Real>(Real(0.5), Real(1))); },
      [] { benchmark::DoNotOptimize(detail::peak_of_names<Real>(Real(0.5), Real(1))); }};
  double best[2] = {1e9, 1e9};
  for (int round = 0; round < 5; ++round)
    for (int i = 0; i < 2; ++i) best[i] = std::min(best[i], detail::seconds_of(forms[i], 20));
  return {std::move(name), forms[best[1] < best[0] ? 1 : 0],
          2.0 * detail::peak_chains * detail::peak_steps * simd::vec<Real>::lanes};
}

/// Reading memory at the work's own footprint.
inline reference read_bandwidth(const void* from, index_t bytes, std::string name = "limit") {
  return {std::move(name), [from, bytes] { read(from, bytes); }, static_cast<double>(bytes)};
}

/// Scaling 512 KiB again and again: a canary that stays in the second cache. Where its ratio moves while that of the
/// limit does not, a neighbour is on the caches.
inline reference l2_canary(std::string name = "l2") {
  constexpr index_t n = 512 * 1024 / sizeof(float);
  auto memory = std::make_shared<buffer<float>>(n);
  memory->fill();
  return {std::move(name), [memory] { scale(memory->data(), memory->data(), n, unknown_minus_one<float>()); },
          2.0 * n * sizeof(float)};
}

}  // namespace posenc_bench

#endif  // POSENC_BENCH_SUPPORT_LIMITS_HPP
