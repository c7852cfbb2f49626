// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTS_TWO_UNITS_HPP
#define POSENC_TESTS_TWO_UNITS_HPP

/// What one unit computed, and what it was compiled for. Plain types only: types of the library differ between ISAs.
struct unit_result {
  static constexpr int size = 2 * 70 * 16;
  const char* isa;
  float values[size];
};

unit_result run_unit_a();
unit_result run_unit_b();
bool unit_a_needs_avx2();
bool unit_b_needs_avx2();

#endif  // POSENC_TESTS_TWO_UNITS_HPP
