// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_LADDER_LLAMA3_HPP
#define POSENC_LADDER_LLAMA3_HPP

#include <utility>

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

 private:
  /// The new frequency of pair i, as a function.
  auto frequencies_of(const frequency_ladder& ladder) const noexcept {
    using detail::wide;
    const wide turns_per_frequency = detail::quotient(static_cast<wide>(original_context), detail::two_pi);
    return [this, turns_per_frequency, all = ladder.inv_freq().data()](index_t i) noexcept {
      const wide low = detail::widened(low_freq_factor), high = detail::widened(high_freq_factor);
      const double w = all[i];
      const wide turns = detail::product(turns_per_frequency, static_cast<wide>(w));
      if (turns > high) return w;
      if (turns <= low) return detail::quotient(w, factor);
      const wide m = detail::quotient(turns - low, high - low);
      return detail::rounded(
          detail::blend(detail::quotient(detail::widened(w), detail::widened(factor)), detail::widened(w), m));
    };
  }

 public:
  maybe_error check(const frequency_ladder& ladder) const noexcept {
    if (maybe_error wrong = detail::check_factor(factor)) return wrong;
    if (maybe_error wrong = detail::check_original_context(original_context)) return wrong;
    if (maybe_error wrong = detail::check_positive("low_freq_factor", low_freq_factor)) return wrong;
    if (maybe_error wrong = detail::check_positive("high_freq_factor", high_freq_factor)) return wrong;
    if (low_freq_factor > high_freq_factor) {
      return make_error(errc::mismatch, "low_freq_factor",
                        "is %g with high_freq_factor %g; allowed: at most high_freq_factor", low_freq_factor,
                        high_freq_factor);
    }
    return detail::check_results(ladder, factor, frequencies_of(ladder));
  }

  frequency_ladder operator()(const frequency_ladder& ladder) const {
    raise_if(check(ladder));
    const auto scaled = detail::results_of(ladder, frequencies_of(ladder));
    detail::parameter_text parameters("factor", factor);
    parameters.add("original", static_cast<double>(original_context));
    parameters.add("low", low_freq_factor).add("high", high_freq_factor);
    return ladder.scaled({name, factor, stretches_context(), false, parameters.text()}, scaled.view());
  }
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_LADDER_LLAMA3_HPP
