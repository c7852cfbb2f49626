// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_LADDER_PARAMETER_CHECKS_HPP
#define POSENC_LADDER_PARAMETER_CHECKS_HPP

#include "../core/error.hpp"
#include "../core/finite.hpp"
#include "../core/platform.hpp"

namespace posenc::inline POSENC_ABI::detail {

/// Above 0, and far enough from the ends of double that a few such numbers multiplied and divided stay inside.
inline bool is_parameter(const double& x) noexcept { return is_finite(x) && x >= 1e-50 && x <= 1e50; }

/// The check of every scaling's factor; 0 is what it holds until it is given.
inline maybe_error check_factor(const double& factor) noexcept {
  if (is_parameter(factor)) return {};
  if (is_zero(factor)) {
    return make_error(errc::invalid_value, "factor",
                      "not given, or 0; allowed: a finite number > 0 (4 makes the context four times as long)");
  }
  return make_error(errc::invalid_value, "factor", "is %g; allowed: a finite number > 0 (1e-50 to 1e50)", factor);
}

/// The check of the context that a model was trained with; 0 is what it holds until it is given.
inline maybe_error check_original_context(index_t original_context) noexcept {
  if (original_context > 0) return {};
  if (original_context == 0) {
    return make_error(
        errc::invalid_value, "original_context",
        "not given, or 0; allowed: the length > 0 that the model was trained with before it was stretched");
  }
  return make_error(errc::invalid_value, "original_context", "is %lld; allowed: a number > 0",
                    static_cast<long long>(original_context));
}

/// A parameter that is finite and > 0.
inline maybe_error check_positive(const char* name, const double& x) noexcept {
  if (is_parameter(x)) return {};
  return make_error(errc::invalid_value, name, "is %g; allowed: a finite number > 0 (1e-50 to 1e50)", x);
}

/// A parameter that is finite and >= 0.
inline maybe_error check_not_negative(const char* name, const double& x) noexcept {
  if (is_finite(x) && x >= 0) return {};
  return make_error(errc::invalid_value, name, "is %g; allowed: a finite number >= 0", x);
}

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_LADDER_PARAMETER_CHECKS_HPP
