// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_QUERY_TEMPERATURE_HPP
#define POSENC_ENCODING_QUERY_TEMPERATURE_HPP

#include <cmath>

#include "../core/error.hpp"
#include "../core/finite.hpp"
#include "concepts.hpp"
#include "position_checks.hpp"
#include "rotated_dims.hpp"

namespace posenc::inline POSENC_ABI {

/// Makes attention sharper at far positions: queries are multiplied by
///
///   1 + coefficient * ln(1 + floor((position + shift) / length))
///
/// and keys stay as they are. Llama 4's layers without rotation have coefficient 0.1, length 8192 and shift 1 (the
/// defaults); Mistral's have shift 0 and length the trained context. Goes with a rotation in `combine`, in any order.
/// Fields are finite, coefficient >= 0, length > 0, and a query's position + shift >= 0: else invalid_value.
struct query_temperature {
  using acts_on = places<on_queries_keys>;

  double coefficient = 0.1;
  double length = 8192;  ///< positions a step
  double shift = 1;
  index_t axis = 0;  ///< the position axis that is read

  /// What the query at a position is multiplied by.
  double factor(double position) const noexcept {
    const double from_start = position + shift;
    if (!(from_start >= length)) return 1;
    double steps = std::floor(from_start / length);
    // The quotient may have been rounded across a whole number; products with whole numbers tell.
    if ((steps + 1) * length <= from_start) steps += 1;
    if (steps * length > from_start) steps -= 1;
    return 1 + coefficient * std::log1p(steps);
  }

  index_t rotation_size(rotation_shape) const noexcept { return 1; }

  template <class Real>
  void prepare_rotation(rotation_shape, position_span position, rotation_use use, Real* row) const {
    const double f = use.role == token_role::query ? factor(position[static_cast<std::size_t>(axis)]) : 1;
    row[0] = static_cast<Real>(use.op == rotation_op::inverse ? 1 / f : f);
  }

  template <class Real>
  void apply_rotation(rotation_shape shape, const Real* row, index_t, Real* x) const {
    if (row[0] == Real(1)) return;
    for (index_t i = 0; i < shape.head_dim; ++i) x[i] *= row[0];
  }

  /// It scales and turns nothing.
  dim_range rotated_dims(rotation_shape) const noexcept { return {}; }

  maybe_error check(const encoding_use& use) const noexcept {
    if (!detail::is_finite(coefficient) || coefficient < 0 || coefficient > 1e18)
      return make_error(errc::invalid_value, "coefficient", "is %g; allowed: a finite number >= 0 (up to 1e18)",
                        coefficient);
    if (!detail::is_finite(length) || length < 1e-100)
      return make_error(errc::invalid_value, "length", "is %g; allowed: a finite number > 0 (1e-100 and more)", length);
    if (!detail::is_finite(shift))
      return make_error(errc::invalid_value, "shift", "is %g; allowed: a finite number", shift);
    if (maybe_error e = detail::check_axis("query_temperature", axis, use)) return e;
    if (use.q_tokens == nullptr) return {};
    const token_view& tokens = *use.q_tokens;
    // Nothing reads the positions of padding.
    const auto found = detail::find_position(tokens, axis, [&](double p, index_t row, index_t token) {
      return p + shift < 0 && tokens.document(row, token) != -1;
    });
    if (!found) return {};
    return make_error(errc::invalid_value, use.k_tokens == nullptr ? "tokens" : "tokens.q",
                      "has the position %g at token %td of row %td; allowed by query_temperature: -shift = %g and more",
                      found.position, found.token, found.row, -shift);
  }
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_QUERY_TEMPERATURE_HPP
