// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_ROPE_KERNEL_HPP
#define POSENC_ENCODING_ROPE_KERNEL_HPP

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "../core/platform.hpp"
#include "../simd/simd.hpp"
#include "concepts.hpp"
#include "pairing.hpp"
#include "row_elements.hpp"
#include "store_mode.hpp"

/// The kernel of RoPE: pairs (x, y) of a head become (x cos - y sin, x sin + y cos). A token's cosines and sines are loaded
/// once and all its heads pass by; the data of one token stay in the first cache.
namespace posenc::inline POSENC_ABI::detail {

/// Cosines and sines of a register of pairs.
template <class Real>
class turned_pairs {
 public:
  template <class Count>
  POSENC_ALWAYS_INLINE void load(const Real* cos, const Real* sin, Count count) noexcept {
    c_ = load_lanes<Real>(cos, count);
    s_ = load_lanes<Real>(sin, count);
  }

  POSENC_ALWAYS_INLINE void turn(simd::vec<Real>& x, simd::vec<Real>& y) const noexcept {
    const simd::vec<Real> a = x, b = y;
    x = fma(a, c_, -(b * s_));
    y = fma(b, c_, a * s_);
  }

 private:
  simd::vec<Real> c_, s_;
};

/// Registers of pairs (i, i + pairs): x and y lie `pairs` elements apart.
template <class Real>
class half_pairs : public turned_pairs<Real> {
 public:
  static constexpr int together = 4;            ///< registers of pairs that are held at once
  static constexpr index_t step = 1;            ///< from pair to pair, in elements
  static constexpr bool loads_are_free = true;  ///< whether cos and sin may as well be loaded for each head

  /// Pieces of one head. Two registers are stored at once where that takes fewer instructions.
  template <bool Streaming, int N, class In, class Out, class Count>
  static POSENC_ALWAYS_INLINE void turn_all(const half_pairs (&registers)[N], const In* in, Out* out, index_t pairs,
                                            Count count) noexcept {
    constexpr int at_once = N % 2 == 0 && sizeof(Out) == 2 ? 2 : 1;
    simd::unroll<N / at_once>([&](auto group) POSENC_INLINE_LAMBDA {
      simd::vec<Real> x[at_once], y[at_once];
      simd::unroll<at_once>([&](auto i) POSENC_INLINE_LAMBDA {
        constexpr int k = group * at_once + i;
        x[i] = load_lanes<Real>(in + k * lanes, count);
        y[i] = load_lanes<Real>(in + pairs + k * lanes, count);
        registers[k].turn(x[i], y[i]);
      });
      store_lanes<Streaming>(out + group * at_once * lanes, x, count);
      store_lanes<Streaming>(out + pairs + group * at_once * lanes, y, count);
    });
  }

 private:
  static constexpr index_t lanes = simd::vec<Real>::lanes;
};

/// Registers of pairs (2i, 2i + 1) of elements that are halves of one word.
template <class Real>
class word_pairs : public turned_pairs<Real> {
 public:
  static constexpr int together = 4;
  static constexpr index_t step = 2;
  static constexpr bool loads_are_free = true;

  template <bool Streaming, int N, class In, class Out, class Count>
  static POSENC_ALWAYS_INLINE void turn_all(const word_pairs (&registers)[N], const In* in, Out* out, index_t,
                                            Count count) noexcept {
    static_assert(!Streaming);
    simd::unroll<N>([&](auto k) POSENC_INLINE_LAMBDA {
      constexpr index_t first = 2 * k * simd::vec<Real>::lanes;
      simd::vec<Real> x, y;
      load_lane_pairs(in + first, x, y, count);
      registers[k].turn(x, y);
      store_lane_pairs(out + first, x, y, count);
    });
  }
};

/// Registers of pairs (2i, 2i + 1) of any elements, each two registers of elements. With its neighbours swapped, an element
/// becomes z cos + swapped z sin, where the sine is negative for the first of a pair.
template <class Real>
class interleaved_pairs {
 public:
  static constexpr int together = sizeof(simd::vec<Real>) >= 64 ? 4 : 2;
  static constexpr index_t step = 2;
  static constexpr bool loads_are_free = false;

  template <class Count>
  POSENC_ALWAYS_INLINE void load(const Real* cos, const Real* sin, Count count) noexcept {
    const simd::vec<Real> c = load_lanes<Real>(cos, count), s = load_lanes<Real>(sin, count);
    c_[0] = simd::twice<0>(c);
    c_[1] = simd::twice<1>(c);
    s_[0] = simd::negate_even(simd::twice<0>(s));
    s_[1] = simd::negate_even(simd::twice<1>(s));
  }

  template <bool Streaming, int N, class In, class Out, class Count>
  static POSENC_ALWAYS_INLINE void turn_all(const interleaved_pairs (&registers)[N], const In* in, Out* out, index_t,
                                            Count count) noexcept {
    simd::unroll<N>([&](auto k) POSENC_INLINE_LAMBDA {
      constexpr index_t first = 2 * k * full_register<Real>{};
      registers[k].template turn<Streaming>(in + first, out + first, count);
    });
  }

 private:
  template <bool Streaming, class In, class Out, class Count>
  POSENC_ALWAYS_INLINE void turn(const In* in, Out* out, Count count) const noexcept {
    constexpr full_register<Real> lanes{};
    if constexpr (std::is_same_v<Count, full_register<Real>>) {
      turn_half<0, Streaming>(in, out, lanes);
      turn_half<1, Streaming>(in, out, lanes);
    } else {
      turn_half<0, false>(in, out, (std::min)(2 * count, index_t{lanes}));
      if (2 * count > lanes) turn_half<1, false>(in, out, 2 * count - lanes);
    }
  }

  template <int Half, bool Streaming, class In, class Out, class Count>
  POSENC_ALWAYS_INLINE void turn_half(const In* in, Out* out, Count count) const noexcept {
    constexpr index_t first = Half * simd::vec<Real>::lanes;
    const simd::vec<Real> z = load_lanes<Real>(in + first, count);
    store_lanes<Streaming>(out + first, fma(z, c_[Half], simd::swap_pairs(z) * s_[Half]), count);
  }

  simd::vec<Real> c_[2], s_[2];
};

/// Heads of one token: `heads` rows, `in_stride` and `out_stride` elements apart. `out` is `in` or does not meet it.
/// Memory is asked early for heads: for the first `own` ones here, for that which comes `ahead` heads later; for the
/// others, for the rows from `next` on.
template <class In, class Out>
struct head_rows {
  index_t heads;
  const In* in;
  index_t in_stride;
  Out* out;
  index_t out_stride;
  index_t own, ahead;
  const In* next;  ///< null: nothing is asked for
  Out* next_out;   ///< null: nothing is asked for to be written, nor where `next` is null
};

/// Asks memory for N registers of pairs of a head, to be read or, where `Write`, to be written.
template <class Pairs, int N, bool Write, class Real, class T>
POSENC_ALWAYS_INLINE void fetch(const T* from, index_t pairs) noexcept {
  constexpr index_t line = 64, bytes = Pairs::step * N * simd::vec<Real>::lanes * index_t{sizeof(T)};
  for (index_t i = 0; i < bytes; i += line) {
    __builtin_prefetch(reinterpret_cast<const char*>(from) + i, Write);
    if constexpr (Pairs::step == 1) __builtin_prefetch(reinterpret_cast<const char*>(from + pairs) + i, Write);
  }
}

/// N registers of pairs from pair `first` on, or one with `count` pairs.
template <class Pairs, int N, bool Streaming, class Real, class In, class Out, class Count>
POSENC_ALWAYS_INLINE void turn_pairs(const Real* row, index_t pairs, index_t first, const head_rows<In, Out>& rows,
                                     Count count) noexcept {
  constexpr index_t lanes = simd::vec<Real>::lanes;
  Pairs registers[N];
  simd::unroll<N>([&](auto k) POSENC_INLINE_LAMBDA {
    registers[k].load(row + first + k * lanes, row + pairs + first + k * lanes, count);
  });
  const auto [heads, from, in_stride, to, out_stride, own, ahead, next, next_out] =
      rows;  // what is stored through `out` could be rows, for all C++ knows
  const In* in = from + Pairs::step * first;
  Out* out = to + Pairs::step * first;
  const In* later = next + Pairs::step * first;
  Out* later_out = next_out + Pairs::step * first;
  for (index_t head = 0; head < heads; ++head, in += in_stride, out += out_stride) {
    if (next != nullptr) {
      fetch<Pairs, N, false, Real>(head < own ? in + ahead * in_stride : later, pairs);
      later += head < own ? 0 : in_stride;
      if (next_out != nullptr) {
        fetch<Pairs, N, true, Real>(head < own ? out + ahead * out_stride : later_out, pairs);
        later_out += head < own ? 0 : out_stride;
      }
    }
    Pairs::template turn_all<Streaming>(registers, in, out, pairs, count);
  }
}

/// Turns the first 2 * pairs elements of every head. `row` has `pairs` cosines and then as many sines, the attention factor
/// in them. Where the registers do not hold all of a token's cosines and sines, memory likes whole heads, one after another,
/// better than pieces of all heads again and again.
///
/// All arguments are single words: a structure would be copied with wider loads than it was just stored with, and those wait
/// until all stores before them are done, at memory's speed, twice a token.
template <class Pairs, bool Streaming, class Real, class In, class Out>
POSENC_NOINLINE void turn_heads(const Real* row, index_t pairs, index_t heads, const In* in, index_t in_stride,
                                Out* out, index_t out_stride, const In* next, Out* next_out) noexcept {
  constexpr index_t together = Pairs::together * simd::vec<Real>::lanes;
  // The hardware's own guesses end with each page of memory and with each run of heads. Two KiB ahead are best.
  const auto bytes = static_cast<std::uint64_t>(2 * pairs * index_t{sizeof(In)});
  const index_t ahead =  // a division would show
      (std::min)(heads, bytes <= 1024 ? index_t{2048} >> std::bit_width(bytes - 1) : index_t{1});
  const index_t run = Pairs::loads_are_free && pairs > together ? 1 : heads;
  for (index_t head = 0; head < heads; head += run) {
    const index_t left = heads - ahead - head, passed = left < 0 ? -left : 0;
    const head_rows<In, Out> rows{run,
                                  in,
                                  in_stride,
                                  out,
                                  out_stride,
                                  left,
                                  ahead,
                                  next == nullptr ? nullptr : next + passed * in_stride,
                                  next_out == nullptr ? nullptr : next_out + passed * out_stride};
    index_t i = 0;
    for (; i + together <= pairs; i += together)
      turn_pairs<Pairs, Pairs::together, Streaming>(row, pairs, i, rows, full_register<Real>{});
    for_each_register<Real>(pairs - i, [&](index_t first, auto count) POSENC_INLINE_LAMBDA {
      turn_pairs<Pairs, 1, Streaming>(row, pairs, i + first, rows, count);
    });
    in += in_stride;
    out += out_stride;
  }
}

/// Whether all registers of the outputs are aligned, as streaming stores need.
template <class Real, class Out>
bool can_stream(const Out* out, index_t out_stride, index_t pairs) noexcept {
  constexpr auto bytes = static_cast<std::uintptr_t>(simd::vec<Real>::lanes) * sizeof(Out);
  const auto aligned = [](std::uintptr_t x) { return x % bytes == 0; };
  return aligned(reinterpret_cast<std::uintptr_t>(out)) &&
         aligned(static_cast<std::uintptr_t>(out_stride) * sizeof(Out)) &&
         aligned(static_cast<std::uintptr_t>(pairs) * sizeof(Out));
}

/// The same. `Streamed` are the pairs where stores stream, which the two ways turn to the same bits.
template <class Pairs, class Streamed, class Real, class In, class Out>
POSENC_ALWAYS_INLINE void turn_heads(const Real* row, index_t pairs, index_t heads, const In* in, index_t in_stride,
                                     Out* out, index_t out_stride, store_mode store, const In* next,
                                     Out* next_out) noexcept {
  const bool in_place = static_cast<const void*>(in) == static_cast<const void*>(out);
  if (store == store_mode::streaming && !in_place && can_stream<Real>(out, out_stride, pairs)) {
    turn_heads<Streamed, true>(row, pairs, heads, in, in_stride, out, out_stride, next, static_cast<Out*>(nullptr));
  } else {
    turn_heads<Pairs, false>(row, pairs, heads, in, in_stride, out, out_stride, next, in_place ? nullptr : next_out);
  }
}

template <class Real, class In, class Out>
using neighbours =
    std::conditional_t<std::is_same_v<Real, float> && simd::pairs_are_words<In> && simd::pairs_are_words<Out>,
                       word_pairs<Real>, interleaved_pairs<Real>>;

/// Whole heads of one token: dimensions `turned` turn by `row`, [cosines][sines]; the others keep their bits in place and
/// are copied out of place. `next` and `next_out`: where the next token's heads begin, or null.
template <class Real, class In, class Out>
POSENC_ALWAYS_INLINE void turn_rotary(pairing how, dim_range turned, index_t head_dim, const Real* row, index_t heads,
                                      const In* in, index_t in_stride, Out* out, index_t out_stride, store_mode store,
                                      const In* next, Out* next_out) noexcept {
  const index_t pairs = (turned.end - turned.begin) / 2, begin = turned.begin;
  const In* const later = next == nullptr ? nullptr : next + begin;
  Out* const later_out = next_out == nullptr ? nullptr : next_out + begin;
  if (how == pairing::half) {
    turn_heads<half_pairs<Real>, half_pairs<Real>>(row, pairs, heads, in + begin, in_stride, out + begin, out_stride,
                                                   store, later, later_out);
  } else {
    turn_heads<neighbours<Real, In, Out>, interleaved_pairs<Real>>(row, pairs, heads, in + begin, in_stride,
                                                                   out + begin, out_stride, store, later, later_out);
  }
  if (static_cast<const void*>(in) == static_cast<const void*>(out)) return;
  if (turned.begin == 0 && turned.end == head_dim) return;
  for (index_t head = 0; head < heads; ++head, in += in_stride, out += out_stride) {
    copy_elements<Real>(in, turned.begin, out);
    copy_elements<Real>(in + turned.end, head_dim - turned.end, out + turned.end);
  }
}

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ENCODING_ROPE_KERNEL_HPP
