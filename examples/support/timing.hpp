// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_EXAMPLES_SUPPORT_TIMING_HPP
#define POSENC_EXAMPLES_SUPPORT_TIMING_HPP

#include <posenc/simd/simd.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>

#include "report.hpp"

namespace tour {

inline double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The clock of work on so many threads. Work on one is told in CPU time, to which it does not matter what else the
/// machine has to do.
inline double work_seconds(int threads) {
#if defined(CLOCK_THREAD_CPUTIME_ID)
  std::timespec now{};
  if (threads == 1 && clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0)
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
#endif
  static_cast<void>(threads);
  return wall_seconds();
}

/// Multiply-adds in registers and nothing else, `chains` of them independent. The empty instruction keeps the compiler
/// from moving the call away from the clock.
template <int chains>
__attribute__((noinline)) float multiply_adds(std::int64_t steps, float factor, float summand) {
  using vector = posenc::simd::vec<float>;
  asm volatile("" ::: "memory");
  const vector a(factor), b(summand);
  vector x[chains];
  for (int i = 0; i < chains; ++i) x[i] = vector(static_cast<float>(i));
  for (std::int64_t s = 0; s < steps; ++s)
    posenc::simd::unroll<chains>([&](auto i) POSENC_INLINE_LAMBDA { x[i] = posenc::simd::fma(x[i], a, b); });
  float sum = 0;
  for (int i = 0; i < chains; ++i) sum += posenc::simd::reduce_add(x[i]);
  return sum;
}

/// FLOP/s of one such loop over a million multiply-adds of vectors.
template <int chains>
double multiply_add_rate() {
  constexpr std::int64_t steps = 1000000 / chains;
  const double begin = work_seconds(1);
  volatile const float result = multiply_adds<chains>(steps, 0.999f, 0.001f);
  static_cast<void>(result);
  const double flops = 2.0 * posenc::simd::vec<float>::lanes * static_cast<double>(chains * steps);
  return flops / (work_seconds(1) - begin);
}

/// The multiply-add peak of one core now, in FLOP/s: the best of several numbers of chains, since what fits into the
/// registers depends on ISA and compiler.
inline double multiply_add_peak() {
  return (std::max)({multiply_add_rate<8>(), multiply_add_rate<12>(), multiply_add_rate<20>()});
}

/// The best of 5 runs of f (of 2, if they take long), and of the peak measured before each.
template <class F>
speed timed(int threads, F&& f) {
  speed best{1e300, 0};
  const double end = work_seconds(threads) + 0.5;
  for (int run = 0; run < 5 && (run < 2 || work_seconds(threads) < end); ++run) {
    best.peak = (std::max)(best.peak, multiply_add_peak());
    const double begin = work_seconds(threads);
    f();
    best.seconds = (std::min)(best.seconds, work_seconds(threads) - begin);
  }
  return best;
}

}  // namespace tour

#endif  // POSENC_EXAMPLES_SUPPORT_TIMING_HPP
