// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_LADDER_NTK_AWARE_HPP
#define POSENC_LADDER_NTK_AWARE_HPP

#include <utility>

#include "parameter_checks.hpp"
#include "scaling.hpp"

namespace posenc::inline POSENC_ABI {

/// Two scalings go by the name "NTK". With d = rotary_dim, s = factor, pair i = 0 .. d/2 - 1:
enum class ntk_rule {
  /// base * s^(d / (d - 2)) (bloc97 2023, "NTK-Aware Scaled RoPE"): frequency i is divided by s^(i / (d/2 - 1)), so the
  /// fastest pair is untouched and the slowest is divided by exactly s. Configurations that call the factor `alpha` mean
  /// this one. It needs d > 2.
  base_rescaling,
  /// Su 2023 ("Transformer upgrade: NTK-aware, in detail"): frequency i is divided by s^(((i + 1) / (d/2))^mixed_b), so
  /// the fastest pair changes a little, too. With mixed_b 1 that is base * s and another division by s^(2/d).
  scaled_base
};

/// NTK-aware scaling: slow pairs are stretched, fast ones hardly. The attention factor stays. It acts on the frequencies
/// that the ladder has, so a ladder of one's own frequencies will do; where there is a nominal base it changes along.
///
/// Errors: invalid_value (factor, mixed_b), invalid_shape (rotary_dim 2 with base_rescaling, whose exponent d / (d - 2)
/// does not exist), mismatch (mixed_b with base_rescaling), stacked_scaling.
struct ntk_aware {
  double factor = 0;  ///< mandatory, finite and > 0
  ntk_rule rule = ntk_rule::base_rescaling;
  double mixed_b =
      1;  ///< scaled_base only; finite and >= 0; below 1 fast pairs are stretched more; 0.625 is Su's choice

  static constexpr const char* name = "ntk_aware";

  bool stretches_context() const noexcept { return factor != 1; }

 private:
  /// The new frequency of pair i, as a function.
  auto frequencies_of(const frequency_ladder& ladder) const noexcept {
    return
        [this, pairs = static_cast<detail::wide>(ladder.size()), all = ladder.inv_freq().data()](index_t i) noexcept {
          using detail::wide;
          const wide exponent =
              rule == ntk_rule::base_rescaling
                  ? detail::quotient(static_cast<wide>(i), pairs - 1)
                  : detail::power(detail::quotient(static_cast<wide>(i + 1), pairs), detail::widened(mixed_b));
          return detail::rounded(
              detail::quotient(static_cast<wide>(all[i]), detail::power(detail::widened(factor), exponent)));
        };
  }

  double base_multiplier(const frequency_ladder& ladder) const noexcept {
    const auto pairs = static_cast<detail::wide>(ladder.size());
    if (rule == ntk_rule::scaled_base) return mixed_b == 1 ? factor : 1;
    return detail::rounded(detail::power(detail::widened(factor), detail::quotient(pairs, pairs - 1)));
  }

 public:
  maybe_error check(const frequency_ladder& ladder) const noexcept {
    if (maybe_error wrong = detail::check_factor(factor)) return wrong;
    if (maybe_error wrong = detail::check_not_negative("mixed_b", mixed_b)) return wrong;
    if (rule == ntk_rule::base_rescaling && mixed_b != 1) {
      return make_error(errc::mismatch, "mixed_b",
                        "is %g, which base_rescaling does not read; allowed: 1, or the rule scaled_base", mixed_b);
    }
    if (rule == ntk_rule::base_rescaling && ladder.rotary_dim() == 2) {
      return make_error(errc::invalid_shape, "rotary_dim",
                        "is 2, where NTK-aware scaling divides by rotary_dim - 2; allowed: 4 and more, or the rule "
                        "scaled_base");
    }
    if (maybe_error wrong = detail::check_results(ladder, factor, frequencies_of(ladder))) return wrong;
    const double base = detail::product(ladder.base(), base_multiplier(ladder));
    if (!detail::is_finite(base) || (ladder.base() > 0 && base < 0x1p-1022)) {
      return make_error(errc::invalid_value, "factor",
                        "is %g, which makes %g of the base %g; allowed: 2.3e-308 to 1.7e308", factor, base,
                        ladder.base());
    }
    return {};
  }

  frequency_ladder operator()(const frequency_ladder& ladder) const {
    raise_if(check(ladder));
    const auto scaled = detail::results_of(ladder, frequencies_of(ladder));
    detail::parameter_text parameters("factor", factor);
    if (rule == ntk_rule::scaled_base) parameters.add("scaled base");
    if (mixed_b != 1) parameters.add("mixed_b", mixed_b);
    if (ladder.base() > 0) parameters.add("base becomes", detail::product(ladder.base(), base_multiplier(ladder)));
    return ladder.scaled({name, factor, stretches_context(), false, parameters.text()}, scaled.view(), 1,
                         base_multiplier(ladder));
  }
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_LADDER_NTK_AWARE_HPP
