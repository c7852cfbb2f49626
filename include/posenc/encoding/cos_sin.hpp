// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_COS_SIN_HPP
#define POSENC_ENCODING_COS_SIN_HPP

#include <algorithm>
#include <type_traits>

#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/executor.hpp"
#include "../core/tokens.hpp"
#include "angle_table.hpp"
#include "position_checks.hpp"
#include "rope.hpp"
#include "row_elements.hpp"
#include "store_mode.hpp"

/// Cosines and sines as tables of one row a token, which other kernels take.
namespace posenc::inline POSENC_ABI {

/// What a row of a table holds.
enum class cos_sin_form {
  one_a_pair,         ///< rotary_dim / 2 numbers, as flash-attention takes them
  twice_in_halves,    ///< rotary_dim numbers, all of them and then all again: Hugging Face's cat(freqs, freqs)
  twice_neighbouring  ///< rotary_dim numbers, each twice in turn: repeat_interleave(freqs, 2)
};

struct cos_sin_options {
  cos_sin_form form = cos_sin_form::one_a_pair;
  index_t row_stride = 0;  ///< elements from row to row; 0: the rows' width
  store_mode store = store_mode::cached;
};

namespace detail {

inline index_t cos_sin_width(cos_sin_form form, index_t pairs) noexcept {
  return form == cos_sin_form::one_a_pair ? pairs : 2 * pairs;
}

/// Writes one number a pair as a row: the register's first `count` are those of the pairs from `first` on.
template <class Real, class T, class Count>
POSENC_ALWAYS_INLINE void put_pairs(simd::vec<Real> v, index_t first, Count count, index_t pairs, cos_sin_form form,
                                    T* row) noexcept {
  if (form == cos_sin_form::twice_neighbouring) return store_twice(row + 2 * first, v, count);
  store_lanes(row + first, v, count);
  if (form == cos_sin_form::twice_in_halves) store_lanes(row + pairs + first, v, count);
}

/// Rows of positions that count up, by the addition of angles: an exact row every `block` positions and exact rows for
/// 0 .. block - 1, as in angle_table.
class row_series {
 public:
  static constexpr index_t block = 64;

  row_series(std::span<const double> inv_freq, double first, double factor)
      : inv_freq_(inv_freq), first_(first), factor_(factor), low_(inv_freq, 0, 1, block) {}

  /// Rows [begin, end), end - begin <= block and begin a multiple of it: write(row, i, cosines, sines) for each register.
  template <class F>
  void for_each_register(index_t begin, index_t end, F&& write) const {
    constexpr index_t lanes = simd::vec<double>::lanes;
    const angle_rows high(inv_freq_, first_ + static_cast<double>(begin), 0, 1);
    const simd::vec<double> factor(factor_);
    const index_t width = angle_rows::width_of(static_cast<index_t>(inv_freq_.size()));
    const double* const c = high.cos(0);
    const double* const s = high.sin(0);
    for (index_t row = begin; row < end; ++row) {
      const double* const low_c = low_.cos(row - begin);
      const double* const low_s = low_.sin(row - begin);
      for (index_t i = 0; i < width; i += lanes) {
        const auto [sin, cos] = add_angles(c + i, s + i, low_c + i, low_s + i);
        write(row, i, cos * factor, sin * factor);
      }
    }
  }

 private:
  std::span<const double> inv_freq_;
  double first_, factor_;
  angle_rows low_;
};

/// One register of doubles to elements that are aligned to it, past the caches.
template <class T>
POSENC_ALWAYS_INLINE void stream_converted(T* to, simd::vec<double> v) noexcept {
  using narrow = simd::backend::vector<T, simd::vec<double>::lanes* static_cast<int>(sizeof(T))>;
#if defined(POSENC_DETAIL_HAS_STREAMING)
  simd::backend::store_streaming(to, __builtin_convertvector(v.r, narrow));
#else
  simd::backend::store(to, __builtin_convertvector(v.r, narrow));
#endif
}

template <class T>
void write_series(const row_series& series, index_t begin, index_t end, bool stream, T* cos, T* sin,
                  index_t stride) noexcept {
  if (stream) {
    series.for_each_register(
        begin, end, [&](index_t row, index_t i, simd::vec<double> c, simd::vec<double> s) POSENC_INLINE_LAMBDA {
          stream_converted(cos + row * stride + i, c);
          stream_converted(sin + row * stride + i, s);
        });
    simd::streaming_fence();
  } else {
    series.for_each_register(
        begin, end, [&](index_t row, index_t i, simd::vec<double> c, simd::vec<double> s) POSENC_INLINE_LAMBDA {
          store_converted(cos + row * stride + i, c);
          store_converted(sin + row * stride + i, s);
        });
  }
}

}  // namespace detail

/// The error that `write_cos_sin` with these arguments would raise, as a value.
template <class T>
maybe_error check_cos_sin(const rope& encoding, const token_view& tokens, const T* cos, const T* sin,
                          const cos_sin_options& options = {}) noexcept {
  if (maybe_error e = detail::check_tokens(tokens, tokens.batch(), tokens.count(), "tokens")) return e;
  encoding_use use;
  use.dim = encoding.rotated_dims({}).end;
  use.q_tokens = &tokens;
  if (maybe_error e = encoding.check(use)) return e;
  const index_t width = detail::cos_sin_width(options.form, encoding.ladder().size());
  if (options.row_stride != 0 && options.row_stride < width)
    return make_error(errc::invalid_shape, "options.row_stride", "is %td; allowed: the rows' width %td and more, or 0",
                      options.row_stride, width);
  if (tokens.count() > 0 && (cos == nullptr || sin == nullptr))
    return make_error(errc::invalid_layout, cos == nullptr ? "cos" : "sin", "is null for %td rows", tokens.count());
  if (tokens.count() > 0 && cos == sin)
    return make_error(errc::invalid_layout, "sin", "overlaps cos; allowed: memory of its own");
  return {};
}

/// The cosines and sines of every token, the attention factor in them, as rows in the order of batch and token. With
/// positions that count up (`token_range`) a row costs little more than its stores: exact rows every 64 positions are
/// added to the exact rows of 0 to 63. Errors as for the rotation: |error| <= max(1 ulp of float, 2^-36), then rounded to T.
/// Errors: those of `check_cos_sin`.
template <scalar T, class Executor = serial_executor>
void write_cos_sin(const rope& encoding, const token_view& tokens, T* cos, T* sin, const cos_sin_options& options = {},
                   Executor&& executor = {}) {
  raise_if(check_cos_sin(encoding, tokens, cos, sin, options));
  using real = compute_type<T>;
  const index_t pairs = encoding.ladder().size(), width = detail::cos_sin_width(options.form, pairs);
  const index_t stride = options.row_stride == 0 ? width : options.row_stride, count = tokens.count();
  constexpr index_t lanes = simd::vec<double>::lanes, block = detail::row_series::block;
  const bool series = std::is_same_v<T, real> && tokens.counts_up() && options.form == cos_sin_form::one_a_pair &&
                      encoding.options().arithmetic == angle_arithmetic::exact &&
                      encoding.options().frequency_axis.empty() && pairs % lanes == 0 && count >= 2 * block;
  constexpr index_t rows_a_task = 16 * block;
  const index_t rows = tokens.batch() * count, tasks = (rows + rows_a_task - 1) / rows_a_task;
  if constexpr (std::is_same_v<T, real>) {
    if (series) {
      const detail::row_series all(encoding.ladder().inv_freq(), tokens.position(0, 0, 0),
                                   encoding.ladder().attention_factor());
      constexpr auto aligned_to = static_cast<std::uintptr_t>(lanes) * sizeof(T);
      const auto aligned = [](std::uintptr_t x) { return x % aligned_to == 0; };
      const bool stream = options.store == store_mode::streaming && aligned(reinterpret_cast<std::uintptr_t>(cos)) &&
                          aligned(reinterpret_cast<std::uintptr_t>(sin)) &&
                          aligned(static_cast<std::uintptr_t>(stride) * sizeof(T));
      executor.parallel_for(tasks, [&](index_t task) {
        const index_t last = (std::min)(rows, (task + 1) * rows_a_task);
        for (index_t begin = task * rows_a_task; begin < last; begin += block)
          detail::write_series(all, begin, (std::min)(last, begin + block), stream, cos, sin, stride);
      });
      return;
    }
  }
  executor.parallel_for(tasks, [&](index_t task) {
    detail::number_list<real> memory(static_cast<std::size_t>(2 * pairs));
    real* const row = memory.data();  // prepared as [cosines][sines]
    double position[max_position_axes] = {};
    for (index_t r = task * rows_a_task; r < (std::min)(rows, (task + 1) * rows_a_task); ++r) {
      for (index_t axis = 0; axis < tokens.axes(); ++axis) position[axis] = tokens.position(axis, r / count, r % count);
      encoding.prepare_rotation({}, position_span(position, static_cast<std::size_t>(tokens.axes())), {}, row);
      detail::for_each_register<real>(pairs, [&](index_t first, auto n) POSENC_INLINE_LAMBDA {
        const auto c = detail::load_lanes<real>(row + first, n), s = detail::load_lanes<real>(row + pairs + first, n);
        detail::put_pairs(c, first, n, pairs, options.form, cos + r * stride);
        detail::put_pairs(s, first, n, pairs, options.form, sin + r * stride);
      });
    }
  });
}

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_COS_SIN_HPP
