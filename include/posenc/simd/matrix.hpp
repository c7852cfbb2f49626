// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_SIMD_MATRIX_HPP
#define POSENC_SIMD_MATRIX_HPP

#include <cstdint>

#include "backend/amx.hpp"
#include "simd.hpp"

/// Products of small matrices by a unit of their own, where the ISA has one, and floats as sums of the bfloat16 numbers that
/// it multiplies.
namespace posenc::inline POSENC_ABI::simd {

/// Floats as sums of bfloat16 numbers: x = high + middle + low, exactly, for |x| below 2^127. Each part is what the parts
/// before leave, rounded to nearest; 24 bits are 8 and 8 and 8. The low part of numbers below 2^-110 is cut off when it is
/// stored. A NaN has a part that is NaN. (Henry, Tang, Heinecke: Leveraging the bfloat16 artificial intelligence datatype for
/// higher-precision computations, arXiv:1904.06376.)
inline constexpr int float_parts = 3;
struct parts_of_floats {
  vec<float> part[float_parts];  ///< high, middle, low
};

namespace detail {

/// The nearest bfloat16 number, ties away from 0; of a sum of two, or of what is one already, that number itself.
POSENC_ALWAYS_INLINE vec<float> upper_half(vec<float> x) noexcept {
  using words = backend::vector<std::uint32_t>;
  return backend::bit_cast_vector<backend::vector<float>>((backend::bit_cast_vector<words>(x.r) + 0x8000u) &
                                                          0xffff'0000u);
}

/// Half words of two registers, those with odd numbers: the upper halves of their words.
template <int... Index>
POSENC_ALWAYS_INLINE auto upper_halves(backend::vector<std::uint16_t> a, backend::vector<std::uint16_t> b,
                                       std::integer_sequence<int, Index...>) noexcept {
  return backend::vector<std::uint16_t>(__builtin_shufflevector(a, b, (2 * Index + 1)...));
}

}  // namespace detail

POSENC_ALWAYS_INLINE parts_of_floats split(vec<float> x) noexcept {
  const vec<float> high = detail::upper_half(x), rest = x - high, middle = detail::upper_half(rest);
  return {{high, middle, rest - middle}};
}

/// Stores parts of two registers of floats side by side: first[0], first[1], ..., second[0], ...
POSENC_ALWAYS_INLINE void store_parts(std::uint16_t* to, vec<float> first, vec<float> second) noexcept {
  using halves = backend::vector<std::uint16_t>;
  constexpr int count = 2 * vec<float>::lanes;
  backend::store(
      to, detail::upper_halves(backend::bit_cast_vector<halves>(first.r), backend::bit_cast_vector<halves>(second.r),
                               std::make_integer_sequence<int, count>{}));
}
/// The same in pairs: first[0], second[0], first[1], second[1], ...
POSENC_ALWAYS_INLINE void store_part_pairs(std::uint16_t* to, vec<float> first, vec<float> second) noexcept {
  using words = backend::vector<std::uint32_t>;
  backend::store(reinterpret_cast<std::uint32_t*>(to), backend::bit_cast_vector<words>(first.r) >> 16 |
                                                           (backend::bit_cast_vector<words>(second.r) & 0xffff'0000u));
}
/// Reads such pairs.
POSENC_ALWAYS_INLINE void load_part_pairs(const std::uint16_t* from, vec<float>& first, vec<float>& second) noexcept {
  using words = backend::vector<std::uint32_t>;
  const words pairs = backend::load<words>(reinterpret_cast<const std::uint32_t*>(from));
  first = backend::bit_cast_vector<backend::vector<float>>(pairs << 16);
  second = backend::bit_cast_vector<backend::vector<float>>(pairs & 0xffff'0000u);
}

/// Whether some of many floats has a bit that is not 0.
class bits_seen {
 public:
  POSENC_ALWAYS_INLINE void see(vec<float> a, vec<float> b) noexcept {
    bits_ |= backend::bit_cast_vector<words>(a.r) | backend::bit_cast_vector<words>(b.r);
  }
  bool any() const noexcept {
    std::uint32_t all = 0;
    for (int lane = 0; lane < vec<float>::lanes; ++lane) all |= bits_[lane];
    return all != 0;
  }

 private:
  using words = backend::vector<std::uint32_t>;
  words bits_{};
};

/// The largest and the smallest magnitude of floats that are not 0, as bits: ordered as the numbers are, infinity and then
/// NaN last, whatever the floating-point mode. Of none, 0 and all bits.
class magnitude_range {
 public:
  /// n floats more, n a multiple of a register's lanes.
  void see(const float* x, index_t n) noexcept {
    for (index_t i = 0; i < n; i += vec<float>::lanes) {
      const words magnitude = backend::load<words>(reinterpret_cast<const std::uint32_t*>(x + i)) & 0x7fff'ffffu;
      largest_ = magnitude > largest_ ? magnitude : largest_;
      const words below = magnitude - 1;  // of 0 it is the largest
      smallest_ = below < smallest_ ? below : smallest_;
    }
  }
  std::uint32_t largest() const noexcept {
    std::uint32_t result = 0;
    for (int lane = 0; lane < vec<float>::lanes; ++lane) result = largest_[lane] > result ? largest_[lane] : result;
    return result;
  }
  std::uint32_t smallest() const noexcept {
    std::uint32_t result = ~0u;
    for (int lane = 0; lane < vec<float>::lanes; ++lane) result = smallest_[lane] < result ? smallest_[lane] : result;
    return result + (result != ~0u);
  }

 private:
  using words = backend::vector<std::uint32_t>;
  words largest_{}, smallest_ = ~words{};
};

/// What a register of the unit holds: matrix_side x matrix_side sums, or matrix_side rows of matrix_depth bfloat16 operands.
inline constexpr index_t matrix_side = 16, matrix_depth = 32;

#if defined(POSENC_ISA_AMX)
// Eight registers, numbered 0 to 7. A thread uses them between making and destroying a `matrix_session`, and not without
// `matrix_unit_allowed()`.

/// Whether the processor and the operating system let this process use the unit. The first call asks Linux to (the kernel
/// then saves more state for each thread that uses it, and wants more room on alternative signal stacks); later calls
/// remember.
inline bool matrix_unit_allowed() noexcept {
  static const bool allowed = backend::ask_for_tiles();
  return allowed;
}

/// The time in which a thread uses the registers. Nothing that may use them, too, is called in it: no policy of the caller's.
class matrix_session {
 public:
  matrix_session() noexcept { backend::shape_tiles(); }
  matrix_session(const matrix_session&) = delete;
  matrix_session& operator=(const matrix_session&) = delete;
  ~matrix_session() { backend::release_tiles(); }
};

template <int Register>
POSENC_ALWAYS_INLINE void clear_matrix() noexcept {
  backend::clear_tile<Register>();
}
/// Rows `stride` elements apart.
template <int Register, class T>
POSENC_ALWAYS_INLINE void load_matrix(const T* from, index_t stride) noexcept {
  backend::load_tile<Register>(from, stride * static_cast<index_t>(sizeof(T)));
}
template <int Register>
POSENC_ALWAYS_INLINE void store_matrix(float* to, index_t stride) noexcept {
  backend::store_tile<Register>(to, stride * static_cast<index_t>(sizeof(float)));
}
/// Sum[i][j] += sum over k of A[i][k] * B[k / 2][2 j + k % 2]: B has the numbers of a column in pairs. Pairs are summed up
/// in float, rounded to nearest, before they are added; denormal operands and results count as 0, whatever the mode.
template <int Sum, int A, int B>
POSENC_ALWAYS_INLINE void multiply_matrices() noexcept {
  backend::multiply_tiles<Sum, A, B>();
}
#endif

}  // namespace posenc::inline POSENC_ABI::simd

#endif  // POSENC_SIMD_MATRIX_HPP
