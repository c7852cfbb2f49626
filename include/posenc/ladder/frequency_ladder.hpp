// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_LADDER_FREQUENCY_LADDER_HPP
#define POSENC_LADDER_FREQUENCY_LADDER_HPP

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "../core/error.hpp"
#include "../core/finite.hpp"
#include "../core/number_list.hpp"
#include "../core/platform.hpp"
#include "arithmetic.hpp"

namespace posenc::inline POSENC_ABI {

/// How a ladder is made, apart from its width.
struct ladder_options {
  /// Also called rope_theta. Any finite number > 0 (1e-100 to 1e100); below 1 the frequencies rise.
  double base = 10000.0;
};

/// One step in the history of a ladder.
struct scaling_record {
  short_text name = {};            ///< as the scaling's type is called, or "custom"
  double factor = 0;               ///< the scaling's factor; 0 where it has none
  bool stretches_context = false;  ///< whether it makes the context longer (or shorter): a second one is an error
  bool stacked = false;            ///< whether it came on top of another such step, with the caller's consent
  short_text parameters = {};      ///< for people, such as "factor 4, original 4096"

  friend bool operator==(const scaling_record&, const scaling_record&) = default;
};

namespace detail {
struct ladder_access;
}

/// The frequencies of a rotary encoding: pair i of a head turns by position * inv_freq(i) radians.
///
/// inv_freq(i) = base^(-2i / rotary_dim) for i = 0 .. rotary_dim/2 - 1 (Su et al. 2021, "RoFormer", section 3.2.2),
/// computed in long double and rounded once. A scaling makes a new ladder out of a ladder: see scaling.hpp. Beside the
/// frequencies a ladder holds the attention factor, which multiplies cos and sin and so the rotated dimensions only
/// (scores of rotated dimensions get its square), and the history of how it came about.
///
/// A value: copies are independent, nothing refers to anything else.
class frequency_ladder {
 public:
  /// `rotary_dim` is the number of rotated dimensions: even and > 0.
  /// Errors: invalid_shape (rotary_dim), invalid_value (base).
  explicit frequency_ladder(index_t rotary_dim, const ladder_options& options = {}) {
    raise_if(check(rotary_dim, options));
    made_with_base_ = base_ = options.base;
    inv_freq_.extend(static_cast<std::size_t>(rotary_dim / 2));
    for (std::size_t i = 0; i < inv_freq_.size(); ++i) {
      const detail::wide exponent =
          detail::quotient(static_cast<detail::wide>(2 * i), static_cast<detail::wide>(rotary_dim));
      inv_freq_[i] = detail::rounded(detail::power(detail::widened(options.base), -exponent));
    }
  }

  /// The error that the constructor would raise for these arguments, as a value.
  static maybe_error check(index_t rotary_dim, const ladder_options& options = {}) noexcept {
    constexpr index_t largest = index_t{1} << 24;
    if (rotary_dim <= 0 || rotary_dim % 2 != 0 || rotary_dim > largest) {
      return make_error(errc::invalid_shape, "rotary_dim",
                        "is %lld; allowed: an even number > 0 (dimensions turn in pairs), up to 2^24",
                        static_cast<long long>(rotary_dim));
    }
    if (!detail::is_finite(options.base) || options.base < 1e-100 || options.base > 1e100) {
      return make_error(errc::invalid_value, "base", "is %g; allowed: a finite number > 0 (1e-100 to 1e100)",
                        options.base);
    }
    return {};
  }

  /// A ladder of the caller's own frequencies, in radians per position, one a pair.
  ///
  /// Each is finite and >= 0; 0 is a pair that never turns. Negative ones are an error: they are the frequencies of the
  /// inverse rotation, and more often a slip. `base` is for scalings that ask for one (YaRN); 0 means that there is none.
  /// Errors: invalid_shape (no frequencies), invalid_layout (null), invalid_value.
  static frequency_ladder from_inv_freq(std::span<const double> inv_freq, const double& attention_factor = 1,
                                        const double& base = 0) {
    raise_if(check_inv_freq(inv_freq, attention_factor, base));
    frequency_ladder result;
    result.inv_freq_.append(inv_freq.data(), inv_freq.size());
    result.attention_factor_ = attention_factor;
    result.base_ = base;
    result.drop_signs_of_zeros();
    return result;
  }

  /// The error that `from_inv_freq` would raise for these arguments, as a value.
  static maybe_error check_inv_freq(std::span<const double> inv_freq, const double& attention_factor = 1,
                                    const double& base = 0) noexcept {
    if (inv_freq.empty()) return make_error(errc::invalid_shape, "inv_freq", "is empty; allowed: one number a pair");
    if (inv_freq.data() == nullptr) {
      return make_error(errc::invalid_layout, "inv_freq", "is null with %lld elements; allowed: a valid address",
                        static_cast<long long>(inv_freq.size()));
    }
    for (std::size_t i = 0; i < inv_freq.size(); ++i) {
      if (!detail::is_finite(inv_freq[i]) || inv_freq[i] < 0) {
        return make_error(errc::invalid_value, "inv_freq", "[%lld] is %g; allowed: finite numbers >= 0",
                          static_cast<long long>(i), inv_freq[i]);
      }
    }
    if (!detail::is_finite(attention_factor) || attention_factor <= 0) {
      return make_error(errc::invalid_value, "attention_factor", "is %g; allowed: a finite number > 0",
                        attention_factor);
    }
    if (!detail::is_finite(base) || base < 0) {
      return make_error(errc::invalid_value, "base", "is %g; allowed: a finite number > 0, or 0 for none", base);
    }
    return {};
  }

  /// Rotated dimensions: two a pair.
  index_t rotary_dim() const noexcept { return 2 * size(); }

  /// Pairs.
  index_t size() const noexcept { return static_cast<index_t>(inv_freq_.size()); }

  /// Radians per position, [size()].
  std::span<const double> inv_freq() const noexcept { return inv_freq_.view(); }

  /// Radians per position of pair i. Errors: out_of_range.
  double inv_freq(index_t i) const {
    if (i < 0 || i >= size()) {
      raise(make_error(errc::out_of_range, "i", "is %lld; allowed: 0 to %lld", static_cast<long long>(i),
                       static_cast<long long>(size() - 1)));
    }
    return inv_freq_[static_cast<std::size_t>(i)];
  }

  /// Positions per turn of pair i: 2 pi / inv_freq(i); the largest double for a pair that never turns.
  /// Errors: out_of_range.
  double wavelength(index_t i) const {
    constexpr double longest = (std::numeric_limits<double>::max)();
    const double w = inv_freq(i);
    if (w < 1e-300) return longest;
    return detail::rounded(detail::quotient(detail::two_pi, static_cast<detail::wide>(w)));
  }

  /// What cos and sin are multiplied by.
  double attention_factor() const noexcept { return attention_factor_; }

  /// The nominal base: what the ladder was made with, or what a scaling that works by changing the base made of it (then
  /// inv_freq(i) = base^(-2i / rotary_dim) holds for the new one, unless other scalings took part). YaRN reads it to turn
  /// wavelengths into pair numbers. 0: there is none, the frequencies are the caller's own.
  double base() const noexcept { return base_; }

  /// The scalings that made this ladder, first to last.
  std::span<const scaling_record> provenance() const noexcept { return provenance_.view(); }

  /// For people: "base 10000 | yarn(factor 4, original 4096)".
  std::string describe() const {
    const bool made = made_with_base_ > 0;
    short_text begin(made ? "base " : "own frequencies (");
    detail::append_number(begin, made ? made_with_base_ : static_cast<double>(size()));
    if (!made) begin.append(" pairs)");
    std::string text(begin.c_str());
    for (const scaling_record& step : provenance_) {
      text.append(step.stacked ? " | stacked " : " | ").append(step.name.c_str());
      if (!step.parameters.empty()) text.append("(").append(step.parameters.c_str()).append(")");
    }
    return text;
  }

  /// The same ladder with other frequencies, as many as before: what a scaling of one's own returns.
  /// Errors: as from_inv_freq, and invalid_shape for another number of pairs.
  frequency_ladder with_inv_freq(std::span<const double> inv_freq) const {
    return replaced(inv_freq, attention_factor_, base_);
  }

  /// The same ladder with another attention factor. Errors: invalid_value.
  frequency_ladder with_attention_factor(const double& attention_factor) const {
    return replaced(inv_freq(), attention_factor, base_);
  }

  /// What a scaling returns that wants its own line in the history: new frequencies, as many as before, the attention
  /// factor and the base multiplied. The record's `stacked` is filled in here.
  /// Errors: stacked_scaling when the record stretches the context and an earlier one did; else as with_inv_freq.
  frequency_ladder scaled(const scaling_record& record, std::span<const double> inv_freq,
                          const double& attention_multiplier = 1, const double& base_multiplier = 1) const {
    raise_if(check_stacking(record.stretches_context, record.name.c_str(), record.factor));
    frequency_ladder result = replaced(inv_freq, detail::product(attention_factor_, attention_multiplier),
                                       detail::product(base_, base_multiplier));
    result.append(record);
    return result;
  }

  /// Equal: the same frequencies and the same attention factor, bit for bit, so that keys rotated by one fit queries
  /// rotated by the other. History and nominal base do not count.
  friend bool operator==(const frequency_ladder& a, const frequency_ladder& b) noexcept {
    bool equal = a.size() == b.size() && same_bits(a.attention_factor_, b.attention_factor_);
    for (std::size_t i = 0; equal && i < a.inv_freq_.size(); ++i) equal = same_bits(a.inv_freq_[i], b.inv_freq_[i]);
    return equal;
  }

 private:
  friend struct detail::ladder_access;

  frequency_ladder() = default;

  static bool same_bits(const double& a, const double& b) noexcept {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
  }

  // -0 is 0 here: equality is by bits.
  void drop_signs_of_zeros() noexcept {
    for (double& w : inv_freq_) w = std::bit_cast<double>(std::bit_cast<std::uint64_t>(w) & 0x7fff'ffff'ffff'ffff);
  }

  frequency_ladder replaced(std::span<const double> inv_freq, const double& attention_factor,
                            const double& base) const {
    if (inv_freq.size() != inv_freq_.size()) {
      raise(make_error(errc::invalid_shape, "inv_freq", "has %lld elements; allowed: %lld, one a pair of this ladder",
                       static_cast<long long>(inv_freq.size()), static_cast<long long>(size())));
    }
    raise_if(check_inv_freq(inv_freq, attention_factor, base));
    frequency_ladder result(*this);
    result.inv_freq_ = detail::number_list<double>(inv_freq.data(), inv_freq.size());
    result.attention_factor_ = attention_factor;
    result.base_ = base;
    result.drop_signs_of_zeros();
    return result;
  }

  const scaling_record* first_stretch() const noexcept {
    for (const scaling_record& step : provenance_) {
      if (step.stretches_context) return &step;
    }
    return nullptr;
  }

  maybe_error check_stacking(bool stretches, const char* name, const double& factor) const noexcept {
    const scaling_record* earlier = first_stretch();
    if (!stretches || stacking_permitted_ || earlier == nullptr) return {};
    return stacking_error(earlier->name.c_str(), earlier->factor, name, factor);
  }

  static error stacking_error(const char* earlier, const double& earlier_factor, const char* later,
                              const double& later_factor) noexcept {
    char count[96] = "";
    if (earlier_factor > 0 && later_factor > 0) {
      std::snprintf(count, sizeof count, " (%g times %g is %g)", earlier_factor, later_factor,
                    earlier_factor * later_factor);
    }
    return make_error(
        errc::stacked_scaling, later,
        "the ladder is already stretched by %s; %s on top would count the extension of the context twice%s, "
        "and neighbouring positions could hardly be told apart. Keep one of the two, with the whole factor; "
        "if the model was really trained with both, write stacked(...) around %s",
        earlier, later, count, later);
  }

  void append(scaling_record record) {
    record.stacked = record.stretches_context && first_stretch() != nullptr;
    if (record.stretches_context) stacking_permitted_ = false;
    provenance_.push_back(record);
  }

  detail::number_list<double> inv_freq_;
  double attention_factor_ = 1;
  double base_ = 0;
  double made_with_base_ = 0;
  bool stacking_permitted_ = false;  // inside stacked(...): holds for the next stretch
  detail::number_list<scaling_record> provenance_;
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_LADDER_FREQUENCY_LADDER_HPP
