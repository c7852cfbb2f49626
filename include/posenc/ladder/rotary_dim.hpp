// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_LADDER_ROTARY_DIM_HPP
#define POSENC_LADDER_ROTARY_DIM_HPP

#include "../core/error.hpp"
#include "../core/finite.hpp"
#include "../core/platform.hpp"
#include "arithmetic.hpp"

namespace posenc::inline POSENC_ABI {

/// The error that `partial_rotary_dim` would raise for these arguments, as a value.
inline maybe_error check_partial_rotary_dim(index_t head_dim, const double& partial_rotary_factor) noexcept {
  if (head_dim <= 0) {
    return make_error(errc::invalid_shape, "head_dim", "is %lld; allowed: a number > 0",
                      static_cast<long long>(head_dim));
  }
  if (!detail::is_finite(partial_rotary_factor) || partial_rotary_factor <= 0 || partial_rotary_factor > 1) {
    return make_error(errc::invalid_value, "partial_rotary_factor",
                      "is %g; allowed: above 0, up to 1 (a head that does not turn at all is nope)",
                      partial_rotary_factor);
  }
  const double width = detail::product(static_cast<double>(head_dim), partial_rotary_factor);
  const index_t rotary_dim = static_cast<index_t>(width);
  if (rotary_dim <= 0 || rotary_dim % 2 != 0) {
    return make_error(
        errc::invalid_shape, "partial_rotary_factor",
        "is %g, which makes %lld of %lld dimensions turn; allowed: an even number > 0 (dimensions turn in "
        "pairs), so give another factor or the rotary width itself",
        partial_rotary_factor, static_cast<long long>(rotary_dim), static_cast<long long>(head_dim));
  }
  return {};
}

/// How many of a head's dimensions turn when a checkpoint gives a fraction: head_dim * partial_rotary_factor, cut to a
/// whole number as checkpoints' own code cuts it. An odd or zero result is an error and never rounded to a neighbour.
/// Errors: invalid_shape (head_dim, partial_rotary_factor), invalid_value (partial_rotary_factor).
inline index_t partial_rotary_dim(index_t head_dim, const double& partial_rotary_factor) {
  raise_if(check_partial_rotary_dim(head_dim, partial_rotary_factor));
  return static_cast<index_t>(detail::product(static_cast<double>(head_dim), partial_rotary_factor));
}

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_LADDER_ROTARY_DIM_HPP
