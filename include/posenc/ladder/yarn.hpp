// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_LADDER_YARN_HPP
#define POSENC_LADDER_YARN_HPP

#include <algorithm>
#include <cmath>
#include <optional>

#include "parameter_checks.hpp"
#include "scaling.hpp"

namespace posenc::inline POSENC_ABI {

/// How yarn divides by the width of its ramp, which goes from pair `low` to pair `high`.
enum class yarn_ramp_width {
  add_if_equal,   ///< high - low, and 0.001 where they are equal; a ramp that runs backwards stays so
  at_least_0_001  ///< the larger of 0.001 and high - low, so a ramp never runs backwards
};

/// How yarn reads mscale and mscale_all_dim. With g(m) = 1 + 0.1 m ln(factor):
enum class yarn_mscale_rule {
  both_or_neither,  ///< g(mscale) / g(mscale_all_dim) if both are given and not 0, else g(1)
  each  ///< g(mscale) / g(mscale_all_dim) always; mscale is 1 and mscale_all_dim 0 where not given (DeepSeek)
};

/// Pair numbers between which yarn goes from "untouched" to "divided by factor".
struct yarn_range {
  double low = 0;
  double high = 0;
};

/// g(m) = 1 + 0.1 m ln(factor), and 1 for factors up to 1 (Peng et al. 2023, "YaRN", equation 22, which has m = 1).
/// Errors: invalid_value.
inline double yarn_magnitude(const double& factor, const double& mscale = 1) {
  raise_if(detail::check_factor(factor));
  raise_if(detail::check_not_negative("mscale", mscale));
  if (factor <= 1) return 1;
  return detail::rounded(detail::sum(
      detail::wide{1}, detail::product(detail::quotient(static_cast<detail::wide>(mscale), detail::wide{10}),
                                       detail::natural_log(detail::widened(factor)))));
}

/// What DeepSeek's models multiply the softmax scale by, on top of 1 / sqrt(width of queries): g(mscale_all_dim)^2. It
/// gives back, on all dimensions, the temperature that their attention factor g(mscale) / g(mscale_all_dim) leaves out.
/// 1 for mscale_all_dim 0, that is, where the configuration does not give it. Errors: invalid_value.
inline double yarn_softmax_multiplier(const double& factor, const double& mscale_all_dim) {
  const detail::wide g = detail::widened(yarn_magnitude(factor, mscale_all_dim));
  return detail::rounded(detail::product(g, g));
}

/// YaRN (Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models", section 3.2).
///
/// With d = rotary_dim, b = the ladder's base, L = original_context, a pair that makes r turns in L has the number
///   pair(r) = d ln(L / (2 pi r)) / (2 ln b);   low = pair(beta_fast), high = pair(beta_slow).
/// Both are cut to whole pairs (low down, high up) if `truncate`; then low is at least 0 and high at most d - 1. With
///   ramp(i) = (i - low) / (high - low) limited to 0 .. 1,   keep(i) = (1 - ramp(i)) * extrapolation_factor,
/// the frequencies become  w * keep + w / factor * (1 - keep).
///
/// The attention factor is multiplied by
///   attention_factor                  if it is given; else
///   attn_factor                       if not apply_yarn_scaling; else
///   attn_factor * (g(1), or a quotient of two g as mscale_rule says),  g(m) = 1 + 0.1 m ln(factor), 1 for factor <= 1.
///
/// It multiplies cos and sin, hence scores of rotated dimensions by its square; the softmax scale is never touched (see
/// yarn_softmax_multiplier). Every reading that is around differs in some of these fields: yarn_as of dialect.hpp sets
/// them as one peer does.
///
/// Errors: invalid_value for any parameter that is NaN, infinite or out of its range, or a ladder whose base is not above
/// 1; mismatch for attn_factor beside attention_factor; stacked_scaling.
struct yarn {
  double factor = 0;             ///< mandatory, finite and > 0
  index_t original_context = 0;  ///< mandatory, tokens
  double beta_fast = 32;         ///< turns, > 0: pairs that make more are untouched
  double beta_slow = 1;          ///< turns, > 0: pairs that make fewer are divided by factor
  bool truncate = true;          ///< whether the ramp's ends are cut to whole pairs
  yarn_ramp_width ramp_width = yarn_ramp_width::add_if_equal;
  double extrapolation_factor = 1;  ///< weight of the untouched frequencies, 0 to 1; 0 is position interpolation
  std::optional<double> attention_factor = {};  ///< replaces all that follows, > 0
  double attn_factor = 1;                       ///< multiplies the magnitude, > 0
  bool apply_yarn_scaling = true;               ///< false: attn_factor alone
  std::optional<double> mscale = {};            ///< >= 0
  std::optional<double> mscale_all_dim = {};    ///< >= 0
  yarn_mscale_rule mscale_rule = yarn_mscale_rule::both_or_neither;
  bool magnitude_below_one = false;  ///< whether 1 + 0.1 m ln(factor) also holds for factors below 1

  static constexpr const char* name = "yarn";

  bool stretches_context() const noexcept { return factor != 1; }

 private:
  /// The new frequency of pair i, as a function.
  auto frequencies_of(const frequency_ladder& ladder) const noexcept {
    using detail::wide;
    const yarn_range range = range_of(ladder);
    wide width = detail::sum(detail::widened(range.high), detail::widened(-range.low));
    if (ramp_width == yarn_ramp_width::at_least_0_001) {
      width = (std::max)(width, wide{0.001L});
    } else if (range.high == range.low) {
      width = 0.001L;
    }
    return [this, low = range.low, width, all = ladder.inv_freq().data()](index_t i) noexcept {
      const double w = all[i];
      const wide along = detail::quotient(detail::sum(static_cast<wide>(i), detail::widened(-low)), width);
      const wide ramp = (std::min)((std::max)(along, wide{0}), wide{1});
      const wide keep = detail::product(detail::sum(wide{1}, -ramp), static_cast<wide>(extrapolation_factor));
      // Pairs off the ramp get the very bits of position interpolation.
      if (keep == 0) return detail::quotient(w, factor);
      return detail::rounded(
          detail::blend(detail::quotient(detail::widened(w), detail::widened(factor)), detail::widened(w), keep));
    };
  }

 public:
  maybe_error check(const frequency_ladder& ladder) const noexcept {
    if (maybe_error wrong = detail::check_factor(factor)) return wrong;
    if (maybe_error wrong = detail::check_original_context(original_context)) return wrong;
    if (maybe_error wrong = detail::check_positive("beta_fast", beta_fast)) return wrong;
    if (maybe_error wrong = detail::check_positive("beta_slow", beta_slow)) return wrong;
    if (!detail::is_finite(extrapolation_factor) || extrapolation_factor < 0 || extrapolation_factor > 1) {
      return make_error(errc::invalid_value, "extrapolation_factor", "is %g; allowed: 0 to 1", extrapolation_factor);
    }
    if (attention_factor) {
      if (maybe_error wrong = detail::check_positive("attention_factor", *attention_factor)) return wrong;
    }
    if (maybe_error wrong = detail::check_positive("attn_factor", attn_factor)) return wrong;
    if (attention_factor && attn_factor != 1) {
      return make_error(errc::mismatch, "attn_factor",
                        "is %g beside attention_factor %g, which replaces it; allowed: one of the two", attn_factor,
                        *attention_factor);
    }
    if (mscale) {
      if (maybe_error wrong = detail::check_not_negative("mscale", *mscale)) return wrong;
    }
    if (mscale_all_dim) {
      if (maybe_error wrong = detail::check_not_negative("mscale_all_dim", *mscale_all_dim)) return wrong;
    }
    if (!(ladder.base() > 1)) {
      return make_error(errc::invalid_value, "base",
                        "of the ladder is %g, but yarn turns wavelengths into pair numbers with it; allowed: above 1 "
                        "(a ladder of own frequencies takes its base as an argument)",
                        ladder.base());
    }
    if (const double a = magnitude(); !detail::is_finite(a) || a <= 0) {
      return make_error(errc::invalid_value, "factor",
                        "is %g, which makes the attention factor %g; allowed: larger ones, or magnitude_below_one off",
                        factor, a);
    }
    if (const double a = detail::product(ladder.attention_factor(), magnitude());
        !detail::is_finite(a) || a < 0x1p-1022) {
      return make_error(errc::invalid_value, "factor",
                        "is %g, which makes %g of the ladder's attention factor %g; allowed: what leaves it within "
                        "2.3e-308 to 1.7e308",
                        factor, a, ladder.attention_factor());
    }
    return detail::check_results(ladder, factor, frequencies_of(ladder));
  }

  /// The ends of the ramp on this ladder, after cutting and limiting. Errors: as for the scaling itself.
  yarn_range correction_range(const frequency_ladder& ladder) const {
    raise_if(check(ladder));
    return range_of(ladder);
  }

  frequency_ladder operator()(const frequency_ladder& ladder) const {
    raise_if(check(ladder));
    const auto scaled = detail::results_of(ladder, frequencies_of(ladder));
    return ladder.scaled({name, factor, stretches_context(), false, parameters()}, scaled.view(), magnitude());
  }

 private:
  yarn_range range_of(const frequency_ladder& ladder) const noexcept {
    using detail::wide;
    const auto pair_of = [&](double turns) {
      const wide wavelength = detail::quotient(static_cast<wide>(original_context),
                                               detail::product(detail::two_pi, static_cast<wide>(turns)));
      return detail::quotient(detail::product(static_cast<wide>(ladder.rotary_dim()), detail::natural_log(wavelength)),
                              detail::product(wide{2}, detail::natural_log(detail::widened(ladder.base()))));
    };
    wide low = pair_of(beta_fast);
    wide high = pair_of(beta_slow);
    if (truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    return {detail::rounded((std::max)(low, wide{0})),
            detail::rounded((std::min)(high, static_cast<wide>(ladder.rotary_dim() - 1)))};
  }

  double magnitude() const noexcept {
    using detail::wide;
    if (attention_factor) return *attention_factor;
    if (!apply_yarn_scaling) return attn_factor;
    const wide log_factor = factor > 1 || magnitude_below_one ? detail::natural_log(detail::widened(factor)) : 0;
    const auto g = [&](double m) {
      return detail::sum(wide{1}, detail::product(detail::quotient(static_cast<wide>(m), wide{10}), log_factor));
    };
    const bool quotient_of_two =
        mscale_rule == yarn_mscale_rule::each || (mscale && *mscale != 0 && mscale_all_dim && *mscale_all_dim != 0);
    const wide inferred =
        quotient_of_two ? detail::quotient(g(mscale ? *mscale : 1), g(mscale_all_dim ? *mscale_all_dim : 0)) : g(1);
    return detail::rounded(detail::product(static_cast<wide>(attn_factor), inferred));
  }

  short_text parameters() const noexcept {
    detail::parameter_text text("factor", factor);
    text.add("original", static_cast<double>(original_context));
    if (beta_fast != 32 || beta_slow != 1) text.add("betas", beta_fast).join(" and ", beta_slow);
    if (!truncate) text.add("not truncated");
    if (ramp_width == yarn_ramp_width::at_least_0_001) text.add("ramp at least 0.001");
    if (extrapolation_factor != 1) text.add("extrapolation", extrapolation_factor);
    if (attention_factor) text.add("attention factor", *attention_factor);
    if (attn_factor != 1) text.add("attn_factor", attn_factor);
    if (!apply_yarn_scaling) text.add("no magnitude");
    if (mscale) text.add("mscale", *mscale);
    if (mscale_all_dim) text.add("mscale_all_dim", *mscale_all_dim);
    if (mscale_rule == yarn_mscale_rule::each) text.add("mscale read each");
    if (magnitude_below_one) text.add("magnitude below one");
    return text.text();
  }
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_LADDER_YARN_HPP
