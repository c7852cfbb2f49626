// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_BLOCK_PARTS_HPP
#define POSENC_ATTENTION_BLOCK_PARTS_HPP

#include <bit>
#include <cstdint>

#include "../simd/matrix.hpp"
#include "kv_block.hpp"

/// Blocks of floats as sums of bfloat16 numbers (`simd::split`), in the order in which a matrix unit reads them.
namespace posenc::inline POSENC_ABI::detail {

/// Where the parts of one KV head of a block, and of rows of a score tile, stand. All is made of squares of 16 x 32
/// bfloat16 numbers, a register each, the three parts of the same numbers one after another:
///
///     keys     [16 keys at a time][32 dims at a time][part]     [pair of dims][key][2]
///     values   [16 dims at a time][32 keys at a time][part]     [pair of keys][dim][2]
///     rows     [16 rows at a time][32 numbers at a time][part]  [row][number]
///
/// What is missing to whole squares is 0.
struct parts_layout {
  static constexpr index_t side = simd::matrix_side, depth = simd::matrix_depth;
  static constexpr index_t square = side * depth, squares = simd::float_parts * square;

  index_t head_dim = 0, padded_value_dim = 0;

  constexpr index_t key_steps() const noexcept { return (head_dim + depth - 1) / depth; }
  static constexpr index_t block_steps = block_keys / depth;
  constexpr index_t key_elements() const noexcept { return block_keys / side * key_steps() * squares; }
  constexpr index_t value_elements() const noexcept { return padded_value_dim / side * block_steps * squares; }
  /// Of a row of head_dim numbers, on average over the 16 of a square.
  constexpr index_t row_elements() const noexcept { return key_steps() * squares / side; }
  /// The high part of the first number of a pair of rows in a column; other parts are `square` elements on.
  template <class T>
  static constexpr T* pair(T* parts, index_t squares_before, index_t pair, index_t column) noexcept {
    return parts + squares_before * squares + (pair % (depth / 2) * side + column) * 2;
  }
  /// Of keys and values, in floats, which take twice the room of a part: at least as many as the block has.
  constexpr index_t floats() const noexcept { return (key_elements() + value_elements()) / 2; }
};

template <class T>
constexpr parts_layout parts_layout_of(const kv_layout<T>& layout) noexcept {
  return {layout.head_dim, layout.padded_value_dim()};
}

/// Whether parts do for all these floats. Infinities and NaN have none; products of larger numbers might overflow on the way
/// to a sum that does not; those of smaller ones are lost below 2^-126, and what is cut off of their low parts with them.
inline bool parts_do(const simd::magnitude_range& seen) noexcept {
  constexpr auto most = std::bit_cast<std::uint32_t>(0x1p60f), least = std::bit_cast<std::uint32_t>(0x1p-60f);
  return seen.largest() <= most && seen.smallest() >= least;
}

/// Counts the parts that are not 0 in all of some floats.
struct part_counter {
  simd::bits_seen middle, low;

  std::uint8_t count() const noexcept { return static_cast<std::uint8_t>(low.any() ? 3 : middle.any() ? 2 : 1); }
};

/// Splits pairs of rows, `lanes` numbers each, and stores them as pairs, a part every `square` elements.
POSENC_ALWAYS_INLINE void split_pairs(simd::vec<float> first, simd::vec<float> second, std::uint16_t* to,
                                      part_counter& counter) noexcept {
  const simd::parts_of_floats a = simd::split(first), b = simd::split(second);
  simd::unroll<simd::float_parts>([&](auto part) POSENC_INLINE_LAMBDA {
    simd::store_part_pairs(to + part * parts_layout::square, a.part[part], b.part[part]);
  });
  counter.middle.see(a.part[1], b.part[1]);
  counter.low.see(a.part[2], b.part[2]);
}

/// Sums of such pairs, exact.
POSENC_ALWAYS_INLINE void join_pairs(const std::uint16_t* from, simd::vec<float>& first,
                                     simd::vec<float>& second) noexcept {
  first = second = simd::vec<float>(0.0f);
  simd::unroll<simd::float_parts>([&](auto part) POSENC_INLINE_LAMBDA {
    constexpr int from_low = simd::float_parts - 1 - part;
    simd::vec<float> a, b;
    simd::load_part_pairs(from + from_low * parts_layout::square, a, b);
    first = first + a;
    second = second + b;
  });
}

/// Calls f(two rows of `lanes` floats, null where there is none, where their pairs of parts stand) for all of a block's keys,
/// or of its values, whose floats are laid out as `kv_layout` says.
template <class Floats, class Parts, class F>
void for_each_pair_of_keys(const parts_layout& layout, Floats* keys, Parts* parts, F&& f) {
  constexpr index_t lanes = simd::vec<float>::lanes, side = parts_layout::side, depth = parts_layout::depth;
  for (index_t d = 0; d < layout.key_steps() * depth; d += 2)
    for (index_t j = 0; j < block_keys; j += lanes) {
      Floats* row = keys + d * block_keys + j;
      f(d < layout.head_dim ? row : nullptr, d + 1 < layout.head_dim ? row + block_keys : nullptr,
        parts_layout::pair(parts, j / side * layout.key_steps() + d / depth, d / 2, j % side));
    }
}
template <class Floats, class Parts, class F>
void for_each_pair_of_values(const parts_layout& layout, Floats* values, Parts* parts, F&& f) {
  constexpr index_t lanes = simd::vec<float>::lanes, width = kv_layout<float>::width, side = parts_layout::side;
  constexpr index_t depth = parts_layout::depth;
  for (index_t c = 0; c < layout.padded_value_dim; c += lanes)
    for (index_t j = 0; j < block_keys; j += 2) {
      Floats* row = values + (c / width) * block_keys * width + j * width + c % width;
      f(row, row + width, parts_layout::pair(parts, c / side * parts_layout::block_steps + j / depth, j / 2, c % side));
    }
}

/// Splits a block of finite floats.
POSENC_NOINLINE inline split_parts split_block(const parts_layout& layout, const float* keys, const float* values,
                                               std::uint16_t* parts) noexcept {
  const auto counted = [](auto&& each) POSENC_INLINE_LAMBDA {
    part_counter counter;
    each([&counter](const float* a, const float* b, std::uint16_t* to) POSENC_INLINE_LAMBDA {
      const simd::vec<float> zero(0.0f);
      split_pairs(a == nullptr ? zero : simd::load(a), b == nullptr ? zero : simd::load(b), to, counter);
    });
    return counter.count();
  };
  return {counted([&](auto&& f) POSENC_INLINE_LAMBDA { for_each_pair_of_keys(layout, keys, parts, f); }),
          counted([&](auto&& f) POSENC_INLINE_LAMBDA {
            for_each_pair_of_values(layout, values, parts + layout.key_elements(), f);
          })};
}

/// Splits a block if parts do for it; no parts if they do not.
template <class Real>
split_parts split_if_parts_do(const kv_layout<Real>& layout, const Real* keys, const Real* values,
                              Real* parts) noexcept {
  if constexpr (std::is_same_v<Real, float>) {
    simd::magnitude_range seen;
    seen.see(keys, layout.key_elements());
    seen.see(values, layout.value_elements());
    if (parts_do(seen))
      return split_block(parts_layout_of(layout), keys, values, reinterpret_cast<std::uint16_t*>(parts));
  }
  return {0, 0};
}

/// The floats that it was.
POSENC_NOINLINE inline void join_block(const parts_layout& layout, const std::uint16_t* parts, float* keys,
                                       float* values) noexcept {
  const auto join = [](float* a, float* b, const std::uint16_t* from) POSENC_INLINE_LAMBDA {
    simd::vec<float> first, second;
    join_pairs(from, first, second);
    if (a != nullptr) simd::store(a, first);
    if (b != nullptr) simd::store(b, second);
  };
  for_each_pair_of_keys(layout, keys, parts, join);
  for_each_pair_of_values(layout, values, parts + layout.key_elements(), join);
}

template <class Real>
void join_numbers(const kv_layout<Real>& layout, const Real* parts, Real* block) noexcept {
  if constexpr (std::is_same_v<Real, float>)
    join_block(parts_layout_of(layout), reinterpret_cast<const std::uint16_t*>(parts), block,
               block + layout.key_elements());
}

/// Splits `rows` rows of finite floats, steps [first, end) of 32 numbers each. `to`: of row 0, `steps` steps a row.
POSENC_NOINLINE inline void split_rows_of(const float* from, index_t stride, index_t rows, index_t first, index_t end,
                                          index_t steps, std::uint16_t* to) noexcept {
  constexpr index_t lanes = simd::vec<float>::lanes, depth = parts_layout::depth, side = parts_layout::side;
  for (index_t r = 0; r < rows; ++r)
    for (index_t s = first; s < end; ++s) {
      const float* numbers = from + r * stride + s * depth;
      std::uint16_t* square = to + (r / side * steps + s) * parts_layout::squares + r % side * depth;
      simd::unroll<depth / (2 * lanes)>([&](auto i) POSENC_INLINE_LAMBDA {
        const simd::parts_of_floats a = simd::split(simd::load(numbers + 2 * i * lanes)),
                                    b = simd::split(simd::load(numbers + (2 * i + 1) * lanes));
        simd::unroll<simd::float_parts>([&](auto part) POSENC_INLINE_LAMBDA {
          simd::store_parts(square + part * parts_layout::square + 2 * i * lanes, a.part[part], b.part[part]);
        });
      });
    }
}

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ATTENTION_BLOCK_PARTS_HPP
