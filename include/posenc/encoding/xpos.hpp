// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_XPOS_HPP
#define POSENC_ENCODING_XPOS_HPP

#include <cmath>
#include <utility>

#include "../core/error.hpp"
#include "../core/finite.hpp"
#include "../core/number_list.hpp"
#include "concepts.hpp"
#include "position_checks.hpp"
#include "rope.hpp"

namespace posenc::inline POSENC_ABI {

struct xpos_options {
  posenc::pairing pairing = posenc::pairing::half;
  index_t offset = 0;         ///< the first rotated dimension
  double scale_base = 512;    ///< positions over which pair i shrinks by zeta_i
  double gamma = 0.4;         ///< of zeta_i; > 0, larger is weaker
  double center = 0;          ///< the position at which nothing is scaled: one for all queries and keys of a model
  position_range table = {};  ///< as in rope_options
};

/// Extrapolatable position embedding (Sun et al. 2022, "A length-extrapolatable transformer", section 3): RoPE, and pair i
/// of a query at t is multiplied by zeta_i^((t - center) / scale_base), of a key by its inverse,
///
///     zeta_i = (2i / rotary_dim + gamma) / (1 + gamma),
///
/// so that a score shrinks by zeta_i^((t_query - t_key) / scale_base). Meant for causal attention: later keys would grow.
/// The centre only keeps the numbers small; it cancels in scores, as long as it stays what it was when keys were cached.
/// All of it is in `rotate` (role tells queries from keys and must be given); `rotate_transposed` keeps the factor and turns
/// back, `unrotate` divides by it.
class xpos {
 public:
  using acts_on = places<on_queries_keys>;
  static constexpr bool rotation_depends_on_role = true;

  /// Errors: those of `check(ladder, options)`.
  explicit xpos(frequency_ladder ladder, xpos_options options = {})
      : options_((raise_if(check(ladder, options)), options)),
        rope_(std::move(ladder), {.pairing = options.pairing, .offset = options.offset, .table = options.table}) {
    const index_t pairs = rope_.ladder().size();
    for (index_t i = 0; i < pairs; ++i) {
      const double along = static_cast<double>(i) / static_cast<double>(pairs);
      log2_zeta_.push_back(std::log2((along + options_.gamma) / (1 + options_.gamma)));
    }
  }

  /// The error that the constructor would raise, as a value: that of rope, and invalid_value (scale_base, gamma, center).
  static maybe_error check(const frequency_ladder& ladder, const xpos_options& options = {}) noexcept {
    const auto positive = [](const double& x) { return detail::is_finite(x) && x > 0; };
    if (!positive(options.scale_base))
      return make_error(errc::invalid_value, "scale_base", "is %g; allowed: a finite number > 0", options.scale_base);
    if (!positive(options.gamma))
      return make_error(errc::invalid_value, "gamma", "is %g; allowed: a finite number > 0", options.gamma);
    if (!detail::is_position(options.center))
      return make_error(errc::invalid_value, "center", "is %g; allowed: a finite number within +-2^53", options.center);
    if (maybe_error e = detail::check_rotary_offset(options.offset)) return e;
    return detail::rope_angles::check(ladder, options.table, angle_arithmetic::exact);
  }

  const frequency_ladder& ladder() const noexcept { return rope_.ladder(); }
  const xpos_options& options() const noexcept { return options_; }

  /// Equal rotations and factors: keys that were turned by one fit queries that are turned by the other.
  friend bool operator==(const xpos& a, const xpos& b) noexcept {
    return a.rope_ == b.rope_ && a.options_.scale_base == b.options_.scale_base &&
           a.options_.gamma == b.options_.gamma && a.options_.center == b.options_.center;
  }

  /// zeta_i of pair i < ladder().size().
  double zeta(index_t i) const noexcept { return std::exp2(log2_zeta_[static_cast<std::size_t>(i)]); }

  /// How far from the centre positions may be: there the strongest factor is 2^+-100. 16-bit elements overflow before.
  double reach() const noexcept { return largest_exponent * options_.scale_base / -log2_zeta_[0]; }

  /// Errors: those of rope, and out_of_range (a position farther from the centre than `reach`).
  maybe_error check(const encoding_use& use) const noexcept {
    if (maybe_error e = rope_.check(use)) return e;
    const double most = reach();
    return detail::for_each_side(use, [&](const char* side, const token_view& tokens) -> maybe_error {
      const auto found = detail::find_position(
          tokens, 0, [&](double p, index_t, index_t) { return std::fabs(p - options_.center) > most; });
      if (!found) return {};
      return make_error(
          errc::out_of_range, side,
          "has the position %.17g at token %td of row %td; xpos with the center %g and scale_base %g takes "
          "positions within %g of it: choose a center in the middle of the text, or a larger scale_base",
          found.position, found.token, found.row, options_.center, options_.scale_base, most);
    });
  }

  dim_range rotated_dims(rotation_shape shape) const noexcept { return rope_.rotated_dims(shape); }

  /// All cosines, then all sines.
  index_t rotation_size(rotation_shape shape) const noexcept { return rope_.rotation_size(shape); }

  template <class Real>
  void prepare_rotation(rotation_shape shape, position_span position, rotation_use use, Real* row) const noexcept {
    rope_.prepare_rotation(shape, position, use, row);
    const bool grows = (use.role == token_role::key) != (use.op == rotation_op::inverse);
    const double p = (position[0] - options_.center) / options_.scale_base, exponent = grows ? -p : p;
    const index_t pairs = rope_.ladder().size();
    for (index_t i = 0; i < pairs; ++i) {
      const double factor = std::exp2(exponent * log2_zeta_[static_cast<std::size_t>(i)]);
      row[i] = static_cast<Real>(static_cast<double>(row[i]) * factor);
      row[pairs + i] = static_cast<Real>(static_cast<double>(row[pairs + i]) * factor);
    }
  }

  template <class Real>
  void apply_rotation(rotation_shape shape, const Real* row, index_t kv_head, Real* x) const noexcept {
    rope_.apply_rotation(shape, row, kv_head, x);
  }

  template <class Real, class In, class Out>
  void rotate_heads(rotation_shape shape, const Real* row, index_t heads, const In* in, index_t in_stride, Out* out,
                    index_t out_stride, store_mode store = store_mode::cached, const In* next = nullptr,
                    Out* next_out = nullptr) const noexcept {
    rope_.rotate_heads(shape, row, heads, in, in_stride, out, out_stride, store, next, next_out);
  }

 private:
  static constexpr double largest_exponent = 100;

  xpos_options options_;
  rope rope_;
  detail::number_list<double> log2_zeta_;
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_XPOS_HPP
