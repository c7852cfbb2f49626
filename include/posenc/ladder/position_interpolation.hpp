// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_LADDER_POSITION_INTERPOLATION_HPP
#define POSENC_LADDER_POSITION_INTERPOLATION_HPP

#include "../core/number_list.hpp"
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

  maybe_error check(const frequency_ladder& ladder) const noexcept {
    if (maybe_error wrong = detail::check_factor(factor)) return wrong;
    const double* const w = ladder.inv_freq().data();
    return detail::check_results(ladder, factor, [&](index_t i) { return detail::quotient(w[i], factor); });
  }

  frequency_ladder operator()(const frequency_ladder& ladder) const {
    raise_if(check(ladder));
    detail::number_list<double> scaled(ladder.inv_freq().data(), ladder.inv_freq().size());
    for (double& w : scaled) w = detail::quotient(w, factor);
    return ladder.scaled({name, factor, stretches_context(), false, detail::parameter_text("factor", factor).text()},
                         scaled.view());
  }
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_LADDER_POSITION_INTERPOLATION_HPP
