// SPDX-License-Identifier: Apache-2.0
// The program of every consumer project.
#include <posenc/posenc.hpp>

#include <cstdio>

int main() {
  std::printf("posenc %s for %s\n", posenc::version, posenc::simd::isa());
  return 0;
}
