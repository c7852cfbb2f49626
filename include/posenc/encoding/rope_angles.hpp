// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_ROPE_ANGLES_HPP
#define POSENC_ENCODING_ROPE_ANGLES_HPP

#include <span>
#include <vector>

#include "../core/error.hpp"
#include "../core/platform.hpp"
#include "../core/shared_object.hpp"
#include "../ladder/frequency_ladder.hpp"
#include "../simd/sincos.hpp"
#include "angle_table.hpp"
#include "concepts.hpp"
#include "frequency_axis.hpp"

namespace posenc::inline POSENC_ABI {

/// How the angle position * inv_freq(i) is formed.
enum class angle_arithmetic {
  /// The real product. The default, and what a model means.
  exact,
  /// The common practice: frequencies and positions rounded to float, their product rounded to float, its cosine and sine
  /// rounded to float and multiplied by the attention factor in float. Off by 4e-3 at position 131071, by 0.6 at 1e7: for
  /// agreement with logits that were computed in this way, and for nothing else.
  float32,
  /// ggml's way: theta = position, and theta *= base^(-2 / rotary_dim) from pair to pair, all in float. For ladders whose
  /// frequencies fall by one ratio: plain ones and those that are divided by one factor.
  float32_running
};

/// The positions first, first + 1, ..., first + count - 1.
struct position_range {
  double first = 0;  ///< a whole number within +-2^53
  index_t count = 0;
};

namespace detail {

/// Cosines and sines of a token, one a pair, for rope and what is made of it.
class rope_angles {
 public:
  rope_angles(const frequency_ladder& ladder, const std::vector<index_t>& axes, position_range table,
              angle_arithmetic arithmetic)
      : frequencies_(ladder.inv_freq(), axes), arithmetic_(arithmetic) {
    if (table.count > 0) table_ = shared_object::make<angle_table>(frequencies_.inv_freq(), table.first, table.count);
    simple_ = table.count > 0 && axes.empty();
    if (arithmetic != angle_arithmetic::float32_running) return;
    start_ = static_cast<float>(ladder.inv_freq(0));
    ratio_ = ladder.size() > 1 ? static_cast<float>(ladder.inv_freq(1) / ladder.inv_freq(0)) : 1.0f;
  }

  static maybe_error check(const frequency_ladder& ladder, position_range table, angle_arithmetic arithmetic) noexcept {
    if (table.count < 0 || static_cast<double>(table.count) > 0x1p40)
      return make_error(errc::invalid_shape, "table", "has %td positions; allowed: 0 (no table) to 2^40", table.count);
    if (table.count > 0 &&
        !(is_position(table.first) && table.first == static_cast<double>(static_cast<index_t>(table.first))))
      return make_error(errc::invalid_value, "table", "begins at %g; allowed: a whole number within +-2^53",
                        table.first);
    if (arithmetic == angle_arithmetic::exact) return {};
    if (table.count > 0)
      return make_error(errc::mismatch, "table", "has %td positions; float32 arithmetic has no tables, allowed: 0",
                        table.count);
    if (arithmetic == angle_arithmetic::float32) return {};
    const auto w = ladder.inv_freq();
    for (std::size_t i = 0; i + 1 < w.size(); ++i)
      if (!(w[0] > 0) || std::fabs(w[i + 1] * w[0] - w[i] * w[1]) > 1e-12 * w[i] * w[1])
        return make_error(errc::invalid_value, "arithmetic",
                          "is float32_running and frequency %td is not frequency %td times the common ratio; allowed: "
                          "ladders with one ratio",
                          static_cast<index_t>(i + 1), static_cast<index_t>(i));
    return {};
  }

  angle_arithmetic arithmetic() const noexcept { return arithmetic_; }
  /// Null without one.
  const angle_table* table() const noexcept { return static_cast<const angle_table*>(table_.get()); }
  const frequencies_by_axis& frequencies() const noexcept { return frequencies_; }

  /// factor * cosine and factor * sine of every pair; `turn` is 1, or -1 for the angles with their signs changed.
  template <class Real>
  void write(position_span position, double turn, double factor, Real* cosines, Real* sines) const noexcept {
    if (simple_ && table()->read(position[0], 0, static_cast<index_t>(frequencies_.inv_freq().size()), factor,
                                 turn * factor, cosines, sines))
      return;
    constexpr index_t longest = 64;
    frequencies_.for_each_piece(
        longest, [&](const double* inv_freq, index_t count, index_t axis, index_t first, const index_t* pairs) {
          const double p = position[static_cast<std::size_t>(axis)];
          if (pairs == nullptr) {
            write_piece(inv_freq, count, first, nullptr, p, turn, factor, cosines + first, sines + first);
            return;
          }
          Real c[longest], s[longest];
          write_piece(inv_freq, count, first, pairs, p, turn, factor, c, s);
          for (index_t i = 0; i < count; ++i) {
            cosines[pairs[i]] = c[i];
            sines[pairs[i]] = s[i];
          }
        });
  }

 private:
  /// `first` is the piece's place among the sorted frequencies.
  template <class Real>
  void write_piece(const double* inv_freq, index_t count, index_t first, const index_t* pairs, double position,
                   double turn, double factor, Real* cosines, Real* sines) const noexcept {
    if (arithmetic_ == angle_arithmetic::exact) {
      if (table() == nullptr || !table()->read(position, first, count, factor, turn * factor, cosines, sines))
        simd::sincos_products(inv_freq, count, turn * position, factor, cosines, sines);
      return;
    }
    write_float32(inv_freq, count, first, pairs, position, turn, factor, cosines, sines);
  }

  template <class Real>
  void write_float32(const double* inv_freq, index_t count, index_t first, const index_t* pairs, double position,
                     double turn, double factor, Real* cosines, Real* sines) const noexcept {
    constexpr index_t chunk = 64;
    const auto at = static_cast<float>(position), a = static_cast<float>(factor);
    const bool running = arithmetic_ == angle_arithmetic::float32_running;
    float theta = at;
    index_t reached = 0;
    for (index_t begin = 0; begin < count; begin += chunk) {
      const index_t n = (std::min)(chunk, count - begin);
      double angles[chunk];
      float c[chunk], s[chunk];
      for (index_t i = 0; i < n; ++i) {
        float angle = at * static_cast<float>(inv_freq[begin + i]);
        if (running) {
          const index_t pair = pairs != nullptr ? pairs[begin + i] : first + begin + i;
          for (; reached < pair; ++reached) theta = simd::backend::opaque(theta * ratio_);
          angle = theta * start_;
        }
        angles[i] = static_cast<double>(simd::backend::opaque(angle));
      }
      simd::sincos_products(static_cast<const double*>(angles), n, turn, 1.0, c, s);
      for (index_t i = 0; i < n; ++i) {
        cosines[begin + i] = static_cast<Real>(c[i] * a);
        sines[begin + i] = static_cast<Real>(s[i] * a);
      }
    }
  }

  frequencies_by_axis frequencies_;
  angle_arithmetic arithmetic_;
  float start_ = 1, ratio_ = 1;
  shared_object table_;  // an angle_table, or nothing
  bool simple_ = false;  // one position, all of whose angles are those of a row of the table
};

}  // namespace detail

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_ROPE_ANGLES_HPP
