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
#include "rope_kernel.hpp"
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
template <bool Streaming, class Real, class T, class Count, class Form>
POSENC_ALWAYS_INLINE void put_pairs(simd::vec<Real> v, index_t first, Count count, index_t pairs, Form form,
                                    T* row) noexcept {
  if (form == cos_sin_form::twice_neighbouring) return store_twice<Streaming>(row + 2 * first, v, count);
  store_lanes<Streaming>(row + first, v, count);
  if (form == cos_sin_form::twice_in_halves) store_lanes<Streaming>(row + pairs + first, v, count);
}

/// Rows of positions that count up, by the addition of angles: an exact row every `block` positions and exact rows for
/// 0 .. block - 1, as in angle_table.
class row_series {
 public:
  static constexpr index_t block = 64;

  row_series(std::span<const double> inv_freq, double first, double factor)
      : inv_freq_(inv_freq), first_(first), factor_(factor), low_(inv_freq, 0, 1, block) {}

  /// Writes rows [begin, end), end - begin <= block and begin a multiple of it, in a form.
  template <bool Streaming, cos_sin_form Form, class T>
  void write(index_t begin, index_t end, T* cos, T* sin, index_t stride) const {
    using real = compute_type<T>;
    constexpr std::integral_constant<cos_sin_form, Form> form{};
    const angle_rows high(inv_freq_, first_ + static_cast<double>(begin), 0, 1);
    const simd::vec<double> factor(factor_);
    const auto pairs = static_cast<index_t>(inv_freq_.size());
    const double* const c = high.cos(0);
    const double* const s = high.sin(0);
    for (index_t row = begin; row < end; ++row) {
      const double* const low_c = low_.cos(row - begin);
      const double* const low_s = low_.sin(row - begin);
      T* const cos_row = cos + row * stride;
      T* const sin_row = sin + row * stride;
      const auto at = [&](index_t i) POSENC_INLINE_LAMBDA {
        const auto [sines, cosines] = add_angles(c + i, s + i, low_c + i, low_s + i);
        return simd::sine_cosine<simd::vec<double>>{sines * factor, cosines * factor};
      };
      for_each_register<real>(pairs, [&](index_t i, auto count) POSENC_INLINE_LAMBDA {
        const auto low = at(i);
        if constexpr (std::is_same_v<real, float>) {
          const auto upper = at(i + simd::vec<double>::lanes);
          put_pairs<Streaming>(simd::join(low.cos, upper.cos), i, count, pairs, form, cos_row);
          put_pairs<Streaming>(simd::join(low.sin, upper.sin), i, count, pairs, form, sin_row);
        } else {
          put_pairs<Streaming>(low.cos, i, count, pairs, form, cos_row);
          put_pairs<Streaming>(low.sin, i, count, pairs, form, sin_row);
        }
      });
    }
    if (Streaming) simd::streaming_fence();
  }

  /// `write` for a form: a choice within the loop would take longer than what is chosen.
  template <bool Streaming, class T>
  static auto writer(cos_sin_form form) noexcept {
    return form == cos_sin_form::one_a_pair        ? &row_series::write<Streaming, cos_sin_form::one_a_pair, T>
           : form == cos_sin_form::twice_in_halves ? &row_series::write<Streaming, cos_sin_form::twice_in_halves, T>
                                                   : &row_series::write<Streaming, cos_sin_form::twice_neighbouring, T>;
  }

 private:
  std::span<const double> inv_freq_;
  double first_, factor_;
  angle_rows low_;
};

}  // namespace detail

/// The error that `write_cos_sin` with these arguments would raise, as a value.
template <class T>
maybe_error check_cos_sin(const rope& encoding, const token_view& tokens, const T* cos, const T* sin,
                          const cos_sin_options& options = {}) noexcept {
  if (maybe_error e = detail::check_unordered_tokens(tokens, tokens.batch(), tokens.count(), "tokens")) return e;
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
/// positions that count up (`token_range`, 128 and more) a row costs little more than its stores: exact rows every 64
/// positions are added to the exact rows of 0 to 63. Every form holds the same numbers. Errors as for the rotation:
/// |error| <= max(1 ulp of float, 2^-36), then rounded to T.
/// Errors: those of `check_cos_sin`.
template <scalar T, class Executor = serial_executor>
void write_cos_sin(const rope& encoding, const token_view& tokens, T* cos, T* sin, const cos_sin_options& options = {},
                   Executor&& executor = {}) {
  raise_if(check_cos_sin(encoding, tokens, cos, sin, options));
  using real = compute_type<T>;
  const index_t pairs = encoding.ladder().size(), width = detail::cos_sin_width(options.form, pairs);
  const index_t stride = options.row_stride == 0 ? width : options.row_stride, count = tokens.count();
  constexpr index_t block = detail::row_series::block;
  const bool series = tokens.counts_up() && tokens.batch() == 1 && count >= 2 * block &&
                      encoding.options().arithmetic == angle_arithmetic::exact &&
                      encoding.options().frequency_axis.empty();
  constexpr index_t rows_a_task = 16 * block;
  const index_t rows = tokens.batch() * count, tasks = (rows + rows_a_task - 1) / rows_a_task;
  if (series) {
    const detail::row_series all(encoding.ladder().inv_freq(), tokens.position(0, 0, 0),
                                 encoding.ladder().attention_factor());
    const bool stream = options.store == store_mode::streaming && detail::can_stream<real>(cos, stride, pairs) &&
                        detail::can_stream<real>(sin, stride, pairs);
    using series_of = detail::row_series;
    const auto write = stream ? series_of::writer<true, T>(options.form) : series_of::writer<false, T>(options.form);
    executor.parallel_for(tasks, [&](index_t task) {
      const index_t last = (std::min)(rows, (task + 1) * rows_a_task);
      for (index_t begin = task * rows_a_task; begin < last; begin += block)
        (all.*write)(begin, (std::min)(last, begin + block), cos, sin, stride);
    });
    return;
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
        detail::put_pairs<false>(c, first, n, pairs, options.form, cos + r * stride);
        detail::put_pairs<false>(s, first, n, pairs, options.form, sin + r * stride);
      });
    }
  });
}

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_COS_SIN_HPP
