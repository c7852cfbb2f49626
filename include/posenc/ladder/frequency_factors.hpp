// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_LADDER_FREQUENCY_FACTORS_HPP
#define POSENC_LADDER_FREQUENCY_FACTORS_HPP

#include <algorithm>
#include <utility>
#include <vector>

#include "../core/number_list.hpp"
#include "parameter_checks.hpp"
#include "scaling.hpp"

namespace posenc::inline POSENC_ABI {

/// A divisor of one's own for every pair, as model files store them: frequency i is divided by factors[i].
///
/// It counts as a stretched context as soon as one factor is not 1, so YaRN on top of it needs `stacked(...)`; the factors
/// then act first, and YaRN's ramp, which goes by pair numbers, does not see them. The attention factor stays.
/// Errors: invalid_shape (as many factors as pairs), invalid_value, stacked_scaling.
struct frequency_factors {
  std::vector<double> factors = {};  ///< [pairs], each finite and > 0

  static constexpr const char* name = "frequency_factors";

  bool stretches_context() const noexcept {
    for (const double factor : factors) {
      if (factor != 1) return true;
    }
    return false;
  }

  maybe_error check(const frequency_ladder& ladder) const noexcept {
    if (static_cast<index_t>(factors.size()) != ladder.size()) {
      return make_error(errc::invalid_shape, "factors", "has %lld elements; allowed: %lld, one a pair of the ladder",
                        static_cast<long long>(factors.size()), static_cast<long long>(ladder.size()));
    }
    for (std::size_t i = 0; i < factors.size(); ++i) {
      if (!detail::is_parameter(factors[i])) {
        return make_error(errc::invalid_value, "factors", "[%lld] is %g; allowed: finite numbers > 0 (1e-50 to 1e50)",
                          static_cast<long long>(i), factors[i]);
      }
    }
    for (std::size_t i = 0; i < factors.size(); ++i) {
      const double divided = detail::quotient(ladder.inv_freq()[i], factors[i]);
      const auto pair = static_cast<index_t>(i);
      if (maybe_error wrong = detail::check_result(ladder, "factors", factors[i], pair, divided)) return wrong;
    }
    return {};
  }

  frequency_ladder operator()(const frequency_ladder& ladder) const {
    raise_if(check(ladder));
    detail::number_list<double> scaled(ladder.inv_freq().data(), ladder.inv_freq().size());
    double smallest = factors[0], largest = factors[0];
    for (std::size_t i = 0; i < scaled.size(); ++i) {
      scaled[i] = detail::quotient(scaled[i], factors[i]);
      smallest = (std::min)(smallest, factors[i]);
      largest = (std::max)(largest, factors[i]);
    }
    short_text parameters;
    detail::append_number(parameters, smallest);
    parameters.append(" to ");
    detail::append_number(parameters, largest);
    return ladder.scaled({name, largest, stretches_context(), false, parameters}, scaled.view());
  }
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_LADDER_FREQUENCY_FACTORS_HPP
