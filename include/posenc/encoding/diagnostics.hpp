// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_DIAGNOSTICS_HPP
#define POSENC_ENCODING_DIAGNOSTICS_HPP

#include <type_traits>

#include "../core/dtype.hpp"
#include "concepts.hpp"

/// The sentences that the compiler prints when an encoding is not one: each check has one static assertion, so that the
/// first error line says what to do. Entry points put their bodies into `if constexpr (check_...<E>())`.
namespace posenc::inline POSENC_ABI::detail {

// A member of any kind with the given name, template or not: naming it through a class that also derives from one that
// has it is ambiguous then.
#define POSENC_DETAIL_NAMES(member)                            \
  struct fallback_##member {                                   \
    int member;                                                \
  };                                                           \
  template <class E>                                           \
  struct probe_##member : E, fallback_##member {};             \
  template <class E>                                           \
  constexpr bool names_##member() {                            \
    if constexpr (std::is_class_v<E> && !std::is_final_v<E>) { \
      return !requires { &probe_##member<E>::member; };        \
    } else {                                                   \
      return false;                                            \
    }                                                          \
  }

POSENC_DETAIL_NAMES(add_position)
POSENC_DETAIL_NAMES(rotation_size)
POSENC_DETAIL_NAMES(prepare_rotation)
POSENC_DETAIL_NAMES(apply_rotation)
POSENC_DETAIL_NAMES(bias)
POSENC_DETAIL_NAMES(check)

#undef POSENC_DETAIL_NAMES

/// Every listed place has its members, with the right signatures.
template <class E>
consteval bool check_listed_members() {
  constexpr bool inputs = !acts_on<E, on_inputs> || has_add_position<E>;
  static_assert(inputs,
                "posenc: an encoding that acts on inputs (acts_on lists on_inputs) needs the member "
                "`template <class Real> void add_position(posenc::position_span position, std::span<Real> x) const`");
  constexpr bool size = !inputs || !acts_on<E, on_queries_keys> || has_rotation_size<E>;
  static_assert(size,
                "posenc: an encoding that acts on queries and keys (acts_on lists on_queries_keys) needs the member "
                "`posenc::index_t rotation_size(posenc::rotation_shape) const`");
  constexpr bool prepare = !inputs || !size || !acts_on<E, on_queries_keys> || has_prepare_rotation<E>;
  static_assert(prepare,
                "posenc: an encoding that acts on queries and keys (acts_on lists on_queries_keys) needs the member "
                "`template <class Real> void prepare_rotation(posenc::rotation_shape, posenc::position_span, "
                "posenc::rotation_use, Real* row) const`");
  constexpr bool apply = !inputs || !size || !prepare || !acts_on<E, on_queries_keys> || has_apply_rotation<E>;
  static_assert(apply,
                "posenc: an encoding that acts on queries and keys (acts_on lists on_queries_keys) needs the member "
                "`template <class Real> void apply_rotation(posenc::rotation_shape, const Real* row, posenc::index_t "
                "kv_head, Real* x) const`");
  constexpr bool scores = !inputs || !size || !prepare || !apply || !acts_on<E, on_scores> || has_bias<E>;
  static_assert(scores,
                "posenc: an encoding that acts on scores (acts_on lists on_scores) needs the member "
                "`template <class Keys> auto bias(const Keys& keys, posenc::index_t head) const`, returning "
                "Keys::value_type");
  return inputs && size && prepare && apply && scores;
}

/// No member of a place that is not listed: it would silently do nothing.
template <class E>
consteval bool check_unlisted_members() {
  constexpr bool inputs = acts_on<E, on_inputs> || !names_add_position<E>();
  static_assert(
      inputs,
      "posenc: the encoding has a member add_position but does not act on inputs: add posenc::on_inputs to its "
      "acts_on, or remove the member");
  constexpr bool rotary = acts_on<E, on_queries_keys> ||
                          (!names_rotation_size<E>() && !names_prepare_rotation<E>() && !names_apply_rotation<E>());
  static_assert(
      rotary,
      "posenc: the encoding has a rotation member (rotation_size, prepare_rotation or apply_rotation) but does "
      "not act on queries and keys: add posenc::on_queries_keys to its acts_on, or remove the member");
  constexpr bool scores = acts_on<E, on_scores> || !names_bias<E>();
  static_assert(scores,
                "posenc: the encoding has a member bias but does not act on scores: add posenc::on_scores to its "
                "acts_on, or remove the member");
  constexpr bool checks = has_check<E> || !names_check<E>();
  static_assert(checks,
                "posenc: the encoding's member check must be callable as "
                "`posenc::maybe_error check(const posenc::encoding_use&) const`");
  return inputs && rotary && scores && checks;
}

template <class E>
consteval bool check_is_encoding() {
  static_assert(!std::is_function_v<E>,
                "posenc: this is a function, declared where a variable was meant: write braces, as in "
                "`const posenc::rope encoding{posenc::frequency_ladder(dim)};`");
  static_assert(
      std::is_function_v<E> || lists_places<E>,
      "posenc: this is not an encoding: it needs `using acts_on = posenc::places<...>;` listing where position "
      "enters (posenc::on_inputs, posenc::on_queries_keys, posenc::on_scores)");
  if constexpr (lists_places<E>) {
    if constexpr (check_listed_members<E>()) return check_unlisted_members<E>();
  }
  return false;
}

template <class E>
consteval bool check_attention_encoding() {
  if constexpr (check_is_encoding<E>()) {
    static_assert(!acts_on<E, on_inputs>,
                  "posenc: this encoding acts on inputs (sinusoidal and learned do): call posenc::add_positions on the "
                  "embeddings and pass posenc::nope to attention");
    return !acts_on<E, on_inputs>;
  }
  return false;
}

template <class E>
consteval bool check_input_encoding() {
  if constexpr (check_is_encoding<E>()) {
    static_assert(
        acts_on<E, on_inputs>,
        "posenc: add_positions takes an encoding that acts on inputs (sinusoidal, learned); this one is passed "
        "to posenc::attention or posenc::rotate");
    return acts_on<E, on_inputs>;
  }
  return false;
}

template <class E>
consteval bool check_rotary_encoding() {
  if constexpr (check_is_encoding<E>()) {
    static_assert(acts_on<E, on_queries_keys>,
                  "posenc: rotating takes an encoding that acts on queries and keys (rope); this one does not");
    return acts_on<E, on_queries_keys>;
  }
  return false;
}

/// The element types of one attention call.
template <class Q, class K, class V, class Out>
consteval bool check_attention_dtypes() {
  constexpr bool known = scalar<Q> && scalar<K> && scalar<V> && scalar<Out>;
  static_assert(known,
                "posenc: q, k, v and out must have elements of type float, double, Eigen::half or Eigen::bfloat16 "
                "(integers that hold 16-bit numbers: use posenc::as_half or posenc::as_bfloat16)");
  if constexpr (known) {
    constexpr bool same = std::is_same_v<std::remove_cv_t<K>, std::remove_cv_t<V>>;
    static_assert(same, "posenc: k and v must have the same element type");
    constexpr bool mixes = !same || mixable<Q, K, Out>;
    static_assert(
        mixes,
        "posenc: q, k, v and out mix float, half and bfloat16 freely, but double goes with double only: convert "
        "the odd one");
    constexpr bool writes = !mixes || !same || !std::is_const_v<Out>;
    static_assert(writes, "posenc: out is const: attention writes to it");
    return same && mixes && writes;
  }
  return false;
}

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ENCODING_DIAGNOSTICS_HPP
