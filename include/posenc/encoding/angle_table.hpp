// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_ANGLE_TABLE_HPP
#define POSENC_ENCODING_ANGLE_TABLE_HPP

#include <cmath>
#include <cstdint>
#include <span>
#include <type_traits>

#include "../core/number_list.hpp"
#include "../core/platform.hpp"
#include "../simd/convert.hpp"
#include "../simd/sincos.hpp"

/// Cosines and sines of many positions, kept small by the addition of angles.
namespace posenc::inline POSENC_ABI::detail {

/// cos(a + b) and sin(a + b) of one register of angles, in double.
POSENC_ALWAYS_INLINE simd::sine_cosine<simd::vec<double>> add_angles(const double* cos_a, const double* sin_a,
                                                                     const double* cos_b,
                                                                     const double* sin_b) noexcept {
  const simd::vec<double> ca = simd::load(cos_a), sa = simd::load(sin_a), cb = simd::load(cos_b),
                          sb = simd::load(sin_b);
  return {fma(sa, cb, ca * sb), fma(ca, cb, -(sa * sb))};
}

/// Numbers of one register, converted to `Real` and stored.
template <class Real>
POSENC_ALWAYS_INLINE void store_converted(Real* to, simd::vec<double> v) noexcept {
  using narrow = simd::backend::vector<Real, simd::vec<double>::lanes* static_cast<int>(sizeof(Real))>;
  simd::backend::store(to, __builtin_convertvector(v.r, narrow));
}

/// Rows of cosines and sines in double, [cosines][sines], each part filled up to whole registers. One more register may be
/// read behind the last row, so that a register may begin anywhere in a row.
class angle_rows {
 public:
  angle_rows() = default;

  /// Row r is that of the position first + r * step.
  angle_rows(std::span<const double> inv_freq, double first, double step, index_t count)
      : width_(width_of(static_cast<index_t>(inv_freq.size()))),
        numbers_(static_cast<std::size_t>(2 * width_ * count + simd::vec<double>::lanes)) {
    for (index_t r = 0; r < count; ++r)
      simd::sincos_products(inv_freq.data(), static_cast<index_t>(inv_freq.size()),
                            first + static_cast<double>(r) * step, 1.0, numbers_.data() + 2 * width_ * r,
                            numbers_.data() + 2 * width_ * r + width_);
  }

  const double* cos(index_t row) const noexcept { return numbers_.data() + 2 * width_ * row; }
  const double* sin(index_t row) const noexcept { return cos(row) + width_; }
  index_t bytes() const noexcept { return static_cast<index_t>(numbers_.size() * sizeof(double)); }

  /// `pairs` and as many as make the last register whole.
  static constexpr index_t width_of(index_t pairs) noexcept {
    constexpr index_t lanes = simd::vec<double>::lanes;
    return (pairs + lanes - 1) / lanes * lanes;
  }

 private:
  index_t width_ = 0;
  number_list<double> numbers_;
};

/// The positions first, first + 1, ..., first + count - 1. Such a position is first + the sum of two or three digits, each
/// with rows of its own, and cos(a + b) = cos a cos b - sin a sin b. The rows are those of exact products, so that a sum of
/// three is off by no more than 1e-15. Two digits serve 4096 positions; with three, a million positions of 64 pairs take
/// 320 KiB where their floats would take 512 MiB.
class angle_table {
 public:
  /// `first` is a whole number, count > 0.
  angle_table(std::span<const double> inv_freq, double first, index_t count)
      : pairs_(static_cast<index_t>(inv_freq.size())), first_(first), count_(static_cast<double>(count)) {
    int bits = 1;
    while (bits < 62 && (index_t{1} << bits) < count) ++bits;
    three_ = bits > two_digit_bits;
    low_bits_ = three_ ? (bits + 1) / 3 : (bits + 1) / 2;
    middle_bits_ = three_ ? (bits - low_bits_ + 1) / 2 : 0;
    const auto rows = [](index_t n, int shift) { return ((n - 1) >> shift) + 1; };
    const index_t low = index_t{1} << low_bits_, middle = index_t{1} << middle_bits_;
    low_ = angle_rows(inv_freq, 0, 1, count < low ? count : low);
    if (three_) middle_ = angle_rows(inv_freq, 0, static_cast<double>(low), middle);
    high_ = angle_rows(inv_freq, first, static_cast<double>(low * middle), rows(count, low_bits_ + middle_bits_));
  }

  double first() const noexcept { return first_; }
  index_t count() const noexcept { return static_cast<index_t>(count_); }
  index_t bytes() const noexcept { return low_.bytes() + middle_.bytes() + high_.bytes(); }

  /// Cosines times cos_factor and sines times sin_factor of the frequencies [begin, begin + n) at a position. False, with
  /// nothing written, if the table does not hold the position.
  template <class Real>
  POSENC_NOINLINE bool read(double position, index_t begin, index_t n, double cos_factor, double sin_factor,
                            Real* cos_out, Real* sin_out) const noexcept {
    const double distance = position - first_;
    if (!(distance >= 0 && distance < count_)) return false;
    const auto at = static_cast<index_t>(distance);
    if (first_ + static_cast<double>(at) != position) return false;
    const index_t low = at & ((index_t{1} << low_bits_) - 1), rest = at >> low_bits_;
    const index_t middle = rest & ((index_t{1} << middle_bits_) - 1), high = rest >> middle_bits_;
    const double* const c0 = low_.cos(low) + begin;
    const double* const s0 = low_.sin(low) + begin;
    const double* const c2 = high_.cos(high) + begin;
    const double* const s2 = high_.sin(high) + begin;
    if (!three_) {
      write(n, cos_factor, sin_factor, cos_out, sin_out,
            [&](index_t i) POSENC_INLINE_LAMBDA { return add_angles(c2 + i, s2 + i, c0 + i, s0 + i); });
      return true;
    }
    const double* const c1 = middle_.cos(middle) + begin;
    const double* const s1 = middle_.sin(middle) + begin;
    write(n, cos_factor, sin_factor, cos_out, sin_out, [&](index_t i) POSENC_INLINE_LAMBDA {
      const auto [sin_a, cos_a] = add_angles(c2 + i, s2 + i, c1 + i, s1 + i);
      const simd::vec<double> cb = simd::load(c0 + i), sb = simd::load(s0 + i);
      return simd::sine_cosine<simd::vec<double>>{fma(sin_a, cb, cos_a * sb), fma(cos_a, cb, -(sin_a * sb))};
    });
    return true;
  }

 private:
  static constexpr int two_digit_bits = 12;  // rows that a pass over long tensors does not push out of the second cache

  template <class Real, class F>
  POSENC_ALWAYS_INLINE static void write(index_t n, double cos_factor, double sin_factor, Real* cos_out, Real* sin_out,
                                         F&& angle) noexcept {
    constexpr index_t lanes = simd::vec<double>::lanes;
    const simd::vec<double> fc(cos_factor), fs(sin_factor);
    index_t i = 0;
    const bool plain = cos_factor == 1 && sin_factor == 1;
    const auto scaled = [&](index_t at) POSENC_INLINE_LAMBDA {
      const auto [s, c] = angle(at);
      return simd::sine_cosine<simd::vec<double>>{s * fs, c * fc};
    };
    if constexpr (std::is_same_v<Real, float>) {
      const auto both = [&](auto&& of) POSENC_INLINE_LAMBDA {
        for (; i + 2 * lanes <= n; i += 2 * lanes) {
          const auto low = of(i), high = of(i + lanes);
          simd::store(cos_out + i, simd::join(low.cos, high.cos));
          simd::store(sin_out + i, simd::join(low.sin, high.sin));
        }
      };
      if (plain) {
        both(angle);
      } else {
        both(scaled);
      }
    }
    for (; i + lanes <= n; i += lanes) {
      const auto [s, c] = scaled(i);
      store_converted(cos_out + i, c);
      store_converted(sin_out + i, s);
    }
    if (i == n) return;
    alignas(64) double c[lanes], s[lanes];
    const auto last = angle(i);
    simd::store(c, last.cos * fc);
    simd::store(s, last.sin * fs);
    for (index_t j = 0; i + j < n; ++j) {
      cos_out[i + j] = static_cast<Real>(c[j]);
      sin_out[i + j] = static_cast<Real>(s[j]);
    }
  }

  index_t pairs_ = 0;
  double first_ = 0;
  double count_ = 0;
  bool three_ = false;
  int low_bits_ = 0, middle_bits_ = 0;
  angle_rows low_, middle_, high_;
};

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ENCODING_ANGLE_TABLE_HPP
