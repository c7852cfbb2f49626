// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_KV_BLOCK_HPP
#define POSENC_ATTENTION_KV_BLOCK_HPP

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../core/dtype.hpp"
#include "../simd/convert.hpp"
#include "../simd/simd.hpp"
#include "tile_shape.hpp"

namespace posenc::inline POSENC_ABI {

/// The layout of one KV head of one block of `block_keys` keys, elements of type T:
///
///     keys     [head_dim][block_keys]               dim-major, so that a vector spans keys; rotated
///     values   [value_dim / width][block_keys][width]   in panels; the last one is filled up with zeros
///
/// Slots of keys that a block does not have are zero. `width` depends on the ISA and the compute type: one panel is as
/// wide as a register tile.
template <class T>
struct kv_layout {
  using real = compute_type<T>;
  static constexpr index_t width = detail::tile_shape<real>::width;

  index_t head_dim = 0, value_dim = 0;

  constexpr index_t padded_value_dim() const noexcept { return (value_dim + width - 1) / width * width; }
  constexpr index_t key_elements() const noexcept { return head_dim * block_keys; }
  constexpr index_t value_elements() const noexcept { return padded_value_dim() * block_keys; }
  constexpr index_t elements() const noexcept { return key_elements() + value_elements(); }
  /// Where element d of key `slot` stands.
  constexpr index_t key_index(index_t slot, index_t d) const noexcept { return d * block_keys + slot; }
  /// Where element d of value `slot` stands, from the start of the values.
  constexpr index_t value_index(index_t slot, index_t d) const noexcept {
    return (d / width) * block_keys * width + slot * width + d % width;
  }
};

namespace detail {

/// Loads one row of a tensor of any element type as compute numbers.
template <class Real>
using row_loader = void (*)(const void* from, index_t n, Real* to);
template <class Real>
using row_storer = void (*)(const Real* from, index_t n, void* to);

template <class Real, class T>
inline constexpr row_loader<Real> row_loader_of =
    [](const void* from, index_t n, Real* to) { simd::load_row(static_cast<const T*>(from), n, to); };
template <class Real, class T>
inline constexpr row_storer<Real> row_storer_of =
    [](const Real* from, index_t n, void* to) { simd::store_row(from, n, static_cast<T*>(to)); };

/// Whether none of n numbers is an infinity or a NaN. An exponent of all ones is the one that carries into the sign when
/// its lowest bit is added.
template <scalar T>
bool all_finite(const T* x, index_t n) noexcept {
  using bits = std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;
  constexpr bits exponent = static_cast<bits>(sizeof(T) == 8               ? 0x7ff0'0000'0000'0000u
                                              : sizeof(T) == 4             ? 0x7f80'0000u
                                              : dtype_of<T> == dtype::half ? 0x7c00u
                                                                           : 0x7f80u);
  constexpr auto lowest = static_cast<bits>(exponent & (~exponent + 1)), sign = static_cast<bits>(exponent + lowest);
  using vector = simd::backend::vector<bits>;
  constexpr auto lanes = static_cast<index_t>(sizeof(vector) / sizeof(T));
  const vector exponents = vector{} + exponent, lowests = vector{} + lowest;
  vector carried{};
  const index_t rest = n % lanes, whole = n - rest;
  for (index_t i = 0; i < whole; i += lanes)
    carried |= (simd::backend::load<vector>(reinterpret_cast<const bits*>(x + i)) & exponents) + lowests;
  bits found = 0;
  for (index_t lane = 0; lane < lanes; ++lane) found = static_cast<bits>(found | carried[lane]);
  for (index_t i = 0; i < rest; ++i) {
    bits b;
    std::memcpy(&b, x + whole + i, sizeof b);
    found = static_cast<bits>(found | ((b & exponent) + lowest));
  }
  return (found & sign) == 0;
}

/// A number that no key of packed `keys` is longer than, or -1 if an element is not finite or the square overflows.
template <class T>
POSENC_NOINLINE double longest_key_of(const T* keys, index_t head_dim) noexcept {
  using real = compute_type<T>;
  constexpr index_t lanes = simd::vec<real>::lanes;
  double longest = 0;
  for (index_t j = 0; j < block_keys; j += lanes) {
    simd::vec<real> sum(real{0});
    for (index_t d = 0; d < head_dim; ++d) {
      const simd::vec<real> x = simd::load_as<real>(keys + d * block_keys + j);
      sum = simd::fma(x, x, sum);
    }
    real squares[lanes];
    simd::store(squares, sum);
    if (!all_finite(squares, lanes)) return -1;
    for (index_t lane = 0; lane < lanes; ++lane)
      longest = static_cast<double>(squares[lane]) > longest ? static_cast<double>(squares[lane]) : longest;
  }
  return std::sqrt(longest) * (1 + 1e-4);  // sums round
}

/// Writes rows [0, count) of `rows` ([count][head_dim], `row_stride` apart, rotated) to slots first_slot, first_slot + 1,
/// ... of a block's keys, rounded once to T. Whole squares of registers go through a transpose.
template <class T, class Real>
POSENC_NOINLINE void pack_keys(const Real* rows, index_t row_stride, index_t count, index_t first_slot,
                               index_t head_dim, T* keys) noexcept {
  constexpr index_t lanes = simd::vec<Real>::lanes;
  for (index_t j = 0; j < count; j += lanes)
    for (index_t d = 0; d < head_dim; d += lanes) {
      const index_t n = count - j < lanes ? count - j : lanes, m = head_dim - d < lanes ? head_dim - d : lanes;
      T* to = keys + d * block_keys + first_slot + j;
      if (n == lanes && m == lanes) {
        simd::vec<Real> square[lanes];
        simd::unroll<lanes>([&](auto i)
                                POSENC_INLINE_LAMBDA { square[i] = simd::load(rows + (j + i) * row_stride + d); });
        simd::transpose(square);
        simd::unroll<lanes>([&](auto i) POSENC_INLINE_LAMBDA { simd::store_as(to + i * block_keys, square[i]); });
      } else {
        T stored[lanes];
        for (index_t r = 0; r < n; ++r) {
          simd::store_row(rows + (j + r) * row_stride + d, m, stored);
          for (index_t c = 0; c < m; ++c) to[c * block_keys + r] = stored[c];
        }
      }
    }
}

/// Writes one value row to its slot, the padding as zeros.
template <class T, class Real>
void pack_value(const Real* row, index_t slot, const kv_layout<T>& layout, T* values) noexcept {
  constexpr index_t width = kv_layout<T>::width;
  for (index_t d = 0; d < layout.padded_value_dim(); d += width) {
    T* to = values + layout.value_index(slot, d);
    const index_t n = layout.value_dim - d < width ? layout.value_dim - d : width;
    simd::store_row(row + d, n, to);
    for (index_t c = n; c < width; ++c) to[c] = T(0);
  }
}

/// Zeroes slots [first, end).
template <class T>
void clear_slots(index_t first, index_t end, const kv_layout<T>& layout, T* keys, T* values) noexcept {
  if (first == end) return;
  for (index_t d = 0; d < layout.head_dim; ++d)
    for (index_t j = first; j < end; ++j) keys[layout.key_index(j, d)] = T(0);
  for (index_t d = 0; d < layout.padded_value_dim(); d += kv_layout<T>::width)
    for (index_t j = first; j < end; ++j)
      for (index_t c = 0; c < kv_layout<T>::width; ++c) values[layout.value_index(j, d) + c] = T(0);
}

}  // namespace detail

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ATTENTION_KV_BLOCK_HPP
