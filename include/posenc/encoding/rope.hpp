// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_ROPE_HPP
#define POSENC_ENCODING_ROPE_HPP

#include <utility>
#include <vector>

#include "../core/error.hpp"
#include "../core/tokens.hpp"
#include "../ladder/frequency_ladder.hpp"
#include "concepts.hpp"
#include "pairing.hpp"
#include "position_checks.hpp"
#include "rope_angles.hpp"
#include "rope_kernel.hpp"

namespace posenc::inline POSENC_ABI {

/// How the rotated dimensions lie in a head, and what they read.
struct rope_options {
  posenc::pairing pairing = posenc::pairing::half;
  /// The first rotated dimension; those before it and behind the rotated ones pass through.
  index_t offset = 0;
  /// The position axis that each pair reads, one entry a pair (see mrope_sections, mrope_interleaved); empty: axis 0.
  std::vector<index_t> frequency_axis = {};
  /// Whole positions whose cosines and sines are prepared: a token that is rotated alone does not wait for them. Other
  /// positions (outside, negative, fractional) are computed when they come, as exactly. A table of a million positions is
  /// small (see angle_table), and copies of the encoding share it.
  position_range table = {};
  /// How angles are formed; other than exact only to agree with results that were computed so.
  angle_arithmetic arithmetic = angle_arithmetic::exact;
};

/// Rotary position embedding (Su et al. 2021, "RoFormer", section 3.4.2): pair i of every query and key turns by the angle
/// position * inv_freq(i), and is multiplied by the ladder's attention factor A:
///
///     (x, y)  ->  A (x cos - y sin, x sin + y cos)
///
/// so that the score of a query at a and a key at b depends on a - b only. The other dimensions of the head stay as they
/// are, without A. Angles are those of the exact product of position and frequency, both taken as they are stored:
/// |error| of a cosine or sine <= max(1 ulp of float, 2^-36) up to positions of 2^31, before it is rounded to float (with
/// float and 16-bit data) or double and multiplied by A. In double it is at most 1e-15, with a table or without.
class rope {
 public:
  using acts_on = places<on_queries_keys>;

  /// Queries and keys turn alike, so that both can share a token's cosines and sines.
  static constexpr bool rotation_depends_on_role = false;

  /// Rotates ladder.rotary_dim() dimensions. Errors: those of `check(ladder, options)`.
  explicit rope(frequency_ladder ladder, rope_options options = {})
      : ladder_(std::move(ladder)),
        options_((raise_if(check(ladder_, options)), std::move(options))),
        angles_(ladder_, options_.frequency_axis, options_.table, options_.arithmetic) {
    for (const index_t axis : options_.frequency_axis) last_axis_ = axis > last_axis_ ? axis : last_axis_;
  }

  /// The error that the constructor would raise, as a value: invalid_value (offset < 0, a position axis that cannot be),
  /// invalid_shape (frequency_axis neither empty nor one entry a pair, a table of fewer than 0 positions), mismatch (a table
  /// without exact angles).
  static maybe_error check(const frequency_ladder& ladder, const rope_options& options = {}) noexcept {
    if (maybe_error e = detail::check_rotary_offset(options.offset)) return e;
    const auto entries = static_cast<index_t>(options.frequency_axis.size());
    if (entries != 0 && entries != ladder.size())
      return make_error(errc::invalid_shape, "frequency_axis",
                        "has %td entries for a ladder of %td pairs; allowed: one a pair, or none", entries,
                        ladder.size());
    for (index_t i = 0; i < entries; ++i) {
      const index_t axis = options.frequency_axis[static_cast<std::size_t>(i)];
      if (axis < 0 || axis >= max_position_axes)
        return make_error(errc::invalid_value, "frequency_axis", "[%td] is %td; allowed: 0 to %td", i, axis,
                          max_position_axes - 1);
    }
    return detail::rope_angles::check(ladder, options.table, options.arithmetic);
  }

  const frequency_ladder& ladder() const noexcept { return ladder_; }
  const rope_options& options() const noexcept { return options_; }

  /// Equal rotations: keys that were turned by one fit queries that are turned by the other, with a table or without.
  friend bool operator==(const rope& a, const rope& b) noexcept {
    return a.options_.pairing == b.options_.pairing && a.options_.offset == b.options_.offset &&
           a.options_.arithmetic == b.options_.arithmetic && a.ladder_ == b.ladder_ && a.same_axes(b);
  }

  /// Errors: invalid_shape (a head narrower than offset + rotary_dim), mismatch (tokens without an axis that is read).
  maybe_error check(const encoding_use& use) const noexcept {
    const dim_range turned = rotated_dims({});
    const auto reads = [&](const token_view* tokens) { return tokens == nullptr || last_axis_ < tokens->axes(); };
    if (turned.end <= use.dim && reads(use.q_tokens) && reads(use.k_tokens))
      return {};  // decoding does not wait for texts
    if (turned.end > use.dim)
      return make_error(
          errc::invalid_shape, "encoding",
          "rope turns %td dimensions from offset %td on and heads have %td; allowed: heads of %td and more",
          ladder_.rotary_dim(), turned.begin, use.dim, turned.end);
    return detail::check_axis("rope", last_axis_, use);
  }

  dim_range rotated_dims(rotation_shape) const noexcept {
    return {options_.offset, options_.offset + ladder_.rotary_dim()};
  }

  /// All cosines, then all sines.
  index_t rotation_size(rotation_shape) const noexcept { return 2 * ladder_.size(); }

  template <class Real>
  void prepare_rotation(rotation_shape, position_span position, rotation_use use, Real* row) const noexcept {
    // The rotation by -angle is the transposed one.
    const double a = ladder_.attention_factor();
    angles_.write(position, use.op == rotation_op::rotate ? 1.0 : -1.0, use.op == rotation_op::inverse ? 1 / a : a, row,
                  row + ladder_.size());
  }

  template <class Real>
  void apply_rotation(rotation_shape shape, const Real* row, index_t /*kv_head*/, Real* x) const noexcept {
    rotate_heads(shape, row, 1, x, 0, x, 0);
  }

  /// `heads` heads of one token at once, `in_stride` and `out_stride` elements apart, of any element type: what `rotate`
  /// prefers to apply_rotation where an encoding has it. `out` is `in`, or other memory, to which the dimensions that do
  /// not turn are copied. Streaming stores are ordered by the caller (simd::streaming_fence). `next` and
  /// `next_out` are where the heads of the next token begin, for memory to be ready.
  template <class Real, class In, class Out>
  void rotate_heads(rotation_shape shape, const Real* row, index_t heads, const In* in, index_t in_stride, Out* out,
                    index_t out_stride, store_mode store = store_mode::cached, const In* next = nullptr,
                    Out* next_out = nullptr) const noexcept {
    detail::turn_rotary(options_.pairing, rotated_dims(shape), shape.head_dim, row, heads, in, in_stride, out,
                        out_stride, store, next, next_out);
  }

 private:
  bool same_axes(const rope& other) const noexcept {
    const auto axis_of = [](const rope& e, index_t i) {
      return e.options_.frequency_axis.empty() ? index_t{0} : e.options_.frequency_axis[static_cast<std::size_t>(i)];
    };
    for (index_t i = 0; i < ladder_.size(); ++i)
      if (axis_of(*this, i) != axis_of(other, i)) return false;
    return true;
  }

  frequency_ladder ladder_;
  rope_options options_;
  index_t last_axis_ = 0;
  detail::rope_angles angles_;
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_ROPE_HPP
