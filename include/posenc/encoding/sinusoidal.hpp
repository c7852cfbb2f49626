// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_SINUSOIDAL_HPP
#define POSENC_ENCODING_SINUSOIDAL_HPP

#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "../core/error.hpp"
#include "../core/finite.hpp"
#include "../core/number_list.hpp"
#include "../ladder/arithmetic.hpp"
#include "concepts.hpp"
#include "position_checks.hpp"

namespace posenc::inline POSENC_ABI {

/// Where the sine and the cosine of a frequency stand.
enum class sinusoidal_layout {
  interleaved,  ///< side by side: sin 0, cos 0, sin 1, cos 1, ... (Vaswani et al., XLM)
  halves        ///< all sines, then all cosines (tensor2tensor, fairseq, Marian, Whisper)
};

/// How fast the frequencies w_k fall, for a width d.
enum class sinusoidal_divisor {
  half_width,           ///< w_k = base^(-2k / d): Vaswani et al., XLM, Marian, x-transformers
  half_width_minus_one  ///< w_k = base^(-k / (floor(d/2) - 1)), so the last is 1/base: tensor2tensor, fairseq, Whisper
};

/// What the last column of an odd width holds.
enum class sinusoidal_odd_width {
  extra_column,  ///< one more sine than cosines (the other way round with cos_first): XLM, Marian
  zero_column    ///< zero, the others as for the width below: tensor2tensor, fairseq
};

/// How the variants of sinusoidal positions differ. The defaults are the original's.
struct sinusoidal_options {
  sinusoidal_layout layout = sinusoidal_layout::interleaved;
  sinusoidal_divisor divisor = sinusoidal_divisor::half_width;
  sinusoidal_odd_width odd_width = sinusoidal_odd_width::extra_column;
  bool cos_first = false;                   ///< cosine where the layout says sine and the other way round (MusicGen)
  double base = 10000;                      ///< finite, > 0
  double scale = 1;                         ///< multiplies everything, finite; width^-0.5 in x-transformers
  std::optional<index_t> padding_idx = {};  ///< the position whose vector is zero (fairseq, M2M-100)
  index_t axis = 0;                         ///< the position axis that is read
};

/// Sinusoidal positions (Vaswani et al. 2017, "Attention Is All You Need", section 3.5), added to the inputs:
///
///   p[2k] = sin(position * w_k),  p[2k + 1] = cos(position * w_k),  w_k = base^(-2k / width)
///
/// and the variants that options tell. A pair (sin, cos) at position + s is a fixed rotation by s * w_k of that at
/// position. Positions may be fractional and negative. Frequencies are correctly rounded doubles where long double is
/// wider than double; sine and cosine are those of the exact product position * w_k, within 3e-16 up to positions of 2^20
/// and within 3e-14 up to 2^31. The sum with the embedding is formed in double and rounded once.
class sinusoidal {
 public:
  using acts_on = places<on_inputs>;

  /// For embeddings of `width` elements. Errors: those of `check(width, options)`.
  explicit sinusoidal(index_t width, const sinusoidal_options& options = {}) : options_(options), width_(width) {
    raise_if(check(width, options));
    const index_t half = width / 2;
    const bool extra = width % 2 != 0 && options.odd_width == sinusoidal_odd_width::extra_column;
    first_count_ = half + (extra ? 1 : 0);
    frequencies_.extend(static_cast<std::size_t>(first_count_));
    const bool minus_one = options.divisor == sinusoidal_divisor::half_width_minus_one;
    for (index_t k = 0; k < first_count_; ++k) {
      const detail::wide exponent =
          minus_one ? detail::quotient(static_cast<detail::wide>(k), static_cast<detail::wide>(half - 1))
                    : detail::quotient(static_cast<detail::wide>(2 * k), static_cast<detail::wide>(width));
      frequencies_[static_cast<std::size_t>(k)] =
          detail::rounded(detail::power(detail::widened(options.base), -exponent));
    }
  }

  /// The error that the constructor would raise, as a value: invalid_shape (a width below 1, or below 4 with
  /// half_width_minus_one, whose formula then divides by zero), invalid_value (base, scale, axis).
  static maybe_error check(index_t width, const sinusoidal_options& options = {}) noexcept {
    if (width < 1) return make_error(errc::invalid_shape, "width", "is %td; allowed: 1 and more", width);
    if (options.divisor == sinusoidal_divisor::half_width_minus_one && width < 4)
      return make_error(errc::invalid_shape, "width",
                        "is %td; allowed with the divisor half_width_minus_one: 4 and more, since it divides by "
                        "floor(width / 2) - 1",
                        width);
    if (!detail::is_finite(options.base) || options.base < 1e-100 || options.base > 1e100)
      return make_error(errc::invalid_value, "base", "is %g; allowed: a finite number > 0 (1e-100 to 1e100)",
                        options.base);
    if (!detail::is_finite(options.scale))
      return make_error(errc::invalid_value, "scale", "is %g; allowed: a finite number", options.scale);
    if (options.axis < 0 || options.axis >= max_position_axes)
      return make_error(errc::invalid_value, "axis", "is %td; allowed: 0 to %td", options.axis, max_position_axes - 1);
    return {};
  }

  index_t width() const noexcept { return width_; }
  const sinusoidal_options& options() const noexcept { return options_; }
  /// w_0, w_1, ... in radians a position; of an odd width the last one may have no second function.
  std::span<const double> frequencies() const noexcept { return frequencies_.view(); }

  /// Adds the position's vector to x, which has `width()` elements.
  template <class Real>
  void add_position(position_span position, std::span<Real> x) const {
    each(position[static_cast<std::size_t>(options_.axis)], [&](index_t column, double value) {
      Real& sum = x[static_cast<std::size_t>(column)];
      sum = static_cast<Real>(static_cast<double>(sum) + value);
    });
  }

  /// Writes the position's vector.
  template <class Real>
  void write_position(double position, std::span<Real> out) const {
    out[static_cast<std::size_t>(width_ - 1)] = Real(0);
    each(position,
         [&](index_t column, double value) { out[static_cast<std::size_t>(column)] = static_cast<Real>(value); });
  }

  maybe_error check(const encoding_use& use) const noexcept {
    if (use.dim != width_)
      return make_error(errc::invalid_shape, "x", "has rows of %td elements; the sinusoidal encoding was made for %td",
                        use.dim, width_);
    return detail::check_axis("sinusoidal", options_.axis, use);
  }

 private:
  /// f(column, value) for every column but a zero one.
  template <class F>
  void each(double position, F&& f) const {
    const bool interleaved = options_.layout == sinusoidal_layout::interleaved;
    const index_t second_count = width_ / 2;
    if (options_.padding_idx && position == static_cast<double>(*options_.padding_idx)) {
      for (index_t column = 0; column < width_; ++column) f(column, 0.0);
      return;
    }
    for (index_t k = 0; k < first_count_; ++k) {
      const double w = frequencies_[static_cast<std::size_t>(k)];
      // The product is angle + rest exactly; sine and cosine take the rest, at most half an ulp of the angle, linearly.
      const double angle = detail::settled(position * w);
      const double rest = std::fma(position, w, -angle);
      const double s = std::sin(angle), c = std::cos(angle);
      const double sine = options_.scale * (s + c * rest), cosine = options_.scale * (c - s * rest);
      f(interleaved ? 2 * k : k, options_.cos_first ? cosine : sine);
      if (k < second_count) f(interleaved ? 2 * k + 1 : first_count_ + k, options_.cos_first ? sine : cosine);
    }
  }

  sinusoidal_options options_;
  index_t width_;
  index_t first_count_;  // columns with the function that comes first
  detail::number_list<double> frequencies_;
};

/// Writes the vectors of the given positions as rows: out is [positions.size()][encoding.width()], contiguous, float or
/// double.
template <class Real>
void sinusoidal_table(const sinusoidal& encoding, std::span<const double> positions, Real* out) {
  for (const double position : positions) {
    encoding.write_position(position, std::span<Real>(out, static_cast<std::size_t>(encoding.width())));
    out += encoding.width();
  }
}

/// The rows of positions 0, 1, ..., rows - 1.
template <class Real = float>
std::vector<Real> sinusoidal_table(const sinusoidal& encoding, index_t rows) {
  constexpr index_t most = index_t{1} << 48;
  if (rows < 0 || rows > most / encoding.width())
    raise(make_error(errc::invalid_shape, "rows", "is %td; allowed: 0 to %td, which is 2^48 numbers of width %td", rows,
                     most / encoding.width(), encoding.width()));
  std::vector<Real> table(static_cast<std::size_t>(rows * encoding.width()));
  for (index_t row = 0; row < rows; ++row) {
    const auto position = static_cast<double>(row);
    sinusoidal_table(encoding, std::span<const double>(&position, std::size_t{1}),
                     table.data() + row * encoding.width());
  }
  return table;
}

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_SINUSOIDAL_HPP
