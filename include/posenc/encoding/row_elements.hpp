// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_ROW_ELEMENTS_HPP
#define POSENC_ENCODING_ROW_ELEMENTS_HPP

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "../core/platform.hpp"
#include "../simd/convert.hpp"
#include "../simd/simd.hpp"

/// Registers of compute numbers from and to rows of any element type, also of fewer elements than lanes.
namespace posenc::inline POSENC_ABI::detail {

/// As many elements as a register has lanes: known to the compiler, unlike the count of the last piece of a row.
template <class Real>
using full_register = std::integral_constant<index_t, simd::vec<Real>::lanes>;

/// `count` elements; the lanes after them are 0.
template <class Real, class T, class Count>
POSENC_ALWAYS_INLINE simd::vec<Real> load_lanes(const T* from, Count count) noexcept {
  if constexpr (std::is_same_v<Count, full_register<Real>>) {
    return simd::load_as<Real>(from);
  } else {
    T part[simd::vec<Real>::lanes] = {};
    std::memcpy(static_cast<void*>(part), from, static_cast<std::size_t>(count) * sizeof(T));
    return simd::load_as<Real>(static_cast<const T*>(part));
  }
}

/// The first `count` lanes, each rounded once; full registers past the caches where `Streaming`.
template <bool Streaming = false, class Real, class T, class Count>
POSENC_ALWAYS_INLINE void store_lanes(T* to, simd::vec<Real> v, Count count) noexcept {
  if constexpr (std::is_same_v<Count, full_register<Real>>) {
    if constexpr (Streaming) {
      simd::store_streaming_as(to, v);
    } else {
      simd::store_as(to, v);
    }
  } else {
    T part[simd::vec<Real>::lanes];
    simd::store_as(static_cast<T*>(part), v);
    std::memcpy(static_cast<void*>(to), part, static_cast<std::size_t>(count) * sizeof(T));
  }
}

/// Several registers that lie one after another.
template <bool Streaming = false, class Real, int N, class T, class Count>
POSENC_ALWAYS_INLINE void store_lanes(T* to, const simd::vec<Real> (&v)[N], Count count) noexcept {
  constexpr index_t lanes = simd::vec<Real>::lanes;
  if constexpr (N == 2 && !Streaming && std::is_same_v<Count, full_register<Real>>) {
    simd::store_as(to, v[0], v[1]);
  } else {
    simd::unroll<N>([&](auto i) POSENC_INLINE_LAMBDA { store_lanes<Streaming>(to + i * lanes, v[i], count); });
  }
}

/// `count` pairs of neighbours that are halves of a word; the lanes after them are 0.
template <class Real, class T, class Count>
POSENC_ALWAYS_INLINE void load_lane_pairs(const T* from, simd::vec<Real>& x, simd::vec<Real>& y, Count count) noexcept {
  if constexpr (std::is_same_v<Count, full_register<Real>>) {
    simd::load_pairs(from, x, y);
  } else {
    T part[2 * simd::vec<Real>::lanes] = {};
    std::memcpy(static_cast<void*>(part), from, 2 * static_cast<std::size_t>(count) * sizeof(T));
    simd::load_pairs(static_cast<const T*>(part), x, y);
  }
}
template <class Real, class T, class Count>
POSENC_ALWAYS_INLINE void store_lane_pairs(T* to, simd::vec<Real> x, simd::vec<Real> y, Count count) noexcept {
  if constexpr (std::is_same_v<Count, full_register<Real>>) {
    simd::store_pairs(to, x, y);
  } else {
    T part[2 * simd::vec<Real>::lanes];
    simd::store_pairs(static_cast<T*>(part), x, y);
    std::memcpy(static_cast<void*>(to), part, 2 * static_cast<std::size_t>(count) * sizeof(T));
  }
}

/// a0, a2, ..., b0, b2, ... Zips of 2 * lanes numbers sort them by one more bit of their places each time; after as many as
/// a lane's number has bits, those with even places come first. Some compilers make a single shuffle of it.
template <class Real>
POSENC_ALWAYS_INLINE simd::vec<Real> every_other(simd::vec<Real> a, simd::vec<Real> b) noexcept {
  constexpr int rounds = std::bit_width(static_cast<unsigned>(simd::vec<Real>::lanes)) - 1;
  simd::unroll<rounds - 1>([&](auto) POSENC_INLINE_LAMBDA {
    const simd::vec<Real> low = simd::zip<0>(a, b);
    b = simd::zip<1>(a, b);
    a = low;
  });
  return simd::zip<0>(a, b);
}

/// The first of each of `count` pairs of neighbours; the lanes after them are 0.
template <class Real, class T, class Count>
POSENC_ALWAYS_INLINE simd::vec<Real> load_every_other(const T* from, Count count) noexcept {
  constexpr full_register<Real> lanes{};
  if constexpr (std::is_same_v<Count, full_register<Real>>) {
    return every_other(load_lanes<Real>(from, lanes), load_lanes<Real>(from + lanes, lanes));
  } else {
    const simd::vec<Real> low = load_lanes<Real>(from, (std::min)(2 * count, index_t{lanes}));
    return every_other(
        low, 2 * count > lanes ? load_lanes<Real>(from + lanes, 2 * count - lanes) : simd::vec<Real>(Real{0}));
  }
}

/// The first `count` lanes, each twice in turn: 2 * count elements.
template <bool Streaming = false, class Real, class T, class Count>
POSENC_ALWAYS_INLINE void store_twice(T* to, simd::vec<Real> v, Count count) noexcept {
  constexpr full_register<Real> lanes{};
  const simd::vec<Real> both[] = {simd::twice<0>(v), simd::twice<1>(v)};
  if constexpr (std::is_same_v<Count, full_register<Real>>) {
    store_lanes<Streaming>(to, both, lanes);
  } else {
    store_lanes(to, both[0], (std::min)(2 * count, index_t{lanes}));
    if (2 * count > lanes) store_lanes(to + lanes, both[1], 2 * count - lanes);
  }
}

/// Calls f(first, count) for the pieces of a row of n elements: full registers, then what is left.
template <class Real, class F>
POSENC_ALWAYS_INLINE void for_each_register(index_t n, F&& f) {
  constexpr full_register<Real> lanes{};
  index_t i = 0;
  for (; i + lanes <= n; i += lanes) f(i, lanes);
  if (i < n) f(i, n - i);
}

/// Copies n elements of a row into one that does not meet it: bits where the types are equal, else rounded once.
template <class Real, class In, class Out>
void copy_elements(const In* in, index_t n, Out* out) noexcept {
  if constexpr (std::is_same_v<In, Out>) {
    if (n > 0) std::memcpy(static_cast<void*>(out), in, static_cast<std::size_t>(n) * sizeof(In));
  } else {
    for_each_register<Real>(n, [&](index_t first, auto count) POSENC_INLINE_LAMBDA {
      store_lanes(out + first, load_lanes<Real>(in + first, count), count);
    });
  }
}

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ENCODING_ROW_ELEMENTS_HPP
