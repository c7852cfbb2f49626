// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_EXAMPLES_SUPPORT_CPU_HPP
#define POSENC_EXAMPLES_SUPPORT_CPU_HPP

#include <posenc/simd/simd.hpp>

#include <algorithm>
#include <string>
#include <vector>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace tour {

/// An instruction set extension that is of use for attention.
struct cpu_feature {
  const char* name;
  bool present;    ///< the CPU and the operating system have it
  bool known;      ///< posenc has kernels for it
  bool built_for;  ///< and this program was compiled with them
};

#if defined(__x86_64__) || defined(__i386__)

inline bool operating_system_saves_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & (1u << 27)) == 0) return false;  // no xgetbv
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & (3u << 17)) == 3u << 17;
}

inline std::vector<cpu_feature> cpu_features() {
  unsigned a = 0, b = 0, c = 0, d = 0, a1 = 0, b1 = 0, c1 = 0, d1 = 0;
  __get_cpuid_count(7, 0, &a, &b, &c, &d);
  if (a >= 1) __get_cpuid_count(7, 1, &a1, &b1, &c1, &d1);
  const auto has = [](unsigned word, int bit) { return (word >> bit & 1) != 0; };
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  // The ISAs of posenc in rising order: each one includes those before it.
  const std::vector<std::string> isas = {"sse2", "sse4", "avx", "avx2", "avx512", "avx512bf16", "avx512amx"};
  const auto built = std::find(isas.begin(), isas.end(), posenc::simd::isa()) - isas.begin();
  return {{"SSE4.1", __builtin_cpu_supports("sse4.1") != 0, true, built >= 1},
          {"AVX", __builtin_cpu_supports("avx") != 0, true, built >= 2},
          {"AVX2+FMA", __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"), true, built >= 3},
          {"AVX-512", avx512, true, built >= 4},
          {"AVX-512 BF16", avx512 && has(a1, 5), true, built >= 5},
          {"AVX-512 FP16", avx512 && has(d, 23), false, false},
          {"AMX BF16", has(d, 22) && has(d, 24) && operating_system_saves_tiles(), true, built >= 6}};
}

#elif defined(__aarch64__) && defined(__linux__)

inline std::vector<cpu_feature> cpu_features() {
  const unsigned long one = getauxval(AT_HWCAP), two = getauxval(AT_HWCAP2);
  const auto has = [](unsigned long word, int bit) { return (word >> bit & 1) != 0; };
  // Bit numbers are those of the kernel's asm/hwcap.h, which older headers do not have in full.
  return {{"FP16 arithmetic", has(one, 10), false, false},
          {"BF16", has(two, 14), false, false},
          {"SVE", has(one, 22), false, false},
          {"SVE2", has(two, 1), false, false}};
}

#else

inline std::vector<cpu_feature> cpu_features() { return {}; }

#endif

/// What the CPU has beyond what this program uses, for people.
inline std::vector<std::string> beyond_this_build() {
  const std::vector<cpu_feature> features = cpu_features();
  if (features.empty()) return {"What the CPU has beyond it is not known on this platform."};
  std::string rebuild, unused;
  for (const cpu_feature& f : features) {
    if (!f.present || f.built_for) continue;
    std::string& list = f.known ? rebuild : unused;
    list += (list.empty() ? "" : ", ") + std::string(f.name);
  }
  std::vector<std::string> lines;
  if (!rebuild.empty()) lines.push_back("The CPU also has " + rebuild + " (-march=native uses them).");
  if (!unused.empty()) lines.push_back("The CPU has " + unused + ", for which posenc has no kernels.");
  if (lines.empty()) lines.push_back("The CPU has nothing beyond it.");
  return lines;
}

}  // namespace tour

#endif  // POSENC_EXAMPLES_SUPPORT_CPU_HPP
