// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_ALIBI_HPP
#define POSENC_ENCODING_ALIBI_HPP

#include <bit>
#include <cmath>
#include <span>
#include <vector>

#include "../core/error.hpp"
#include "../core/finite.hpp"
#include "../core/number_list.hpp"
#include "concepts.hpp"
#include "position_checks.hpp"

namespace posenc::inline POSENC_ABI {

namespace detail {
inline maybe_error check_alibi(index_t heads, const double& max_bias) noexcept {
  if (heads < 1 || heads > index_t{1} << 24)
    return make_error(errc::invalid_shape, "heads", "is %td; allowed: 1 and more (up to 2^24)", heads);
  if (!is_finite(max_bias) || max_bias < 0)
    return make_error(errc::invalid_value, "max_bias", "is %g; allowed: a finite number >= 0 (0: no bias)", max_bias);
  return {};
}
}  // namespace detail

/// ALiBi's slopes for any number of heads (Press et al. 2022, "Train Short, Test Long", section 3, and its code for
/// other counts than powers of two). With c the largest power of two up to `heads`:
///
///   2^(-max_bias h / c), h = 1 .. c, then 2^(-max_bias h / 2c) for the odd h = 1, 3, ...: (heads - c) of them.
///
/// max_bias 0 switches ALiBi off: all slopes are 0. Correct to the last place or two.
/// Errors: invalid_shape (heads < 1), invalid_value (max_bias negative, NaN or infinite).
inline std::vector<double> alibi_slopes(index_t heads, const double& max_bias = 8) {
  raise_if(detail::check_alibi(heads, max_bias));
  std::vector<double> slopes(static_cast<std::size_t>(heads));
  if (!(max_bias > 0)) return slopes;
  const auto power = static_cast<index_t>(std::bit_floor(static_cast<std::size_t>(heads)));
  for (index_t h = 0; h < heads; ++h) {
    // h + 1 of c or, past the power of two, 2 (h - c) + 1 of 2c; division by a power of two is exact.
    const index_t numerator = h < power ? 2 * (h + 1) : 2 * (h - power) + 1;
    slopes[static_cast<std::size_t>(h)] =
        std::exp2(-max_bias * static_cast<double>(numerator) / static_cast<double>(2 * power));
  }
  return slopes;
}

struct alibi_options {
  double max_bias = 8;     ///< of the slopes made from a head count, see alibi_slopes
  bool is_signed = false;  ///< slope * (key - query) instead of -slope * |key - query|; equal under a causal mask
  index_t axis = 0;        ///< the position axis that distances are taken on
};

/// Attention with linear biases (Press et al. 2022): adds -slope * |key position - query position| to the scores, a slope
/// for each query head, in natural units after scale and softcap. Positions may be fractional. The distance is formed in
/// double.
class alibi {
 public:
  using acts_on = places<on_scores>;

  /// The paper's slopes for `heads` query heads. Errors: those of alibi_slopes; invalid_value (axis).
  explicit alibi(index_t heads, const alibi_options& options = {}) : options_(options) {
    const std::vector<double> slopes = alibi_slopes(heads, options.max_bias);
    slopes_.append(slopes.data(), slopes.size());
    raise_if(check_options());
  }

  /// Own slopes, one for each query head, of any sign; 0 leaves a head without bias.
  /// Errors: invalid_shape (none), invalid_value (NaN or beyond 1e18, axis), mismatch (max_bias, which they replace).
  explicit alibi(std::span<const double> slopes, const alibi_options& options = {})
      : options_(options), slopes_(slopes.data(), slopes.size()) {
    raise_if(check_own_slopes(slopes));
  }
  explicit alibi(std::span<const float> slopes, const alibi_options& options = {}) : options_(options) {
    for (std::size_t h = 0; h < slopes.size(); ++h) slopes_.push_back(static_cast<double>(slopes[h]));
    raise_if(check_own_slopes(slopes));
  }

  std::span<const double> slopes() const noexcept { return {slopes_.data(), slopes_.size()}; }
  const alibi_options& options() const noexcept { return options_; }

  template <class Keys>
  auto bias(const Keys& keys, index_t head) const {
    using vector = typename Keys::value_type;
    const vector slope(slopes_[static_cast<std::size_t>(head)]);
    const vector distance = keys.distance(options_.axis);
    return options_.is_signed ? slope * distance : -slope * simd::abs(distance);
  }

  /// The largest bias for distances (key - query) from `low` to `high` on the axis `bias_axis()`: a bias that falls without
  /// end lets attention leave out the keys that are too far to matter.
  double largest_bias(double low, double high, index_t head) const noexcept {
    const double slope = slopes_[static_cast<std::size_t>(head)];
    const double at_low = options_.is_signed ? slope * low : -slope * std::fabs(low);
    const double at_high = options_.is_signed ? slope * high : -slope * std::fabs(high);
    const double at_ends = at_low > at_high ? at_low : at_high;
    return !options_.is_signed && low < 0 && high > 0 && at_ends < 0 ? 0 : at_ends;
  }
  index_t bias_axis() const noexcept { return options_.axis; }

  maybe_error check(const encoding_use& use) const noexcept {
    if (maybe_error e = detail::check_query_heads("alibi", "slopes", static_cast<index_t>(slopes_.size()), use))
      return e;
    return detail::check_axis("alibi", options_.axis, use);
  }

 private:
  maybe_error check_options() const noexcept {
    if (options_.axis >= 0 && options_.axis < max_position_axes) return {};
    return make_error(errc::invalid_value, "axis", "is %td; allowed: 0 to %td", options_.axis, max_position_axes - 1);
  }

  template <class T>
  maybe_error check_own_slopes(std::span<const T> slopes) const noexcept {
    if (slopes.empty()) return make_error(errc::invalid_shape, "slopes", "has none; allowed: one for each query head");
    for (std::size_t h = 0; h < slopes.size(); ++h)
      if (!detail::is_finite(slopes[h]) || std::fabs(static_cast<double>(slopes[h])) > 1e18)
        return make_error(errc::invalid_value, "slopes", "has %g for head %zu; allowed: -1e18 to 1e18",
                          static_cast<double>(slopes[h]), h);
    if (options_.max_bias != alibi_options{}.max_bias)
      return make_error(errc::mismatch, "max_bias",
                        "is %g beside own slopes, which replace it; allowed: one of the two", options_.max_bias);
    return check_options();
  }

  alibi_options options_;
  detail::number_list<double> slopes_;
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_ALIBI_HPP
