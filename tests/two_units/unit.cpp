// SPDX-License-Identifier: Apache-2.0
// One of two units of a program: includes every header and computes a little attention. POSENC_UNIT is a or b.
#ifdef POSENC_REVERSED
#include "all_headers_reversed.hpp"
#else
#include "all_headers.hpp"
#endif

#include "units.hpp"

#define UNIT_NAME2(before, unit, after) before##unit##after
#define UNIT_NAME(before, unit, after) UNIT_NAME2(before, unit, after)

unit_result UNIT_NAME(run_unit_, POSENC_UNIT, )() {
  constexpr posenc::index_t heads = 2, tokens = 70, dim = 16;
  static_assert(unit_result::size == heads * tokens * dim);
  static float q[unit_result::size], k[unit_result::size], v[unit_result::size];
  unsigned state = 1;
  for (float* x : {q, k, v}) {
    for (int i = 0; i < unit_result::size; ++i) {
      state = state * 1664525u + 1013904223u;
      x[i] = static_cast<float>(static_cast<int>(state >> 25) - 64) / 64;
    }
  }
  unit_result result{posenc::simd::isa(), {}};
  const posenc::rope encoding{posenc::frequency_ladder(dim)};
  posenc::attention(posenc::view_bhtd(q, 1, heads, tokens, dim), posenc::view_bhtd(k, 1, heads, tokens, dim),
                    posenc::view_bhtd(v, 1, heads, tokens, dim),
                    posenc::view_bhtd(result.values, 1, heads, tokens, dim), posenc::token_range(tokens), encoding,
                    posenc::causal{});
  return result;
}

bool UNIT_NAME(unit_, POSENC_UNIT, _needs_avx2)() {
#if defined(__AVX2__)
  return true;
#else
  return false;
#endif
}
