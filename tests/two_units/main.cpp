// SPDX-License-Identifier: Apache-2.0
// Links two units that include the whole library, each perhaps compiled for another ISA, and compares what they compute.
#include <cmath>
#include <cstdio>

#include "units.hpp"

int main() {
#if defined(__x86_64__)
  if (unit_b_needs_avx2() && !(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))) {
    std::printf("linked; not run, since this CPU lacks AVX2\n");
    return 0;
  }
#endif
  const unit_result a = run_unit_a();
  const unit_result b = run_unit_b();
  double worst = 0, largest = 0;
  for (int i = 0; i < unit_result::size; ++i) {
    worst = std::fmax(worst, std::fabs(double(a.values[i]) - double(b.values[i])));
    largest = std::fmax(largest, std::fabs(double(a.values[i])));
  }
  std::printf("%s and %s: largest value %g, largest difference %g\n", a.isa, b.isa, largest, worst);
  return worst <= 4e-6 && largest > 0.1 ? 0 : 1;
}
