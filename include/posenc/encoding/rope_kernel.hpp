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

/// Asks memory for N registers of pairs of a head, to be read or, where `Write`, to be written.
template <class Pairs, int N, bool Write, class Real, class T>
POSENC_ALWAYS_INLINE void fetch(const T* from, index_t pairs) noexcept {
  constexpr index_t line = 64, bytes = Pairs::step * N * simd::vec<Real>::lanes * index_t{sizeof(T)};
  for (index_t i = 0; i < bytes; i += line) {
    __builtin_prefetch(reinterpret_cast<const char*>(from) + i, Write);
    if constexpr (Pairs::step == 1) __builtin_prefetch(reinterpret_cast<const char*>(from + pairs) + i, Write);
  }
}

/// A head's pairs from `first` on, as many as the registers hold, or `count`. `soon` and `soon_out` are heads that come
/// later, or null.
template <bool Streaming, class Real, class Pairs, int N, class In, class Out, class Count>
POSENC_ALWAYS_INLINE void turn_piece(const Pairs (&registers)[N], index_t pairs, index_t first, const In* in, Out* out,
                                     const In* soon, Out* soon_out, Count count) noexcept {
  const index_t at = Pairs::step * first;
  if (soon != nullptr) {
    fetch<Pairs, N, false, Real>(soon + at, pairs);
    if (soon_out != nullptr) fetch<Pairs, N, true, Real>(soon_out + at, pairs);
  }
  Pairs::template turn_all<Streaming>(registers, in + at, out + at, pairs, count);
}

/// Calls f(first, N, count) with numbers that the compiler knows: pieces of N registers of pairs, then single ones, the last
/// of which may be a part.
template <class Pairs, class Real, class F>
POSENC_ALWAYS_INLINE void for_each_piece(index_t pairs, F&& f) {
  constexpr index_t together = Pairs::together * simd::vec<Real>::lanes;
  index_t i = 0;
  for (; i + together <= pairs; i += together)
    f(i, std::integral_constant<int, Pairs::together>{}, full_register<Real>{});
  for_each_register<Real>(pairs - i, [&](index_t first, auto count) POSENC_INLINE_LAMBDA {
    f(i + first, std::integral_constant<int, 1>{}, count);
  });
}

template <class Pairs, int N, class Real, class Count>
POSENC_ALWAYS_INLINE void load_all(Pairs (&registers)[N], const Real* row, index_t pairs, index_t first,
                                   Count count) noexcept {
  simd::unroll<N>([&](auto k) POSENC_INLINE_LAMBDA {
    const Real* const from = row + first + k * simd::vec<Real>::lanes;
    registers[k].load(from, from + pairs, count);
  });
}

/// Turns the first 2 * pairs elements of every head. `row` has `pairs` cosines and then as many sines, the attention factor
/// in them. Where the registers do not hold all of a token's cosines and sines, memory likes whole heads, one after another,
/// better than pieces of all heads again and again. `next`: where the next token's heads begin; null: memory is ready.
/// `next_out`: the same of the output; null: memory need not be asked for what will be written.
///
/// All arguments are single words: a structure would be copied with wider loads than it was just stored with, and those wait
/// until all stores before them are done, at memory's speed, twice a token.
template <class Pairs, bool Streaming, class Real, class In, class Out>
POSENC_NOINLINE void turn_heads(const Real* row, index_t pairs, index_t heads, const In* in, index_t in_stride,
                                Out* out, index_t out_stride, const In* next, Out* next_out) noexcept {
  // The hardware's own guesses end with each page of memory and with each run of heads. Two KiB ahead are best.
  const auto bytes = static_cast<std::uint64_t>(2 * pairs * index_t{sizeof(In)});
  const index_t ahead =  // a division would show
      (std::min)(heads, bytes <= 1024 ? index_t{2048} >> std::bit_width(bytes - 1) : index_t{1});
  const auto for_each_head = [&](auto&& turn) POSENC_INLINE_LAMBDA {
    const In* x = in;
    Out* y = out;
    const In* later = next;
    Out* later_out = next_out;
    for (index_t head = 0; head < heads; ++head, x += in_stride, y += out_stride) {
      const bool here = head + ahead < heads;
      turn(x, y, next != nullptr && here ? x + ahead * in_stride : later,
           next_out != nullptr && here ? y + ahead * out_stride : later_out);
      if (next == nullptr || here) continue;
      later += in_stride;
      if (next_out != nullptr) later_out += out_stride;
    }
  };
  if (Pairs::loads_are_free && pairs > Pairs::together * simd::vec<Real>::lanes) {
    for_each_head([&](const In* x, Out* y, const In* soon, Out* soon_out) POSENC_INLINE_LAMBDA {
      for_each_piece<Pairs, Real>(pairs, [&](index_t first, auto n, auto count) POSENC_INLINE_LAMBDA {
        Pairs registers[n];
        load_all(registers, row, pairs, first, count);
        turn_piece<Streaming, Real>(registers, pairs, first, x, y, soon, soon_out, count);
      });
    });
  } else {
    for_each_piece<Pairs, Real>(pairs, [&](index_t first, auto n, auto count) POSENC_INLINE_LAMBDA {
      Pairs registers[n];
      load_all(registers, row, pairs, first, count);
      for_each_head([&](const In* x, Out* y, const In* soon, Out* soon_out) POSENC_INLINE_LAMBDA {
        turn_piece<Streaming, Real>(registers, pairs, first, x, y, soon, soon_out, count);
      });
    });
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
