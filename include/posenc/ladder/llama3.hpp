// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_LADDER_LLAMA3_HPP
#define POSENC_LADDER_LLAMA3_HPP

#include <string>
#include <utility>
#include <vector>

#include "parameter_checks.hpp"
#include "scaling.hpp"

namespace posenc::inline POSENC_ABI {

/// The scaling of Llama 3.1 and later (Grattafiori et al. 2024, "The Llama 3 Herd of Models", and its published code), by
/// the number of turns r = original_context * inv_freq / (2 pi) that a pair makes in the original context:
///   r > high_freq_factor: untouched;   r < low_freq_factor: divided by factor;
///   between: w = (1 - m) * w / factor + m * w  with  m = (r - low_freq_factor) / (high_freq_factor - low_freq_factor).
/// Where the two factors are equal nothing is blended: a pair that makes exactly so many turns has m = 0, that is, it is
/// divided. The attention factor stays.
///
/// Errors: invalid_value (factor, original_context, low_freq_factor, high_freq_factor), mismatch (low above high),
/// stacked_scaling.
struct llama3 {
  double factor = 0;             ///< mandatory, finite and > 0
  double low_freq_factor = 1;    ///< turns, > 0
  double high_freq_factor = 4;   ///< turns, >= low_freq_factor
  index_t original_context = 0;  ///< mandatory, tokens

  static constexpr const char* name = "llama3";

  bool stretches_context() const noexcept { return factor != 1; }

  maybe_error check(const frequency_ladder&) const noexcept {
    if (maybe_error wrong = detail::check_factor(factor)) return wrong;
    if (maybe_error wrong = detail::check_original_context(original_context)) return wrong;
    if (maybe_error wrong = detail::check_positive("low_freq_factor", low_freq_factor)) return wrong;
    if (maybe_error wrong = detail::check_positive("high_freq_factor", high_freq_factor)) return wrong;
    if (low_freq_factor > high_freq_factor) {
      return make_error(errc::mismatch, "low_freq_factor",
                        "is %g with high_freq_factor %g; allowed: at most high_freq_factor", low_freq_factor,
                        high_freq_factor);
    }
    return {};
  }

  frequency_ladder operator()(const frequency_ladder& ladder) const {
    raise_if(check(ladder));
    using detail::wide;
    const wide low = low_freq_factor;
    const wide high = high_freq_factor;
    const wide turns_per_frequency = detail::quotient(static_cast<wide>(original_context), detail::two_pi);
    std::vector<double> scaled(ladder.inv_freq().begin(), ladder.inv_freq().end());
    for (double& w : scaled) {
      const wide turns = detail::product(turns_per_frequency, static_cast<wide>(w));
      if (turns > high) continue;
      const double divided = detail::quotient(w, factor);
      if (turns <= low) {
        w = divided;
      } else {
        const wide m = detail::quotient(turns - low, high - low);
        w = detail::rounded(detail::blend(detail::quotient(static_cast<wide>(w), static_cast<wide>(factor)), w, m));
      }
    }
    std::string parameters = "factor " + detail::number_text(factor) + ", original " +
                             std::to_string(original_context) + ", low " + detail::number_text(low_freq_factor) +
                             ", high " + detail::number_text(high_freq_factor);
    return ladder.scaled({name, factor, stretches_context(), false, std::move(parameters)}, std::move(scaled));
  }
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_LADDER_LLAMA3_HPP
