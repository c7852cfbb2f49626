// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_LADDER_POSITION_INTERPOLATION_HPP
#define POSENC_LADDER_POSITION_INTERPOLATION_HPP

#include "parameter_checks.hpp"
#include "scaling.hpp"

namespace posenc::inline POSENC_ABI {

/// Position interpolation, also called linear scaling: every frequency divided by `factor`, which is the same as positions
/// divided by it (Chen et al. 2023, "Extending Context Window of Large Language Models via Positional Interpolation").
/// The attention factor stays. Errors: invalid_value (factor), stacked_scaling.
struct position_interpolation {
  double factor = 0;  ///< mandatory, finite and > 0; below 1 the context becomes shorter

  static constexpr const char* name = "position_interpolation";

  bool stretches_context() const noexcept { return factor != 1; }

 private:
  /// The new frequency of pair i, as a function.
  auto frequencies_of(const frequency_ladder& ladder) const noexcept {
    return [this, all = ladder.inv_freq().data()](index_t i) noexcept { return detail::quotient(all[i], factor); };
  }

 public:
  maybe_error check(const frequency_ladder& ladder) const noexcept {
    if (maybe_error wrong = detail::check_factor(factor)) return wrong;
    return detail::check_results(ladder, factor, frequencies_of(ladder));
  }

  frequency_ladder operator()(const frequency_ladder& ladder) const {
    raise_if(check(ladder));
    const auto scaled = detail::results_of(ladder, frequencies_of(ladder));
    return ladder.scaled({name, factor, stretches_context(), false, detail::parameter_text("factor", factor).text()},
                         scaled.view());
  }
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_LADDER_POSITION_INTERPOLATION_HPP
