// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_LADDER_POSITION_INTERPOLATION_HPP
#define POSENC_LADDER_POSITION_INTERPOLATION_HPP

#include <string>
#include <utility>
#include <vector>

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

  maybe_error check(const frequency_ladder&) const noexcept { return detail::check_factor(factor); }

  frequency_ladder operator()(const frequency_ladder& ladder) const {
    raise_if(check(ladder));
    std::vector<double> scaled(ladder.inv_freq().begin(), ladder.inv_freq().end());
    for (double& w : scaled) w = detail::quotient(w, factor);
    return ladder.scaled({name, factor, stretches_context(), false, "factor " + detail::number_text(factor)},
                         std::move(scaled));
  }
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_LADDER_POSITION_INTERPOLATION_HPP
