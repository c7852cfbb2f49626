// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_LADDER_SCALING_HPP
#define POSENC_LADDER_SCALING_HPP

#include <algorithm>
#include <concepts>
#include <type_traits>
#include <utility>

#include "frequency_ladder.hpp"

namespace posenc::inline POSENC_ABI {

/// A scaling: any callable that takes a ladder and returns a ladder, without changing itself. A lambda will do:
///
///     auto halve = [](const frequency_ladder& ladder) {
///       std::vector<double> w(ladder.inv_freq().begin(), ladder.inv_freq().end());
///       for (double& x : w) x /= 2;
///       return ladder.with_inv_freq(w);
///     };
///     auto ladder = frequency_ladder(128) | halve | yarn{.factor = 4, .original_context = 4096};
///
/// A struct may add, all of them optional:
///   - `stretches_context`, a (static) constant or a const member function that gives bool: whether it makes the context
///     longer, so that a second such scaling on one ladder is an error. A callable without it counts as false;
///   - `name`, a C string, and `factor`, a number: for the history and for error texts;
///   - `maybe_error check(const frequency_ladder&) const noexcept`: its parameters' errors as a value.
template <class Transform>
concept ladder_transform = requires(const Transform& transform, const frequency_ladder& ladder) {
  { transform(ladder) } -> std::convertible_to<frequency_ladder>;
};

namespace detail {

template <class Transform>
concept says_stretches_by_call = requires(const Transform& t) {
  { t.stretches_context() } -> std::convertible_to<bool>;
};

template <class Transform>
concept says_stretches_by_value = requires(const Transform& t) {
  { t.stretches_context } -> std::convertible_to<bool>;
};

/// Tells the library's own scalings, and those written like them, from callables in general.
template <class Transform>
concept says_stretches = says_stretches_by_call<Transform> || says_stretches_by_value<Transform>;

template <class Transform>
bool stretches(const Transform& transform) noexcept {
  if constexpr (says_stretches_by_call<Transform>) {
    return transform.stretches_context();
  } else if constexpr (says_stretches_by_value<Transform>) {
    return transform.stretches_context;
  } else {
    return false;
  }
}

/// What errors and history call a scaling.
struct scaling_label {
  const char* name = "custom";
  double factor = 0;
};

template <class Transform>
concept has_label = requires(const Transform& t) {
  { t.label() } -> std::same_as<scaling_label>;
};

template <class Transform>
concept has_name = requires(const Transform& t) {
  { t.name } -> std::convertible_to<const char*>;
};

template <class Transform>
concept has_factor = requires(const Transform& t) {
  { t.factor } -> std::convertible_to<double>;
};

template <class Transform>
scaling_label label_of(const Transform& transform) noexcept {
  if constexpr (has_label<Transform>) {
    return transform.label();
  } else {
    scaling_label result;
    if constexpr (has_name<Transform>) result.name = transform.name;
    if constexpr (has_factor<Transform>) result.factor = static_cast<double>(transform.factor);
    return result;
  }
}

template <class Transform>
concept has_permission = requires(const Transform& t) {
  { t.needs_permission() } -> std::same_as<bool>;
};

/// Whether a scaling stretches the context without the caller's consent to do so twice.
template <class Transform>
bool needs_permission(const Transform& transform) noexcept {
  if constexpr (has_permission<Transform>) {
    return transform.needs_permission();
  } else {
    return stretches(transform);
  }
}

/// The parts of a ladder that only scalings touch.
struct ladder_access {
  static maybe_error check_stacking(const frequency_ladder& ladder, bool stretches,
                                    const scaling_label& label) noexcept {
    return ladder.check_stacking(stretches, label.name, label.factor);
  }

  static error stacking_error(const scaling_label& earlier, const scaling_label& later) noexcept {
    return frequency_ladder::stacking_error(earlier.name, earlier.factor, later.name, later.factor);
  }

  static frequency_ladder with_permission(frequency_ladder ladder, bool permitted) noexcept {
    ladder.stacking_permitted_ = permitted;
    return ladder;
  }

  static bool permitted(const frequency_ladder& ladder) noexcept { return ladder.stacking_permitted_; }

  static scaling_record record_of(const scaling_label& label, bool stretches) noexcept {
    return {label.name, label.factor, stretches, false,
            label.factor != 0 ? parameter_text("factor", label.factor).text() : short_text()};
  }

  /// Completes the history of `after`, which a callable made out of `before`: what came before stays in it, and a step
  /// that the callable has not recorded itself is recorded. A context that is stretched twice is an error here, too.
  static frequency_ladder with_history(const frequency_ladder& before, frequency_ladder after, bool stretches,
                                       const scaling_label& label) {
    const auto& old = before.provenance_;
    auto& steps = after.provenance_;
    bool continues = steps.size() >= old.size();
    for (std::size_t i = 0; continues && i < old.size(); ++i) continues = steps[i] == old[i];
    if (continues && steps.size() > old.size()) {  // recorded, and checked, by frequency_ladder::scaled
      bool counts = false;
      for (std::size_t i = old.size(); i < steps.size(); ++i) counts = counts || steps[i].stretches_context;
      if (!stretches || counts) return after;
      raise_if(before.check_stacking(true, label.name, label.factor));  // made of parts that do not count, but it does
      after.append(record_of(label, stretches));
      return after;
    }
    number_list<scaling_record> added;
    if (!continues) added = steps;
    if (added.empty()) added.push_back(record_of(label, stretches));
    steps = old;
    after.made_with_base_ = before.made_with_base_;
    after.stacking_permitted_ = before.stacking_permitted_;
    for (scaling_record& step : added) {
      if (!step.stacked) raise_if(after.check_stacking(step.stretches_context, step.name.c_str(), step.factor));
      after.append(step);
    }
    return after;
  }
};

/// Whether what a scaling makes of frequency i is a number that double holds in full: stacked scalings can leave its range.
/// What is 0 may stay 0. `argument` and its value are what the error names.
inline maybe_error check_result(const frequency_ladder& ladder, const char* argument, const double& value, index_t i,
                                const double& after) noexcept {
  const double& before = ladder.inv_freq().data()[i];
  if (is_zero(before) || (is_finite(after) && (after >= 0x1p-1022 || after == before))) return {};
  return make_error(errc::invalid_value, argument,
                    "is %g, which makes %g of frequency %td, %g; allowed: what leaves frequencies within 2.3e-308 to "
                    "1.7e308",
                    value, after, i, before);
}

/// What a scaling makes of all frequencies of a ladder, given by a function: frequency(i) for pair i.
template <class Frequency>
number_list<double> results_of(const frequency_ladder& ladder, const Frequency& frequency) {
  number_list<double> results(ladder.inv_freq().size());
  for (std::size_t i = 0; i < results.size(); ++i) results[i] = frequency(static_cast<index_t>(i));
  return results;
}

/// Whether double holds all of them, as above.
template <class Frequency>
maybe_error check_results(const frequency_ladder& ladder, const double& factor, const Frequency& frequency) noexcept {
  for (index_t i = 0; i < ladder.size(); ++i) {
    if (maybe_error wrong = check_result(ladder, "factor", factor, i, frequency(i))) return wrong;
  }
  return {};
}

}  // namespace detail

/// Applies a scaling. Found for lambdas and types of any namespace, since the ladder stands on the left.
/// Errors: what the scaling raises; stacked_scaling when it stretches the context of a ladder that is stretched already.
template <ladder_transform Transform>
frequency_ladder operator|(const frequency_ladder& ladder, const Transform& transform) {
  // The scaling comes first: its parameters are known to be good only after it.
  frequency_ladder result = transform(ladder);
  return detail::ladder_access::with_history(ladder, std::move(result), detail::stretches(transform),
                                             detail::label_of(transform));
}

namespace detail {

template <class Transform>
concept scaling_checks = requires(const Transform& t, const frequency_ladder& ladder) {
  { t.check(ladder) } -> std::convertible_to<maybe_error>;
};

template <class Transform>
concept scaling_checks_with = requires(const Transform& t, const frequency_ladder& ladder) {
  { t.check_with(ladder, true) } -> std::same_as<maybe_error>;
};

/// The error of `ladder | transform`, if `permitted` says that the next stretch has the caller's consent.
template <class Transform>
maybe_error check_scaling(const frequency_ladder& ladder, const Transform& transform, bool permitted) noexcept {
  if constexpr (scaling_checks_with<Transform>) {
    return transform.check_with(ladder, permitted);
  } else {
    if constexpr (scaling_checks<Transform>) {
      if (maybe_error wrong = transform.check(ladder)) return wrong;
    }
    return ladder_access::check_stacking(ladder, !permitted && stretches(transform), label_of(transform));
  }
}

}  // namespace detail

/// The error that `ladder | transform` would raise, as a value. It allocates nothing. A callable without a member `check`
/// is asked nothing but whether it stretches the context. Of a recipe `first | second` each part is checked against the
/// given ladder: that both together leave the range of double is found when it is applied.
template <ladder_transform Transform>
maybe_error check(const frequency_ladder& ladder, const Transform& transform) noexcept {
  return detail::check_scaling(ladder, transform, false);
}

/// What `stacked(transform)` makes.
template <ladder_transform Transform>
struct stacked_transform {
  Transform transform;

  frequency_ladder operator()(const frequency_ladder& ladder) const {
    const bool former = detail::ladder_access::permitted(ladder);
    return detail::ladder_access::with_permission(detail::ladder_access::with_permission(ladder, true) | transform,
                                                  former);
  }

  maybe_error check_with(const frequency_ladder& ladder, bool) const noexcept {
    return detail::check_scaling(ladder, transform, true);
  }

  bool stretches_context() const noexcept { return detail::stretches(transform); }
  bool needs_permission() const noexcept { return false; }
  detail::scaling_label label() const noexcept { return detail::label_of(transform); }
};

/// The same scaling, allowed on top of one that has stretched the context already. For models that were really trained
/// so: a ladder that is stretched twice by mistake loses the resolution of near positions and scores come out worse than
/// with either alone.
template <ladder_transform Transform>
stacked_transform<Transform> stacked(Transform transform) {
  return {std::move(transform)};
}

/// What `first | second` makes of two scalings.
template <ladder_transform First, ladder_transform Second>
struct composed_transform {
  First first;
  Second second;

  frequency_ladder operator()(const frequency_ladder& ladder) const { return ladder | first | second; }

  maybe_error check_with(const frequency_ladder& ladder, bool permitted) const noexcept {
    if (maybe_error wrong = detail::check_scaling(ladder, first, permitted)) return wrong;
    permitted = permitted && !detail::needs_permission(first);
    if (detail::stretches(first) && detail::needs_permission(second) && !permitted) {
      const detail::scaling_label later = detail::label_of(second);
      const maybe_error wrong = detail::ladder_access::check_stacking(ladder, true, later);
      return wrong ? wrong : detail::ladder_access::stacking_error(detail::label_of(first), later);
    }
    return detail::check_scaling(ladder, second, permitted);
  }

  bool stretches_context() const noexcept { return detail::stretches(first) || detail::stretches(second); }

  bool needs_permission() const noexcept { return detail::needs_permission(first) || detail::needs_permission(second); }

  detail::scaling_label label() const noexcept {
    return detail::stretches(first) || !detail::stretches(second) ? detail::label_of(first) : detail::label_of(second);
  }
};

/// Two scalings as one, the left one first, so that a recipe can be kept and applied to several ladders. At least one of
/// them must be a scaling that says whether it stretches the context.
template <class First, class Second>
  requires((detail::says_stretches<First> || detail::says_stretches<Second>) && ladder_transform<First> &&
           ladder_transform<Second>)
composed_transform<std::decay_t<First>, std::decay_t<Second>> operator|(const First& first, const Second& second) {
  return {first, second};
}

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_LADDER_SCALING_HPP
