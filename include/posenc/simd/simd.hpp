// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_SIMD_SIMD_HPP
#define POSENC_SIMD_SIMD_HPP

#include <cstdint>
#include <type_traits>
#include <utility>

#include "../core/platform.hpp"
#include "backend/arm.hpp"
#include "backend/vectors.hpp"
#include "backend/x86.hpp"

/// The facade that kernels and policies use: a register of float or double with the operations below, and nothing else.
/// Its width is that of the ISA that the including file is compiled for; `isa()` names it.
namespace posenc::inline POSENC_ABI::simd {

/// The ISA of this translation unit: "avx512amx", "avx512bf16", "avx512", "avx2", "avx", "sse4", "sse2", "neon" or
/// "generic".
constexpr const char* isa() noexcept { return POSENC_DETAIL_TEXT(POSENC_ISA); }

/// Calls f(integral_constant 0), ..., f(integral_constant N - 1), unrolled.
template <int N, class F>
POSENC_ALWAYS_INLINE void unroll(F&& f) {
  [&]<int... Index>(std::integer_sequence<int, Index...>)
      POSENC_INLINE_LAMBDA { (f(std::integral_constant<int, Index>{}), ...); }(std::make_integer_sequence<int, N>{});
}

template <class T>
using integer_of = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;

/// What a comparison of `vec<T>` gives: all bits of a lane set or none.
template <class T>
struct mask {
  backend::vector<integer_of<T>> r;

  friend POSENC_ALWAYS_INLINE mask operator&(mask a, mask b) noexcept { return {a.r & b.r}; }
  friend POSENC_ALWAYS_INLINE mask operator|(mask a, mask b) noexcept { return {a.r | b.r}; }
  friend POSENC_ALWAYS_INLINE mask operator~(mask a) noexcept { return {~a.r}; }
};

/// `lanes` numbers in one register.
template <class T>
struct vec {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>);
  static constexpr int lanes = backend::register_bytes / static_cast<int>(sizeof(T));
  using value_type = T;
  using integer = backend::vector<integer_of<T>>;

  backend::vector<T> r;

  vec() = default;
  POSENC_ALWAYS_INLINE vec(backend::vector<T> v) noexcept : r(v) {}  // NOLINT(google-explicit-constructor)
  POSENC_ALWAYS_INLINE vec(T x) noexcept                             // NOLINT(google-explicit-constructor)
      : r([x]<int... Index>(std::integer_sequence<int, Index...>) POSENC_INLINE_LAMBDA {
          return backend::vector<T>{(static_cast<void>(Index), x)...};
        }(std::make_integer_sequence<int, lanes>{})) {}
  /// Any other number, so that policies mix their doubles and integers with registers.
  template <class U>
    requires(std::is_arithmetic_v<U> && !std::is_same_v<U, T>)
  POSENC_ALWAYS_INLINE vec(U x) noexcept : vec(static_cast<T>(x)) {}  // NOLINT(google-explicit-constructor)

  friend POSENC_ALWAYS_INLINE vec operator+(vec a, vec b) noexcept { return backend::rounded(a.r + b.r); }
  friend POSENC_ALWAYS_INLINE vec operator-(vec a, vec b) noexcept { return backend::rounded(a.r - b.r); }
  friend POSENC_ALWAYS_INLINE vec operator*(vec a, vec b) noexcept { return backend::rounded(a.r * b.r); }
  friend POSENC_ALWAYS_INLINE vec operator/(vec a, vec b) noexcept {
#if defined(POSENC_DETAIL_HAS_DIVIDE)
    return backend::divide(a.r, b.r);
#else
    return a.r / b.r;
#endif
  }
  friend POSENC_ALWAYS_INLINE vec operator-(vec a) noexcept { return -a.r; }
  friend POSENC_ALWAYS_INLINE mask<T> operator<(vec a, vec b) noexcept { return {a.r < b.r}; }
  friend POSENC_ALWAYS_INLINE mask<T> operator<=(vec a, vec b) noexcept { return {a.r <= b.r}; }
  friend POSENC_ALWAYS_INLINE mask<T> operator>(vec a, vec b) noexcept { return {a.r > b.r}; }
  friend POSENC_ALWAYS_INLINE mask<T> operator>=(vec a, vec b) noexcept { return {a.r >= b.r}; }
  friend POSENC_ALWAYS_INLINE mask<T> operator==(vec a, vec b) noexcept { return {a.r == b.r}; }
};

template <class T>
POSENC_ALWAYS_INLINE vec<T> load(const T* from) noexcept {
  return backend::load<backend::vector<T>>(from);
}
template <class T>
POSENC_ALWAYS_INLINE void store(T* to, vec<T> v) noexcept {
  backend::store(to, v.r);
}

/// The same to memory that is aligned to the register and is not read again soon: past the caches where the ISA can, which
/// saves reading what is overwritten. Other threads see it after `streaming_fence()` only.
template <class T>
POSENC_ALWAYS_INLINE void store_streaming(T* to, vec<T> v) noexcept {
#if defined(POSENC_DETAIL_HAS_STREAMING)
  backend::store_streaming(to, v.r);
#else
  backend::store(to, v.r);
#endif
}
inline void streaming_fence() noexcept {
#if defined(POSENC_DETAIL_HAS_STREAMING)
  backend::streaming_fence();
#endif
}

/// 0, 1, 2, ...
template <class T>
POSENC_ALWAYS_INLINE vec<T> iota() noexcept {
  return []<int... Index>(std::integer_sequence<int, Index...>) POSENC_INLINE_LAMBDA {
    return vec<T>(backend::vector<T>{static_cast<T>(Index)...});
  }(std::make_integer_sequence<int, vec<T>::lanes>{});
}

/// a * b + c: rounded once where the ISA has the instruction, else twice.
template <class T>
POSENC_ALWAYS_INLINE vec<T> fma(vec<T> a, vec<T> b, vec<T> c) noexcept {
#if defined(POSENC_DETAIL_HAS_FMA)
  return backend::fma(a.r, b.r, c.r);
#else
  return backend::rounded(backend::rounded(a.r * b.r) + c.r);
#endif
}

/// Whether `fma` rounds once.
inline constexpr bool has_fma =
#if defined(POSENC_DETAIL_HAS_FMA)
    true;
#else
    false;
#endif

/// if a else b, lane by lane. Only bits move: what the other side holds does not matter.
template <class T>
POSENC_ALWAYS_INLINE vec<T> select(mask<T> m, vec<T> a, vec<T> b) noexcept {
  return m.r ? a.r : b.r;
}

/// The larger one. If either is NaN, b.
template <class T>
POSENC_ALWAYS_INLINE vec<T>(max)(vec<T> a, vec<T> b) noexcept {
#if defined(POSENC_DETAIL_HAS_MINMAX)
  return (backend::max)(a.r, b.r);
#else
  return backend::opaque(a.r > b.r) ? a.r : b.r;
#endif
}
/// The smaller one. If either is NaN, b.
template <class T>
POSENC_ALWAYS_INLINE vec<T>(min)(vec<T> a, vec<T> b) noexcept {
#if defined(POSENC_DETAIL_HAS_MINMAX)
  return (backend::min)(a.r, b.r);
#else
  return backend::opaque(a.r < b.r) ? a.r : b.r;
#endif
}

/// v itself, as something that the compiler knows nothing about. -ffast-math reassociates: it would cancel the rounding
/// in (x + big) - big and the splits of range reductions. Nothing moves across this one; it costs no instruction.
template <class T>
POSENC_ALWAYS_INLINE vec<T> opaque(vec<T> v) noexcept {
  return backend::opaque(v.r);
}

/// The bits of the lanes as integers, and back.
template <class T>
POSENC_ALWAYS_INLINE typename vec<T>::integer as_integer(vec<T> a) noexcept {
  return backend::bit_cast_vector<typename vec<T>::integer>(a.r);
}
template <class T>
POSENC_ALWAYS_INLINE vec<T> from_bits(backend::vector<integer_of<T>> bits) noexcept {
  return vec<T>(backend::bit_cast_vector<backend::vector<T>>(bits));
}

/// Lanes 1, 0, 3, 2, ...: neighbours change places.
template <class T>
POSENC_ALWAYS_INLINE vec<T> swap_pairs(vec<T> v) noexcept {
  return [v]<int... Index>(std::integer_sequence<int, Index...>) POSENC_INLINE_LAMBDA {
    return vec<T>(backend::vector<T>(__builtin_shufflevector(v.r, v.r, (Index ^ 1)...)));
  }(std::make_integer_sequence<int, vec<T>::lanes>{});
}

/// The lower (Half = 0) or upper (Half = 1) half of v, each number twice: lanes 0, 0, 1, 1, ... of that half.
template <int Half, class T>
POSENC_ALWAYS_INLINE vec<T> twice(vec<T> v) noexcept {
  return [v]<int... Index>(std::integer_sequence<int, Index...>) POSENC_INLINE_LAMBDA {
    return vec<T>(backend::vector<T>(__builtin_shufflevector(v.r, v.r, (Half * vec<T>::lanes / 2 + Index / 2)...)));
  }(std::make_integer_sequence<int, vec<T>::lanes>{});
}

/// The lower (Half = 0) or upper (Half = 1) halves of a and b in turns: a0, b0, a1, b1, ... of that half.
template <int Half, class T>
POSENC_ALWAYS_INLINE vec<T> zip(vec<T> a, vec<T> b) noexcept {
  return [a, b]<int... Index>(std::integer_sequence<int, Index...>) POSENC_INLINE_LAMBDA {
    constexpr int n = vec<T>::lanes;
    return vec<T>(backend::vector<T>(__builtin_shufflevector(a.r, b.r, (Half * n / 2 + Index / 2 + Index % 2 * n)...)));
  }(std::make_integer_sequence<int, vec<T>::lanes>{});
}

/// Transposes a square of `lanes` registers in place: log2(lanes) rounds of zips.
template <class T>
POSENC_ALWAYS_INLINE void transpose(vec<T> (&rows)[vec<T>::lanes]) noexcept {
  constexpr int n = vec<T>::lanes;
  for (int round = 1; round < n; round *= 2) {
    vec<T> next[n];
    unroll<n / 2>([&](auto i) POSENC_INLINE_LAMBDA {
      next[2 * i] = zip<0>(rows[i], rows[i + n / 2]);
      next[2 * i + 1] = zip<1>(rows[i], rows[i + n / 2]);
    });
    unroll<n>([&](auto i) POSENC_INLINE_LAMBDA { rows[i] = next[i]; });
  }
}

/// v with the signs of lanes 0, 2, 4, ... changed.
template <class T>
POSENC_ALWAYS_INLINE vec<T> negate_even(vec<T> v) noexcept {
  using integer = integer_of<T>;
  const auto signs = []<int... Index>(std::integer_sequence<int, Index...>) POSENC_INLINE_LAMBDA {
    constexpr auto sign_bit = static_cast<integer>(std::make_unsigned_t<integer>{1} << (sizeof(T) * 8 - 1));
    return backend::vector<integer>{(Index % 2 == 0 ? sign_bit : integer{0})...};
  }(std::make_integer_sequence<int, vec<T>::lanes>{});
  return from_bits<T>(as_integer(v) ^ signs);
}

template <class T>
POSENC_ALWAYS_INLINE vec<T> abs(vec<T> a) noexcept {
  constexpr auto keep = static_cast<integer_of<T>>(~(std::make_unsigned_t<integer_of<T>>{1} << (sizeof(T) * 8 - 1)));
  return from_bits<T>(as_integer(a) & keep);
}

/// Integers to the floating-point numbers of the same width, exact below 2^24 (float) or 2^51 (double).
template <class T>
POSENC_ALWAYS_INLINE vec<T> to_real(backend::vector<integer_of<T>> v) noexcept {
  return vec<T>(__builtin_convertvector(v, backend::vector<T>));
}

/// Lane j is set if bit j of `bits` is.
template <class T>
POSENC_ALWAYS_INLINE mask<T> mask_from_bits(std::uint64_t bits) noexcept {
  using integer = integer_of<T>;
  using lanes = backend::vector<integer>;
  const lanes one_hot = []<int... Index>(std::integer_sequence<int, Index...>) POSENC_INLINE_LAMBDA {
    return lanes{static_cast<integer>(integer{1} << Index)...};
  }(std::make_integer_sequence<int, vec<T>::lanes>{});
  const lanes all = lanes{} + static_cast<integer>(bits);
  return {(all & one_hot) != lanes{}};
}

/// The sum of the lanes, in the order of a halving tree.
template <class T>
POSENC_ALWAYS_INLINE T reduce_add(vec<T> a) noexcept {
  return backend::reduce<T, backend::register_bytes>(
      a.r, [](auto x, auto y) POSENC_INLINE_LAMBDA { return backend::rounded(x + y); });
}

/// The largest lane. Unspecified if there is a NaN.
template <class T>
POSENC_ALWAYS_INLINE T reduce_max(vec<T> a) noexcept {
  return backend::reduce<T, backend::register_bytes>(a.r,
                                                     [](auto x, auto y) POSENC_INLINE_LAMBDA { return x > y ? x : y; });
}

}  // namespace posenc::inline POSENC_ABI::simd

#endif  // POSENC_SIMD_SIMD_HPP
