// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_LADDER_NTK_AWARE_HPP
#define POSENC_LADDER_NTK_AWARE_HPP

#include <string>
#include <utility>
#include <vector>

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
    return {};
  }

  frequency_ladder operator()(const frequency_ladder& ladder) const {
    raise_if(check(ladder));
    using detail::wide;
    const wide s = factor;
    const bool rescaling = rule == ntk_rule::base_rescaling;
    const wide pairs = static_cast<wide>(ladder.size());
    std::vector<double> scaled(ladder.inv_freq().begin(), ladder.inv_freq().end());
    for (std::size_t i = 0; i < scaled.size(); ++i) {
      const wide exponent = rescaling ? detail::quotient(static_cast<wide>(i), pairs - 1)
                                      : detail::power(detail::quotient(static_cast<wide>(i + 1), pairs), mixed_b);
      scaled[i] = detail::rounded(detail::quotient(static_cast<wide>(scaled[i]), detail::power(s, exponent)));
    }
    double base_multiplier = 1;
    if (rescaling) {
      base_multiplier = detail::rounded(detail::power(s, detail::quotient(pairs, pairs - 1)));
    } else if (mixed_b == 1) {
      base_multiplier = factor;
    }
    std::string parameters = "factor " + detail::number_text(factor);
    if (!rescaling) parameters += ", scaled base";
    if (mixed_b != 1) parameters += ", mixed_b " + detail::number_text(mixed_b);
    if (ladder.base() > 0)
      parameters += ", base becomes " + detail::number_text(detail::product(ladder.base(), base_multiplier));
    return ladder.scaled({name, factor, stretches_context(), false, std::move(parameters)}, std::move(scaled), 1,
                         base_multiplier);
  }
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_LADDER_NTK_AWARE_HPP
