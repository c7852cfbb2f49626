// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_CONCEPTS_HPP
#define POSENC_ENCODING_CONCEPTS_HPP

#include <concepts>
#include <span>
#include <type_traits>

#include "../core/error.hpp"
#include "../core/platform.hpp"
#include "../core/tokens.hpp"
#include "score_keys.hpp"

/// An encoding is a small struct that lists where position enters, `using acts_on = posenc::places<...>;`, and has the
/// members of those places and no others:
///
///   on_inputs         add_position     the token's embedding gets a position added             sinusoidal, learned
///   on_queries_keys   rotation_size,   queries and keys are turned by their position           rope, query_temperature
///                     prepare_rotation,
///                     apply_rotation
///   on_scores         bias             every score gets a number added                         alibi, t5_bucket
///
/// and optionally `check`, which looks at the shapes and positions of a call before anything is written.
/// docs/concepts.md has a page on each.
namespace posenc::inline POSENC_ABI {

struct on_inputs {};
struct on_queries_keys {};
struct on_scores {};

/// A list of places; `places<>` is NoPE.
template <class... Places>
struct places {
  template <class Place>
  static constexpr bool contains = (std::same_as<Place, Places> || ...);
};

/// One number for each axis of a token.
using position_span = std::span<const double>;

/// What a rotation may depend on besides the position.
struct rotation_shape {
  index_t head_dim = 0;
  index_t kv_heads = 1;
};

enum class token_role { query, key };

/// What is done with the rotation R of a position and its attention factor A.
enum class rotation_op {
  rotate,      ///< A R x
  transposed,  ///< A R^T x: gradients flow back through it
  inverse      ///< R^T x / A: undoes `rotate`
};

struct rotation_use {
  token_role role = token_role::query;
  rotation_op op = rotation_op::rotate;
};

/// Dimensions [begin, end) of a head. An encoding that acts on queries and keys may say with
/// `posenc::dim_range rotated_dims(posenc::rotation_shape) const` which ones it turns; without it, all.
struct dim_range {
  index_t begin = 0;
  index_t end = 0;
};

/// What `check` of an encoding sees of a call. Fields that a call does not have are 0 or null.
struct encoding_use {
  index_t heads = 0;     ///< query heads
  index_t kv_heads = 0;  ///< key and value heads
  index_t dim = 0;       ///< head_dim, or the width of an input embedding
  const token_view* q_tokens = nullptr;
  const token_view* k_tokens = nullptr;
  bool cached_positions_whole = true;  ///< whether a cache's keys have whole-number positions on every axis
};

template <class E>
concept lists_places = requires { typename E::acts_on; };

namespace detail {
template <class E, class Place>
constexpr bool acts_at() {
  if constexpr (lists_places<E>) {
    return E::acts_on::template contains<Place>;
  } else {
    return false;
  }
}
}  // namespace detail

/// Whether E lists the place.
template <class E, class Place>
concept acts_on = detail::acts_at<E, Place>();

/// `template <class Real> void add_position(posenc::position_span position, std::span<Real> x) const`: adds the position's
/// vector to the embedding x of one token, in float or double.
template <class E>
concept has_add_position = requires(const E& e, position_span p, std::span<float> f, std::span<double> d) {
  e.add_position(p, f);
  e.add_position(p, d);
};

/// `posenc::index_t rotation_size(posenc::rotation_shape) const`: how many numbers describe the rotation of one token.
template <class E>
concept has_rotation_size = requires(const E& e, rotation_shape s) {
  { e.rotation_size(s) } -> std::convertible_to<index_t>;
};

/// `template <class Real> void prepare_rotation(posenc::rotation_shape, posenc::position_span, posenc::rotation_use,
/// Real* row) const`: writes those numbers for one token (its cosines and sines, say); all heads share them.
template <class E>
concept has_prepare_rotation =
    requires(const E& e, rotation_shape s, position_span p, rotation_use u, float* f, double* d) {
      e.prepare_rotation(s, p, u, f);
      e.prepare_rotation(s, p, u, d);
    };

/// `template <class Real> void apply_rotation(posenc::rotation_shape, const Real* row, posenc::index_t kv_head, Real* x)
/// const`: turns the head_dim numbers x of one head in place.
template <class E>
concept has_apply_rotation =
    requires(const E& e, rotation_shape s, const float* rf, const double* rd, index_t h, float* f, double* d) {
      e.apply_rotation(s, rf, h, f);
      e.apply_rotation(s, rd, h, d);
    };

/// `template <class Real, class In, class Out> void rotate_heads(posenc::rotation_shape, const Real* row, posenc::index_t
/// heads, const In* in, posenc::index_t in_stride, Out* out, posenc::index_t out_stride) const`: an encoding that turns
/// all heads of a token alike may have this faster way for any element type. It leaves all but `rotated_dims` alone.
template <class E, class Real, class In, class Out>
concept has_rotate_heads = requires(const E& e, rotation_shape s, const Real* row, index_t n, const In* in, Out* out) {
  e.rotate_heads(s, row, n, in, n, out, n);
};

/// `template <class Keys> auto bias(const Keys& keys, posenc::index_t head) const`: what is added to the scores of one
/// query of a (query) head, as a Keys::value_type; see `score_keys`.
template <class E>
concept has_bias = requires(const E& e, const score_keys<float, true>& f, const score_keys<float, false>& g,
                            const score_keys<double, true>& d, const score_keys<double, false>& c, index_t head) {
  { e.bias(f, head) } -> std::convertible_to<simd::vec<float>>;
  { e.bias(g, head) } -> std::convertible_to<simd::vec<float>>;
  { e.bias(d, head) } -> std::convertible_to<simd::vec<double>>;
  { e.bias(c, head) } -> std::convertible_to<simd::vec<double>>;
};

/// `posenc::maybe_error check(const posenc::encoding_use&) const noexcept`, optional.
template <class E>
concept has_check = requires(const E& e, const encoding_use& use) {
  { e.check(use) } -> std::convertible_to<maybe_error>;
};

/// Optional, both: `double largest_bias(double low, double high, posenc::index_t head) const`, at least every bias of a
/// (query) head for distances (key - query) from `low` to `high` on the position axis `posenc::index_t bias_axis() const`.
/// A bias that falls without end lets attention leave out the keys that are too far to matter; see `alibi`.
template <class E>
concept bounded_bias = requires(const E& e, double distance, index_t head) {
  { e.largest_bias(distance, distance, head) } -> std::convertible_to<double>;
  { e.bias_axis() } -> std::convertible_to<index_t>;
};

template <class E>
concept input_encoding = acts_on<E, on_inputs> && has_add_position<E>;

template <class E>
concept rotary_encoding =
    acts_on<E, on_queries_keys> && has_rotation_size<E> && has_prepare_rotation<E> && has_apply_rotation<E>;

template <class E>
concept score_encoding = acts_on<E, on_scores> && has_bias<E>;

/// An encoding: has the members of each place that it lists.
template <class E>
concept encoding =
    lists_places<E> && (!acts_on<E, on_inputs> || input_encoding<E>) &&
    (!acts_on<E, on_queries_keys> || rotary_encoding<E>) && (!acts_on<E, on_scores> || score_encoding<E>);

/// An encoding that attention takes: nothing of it belongs to the inputs.
template <class E>
concept attention_encoding = encoding<E> && !acts_on<E, on_inputs>;

namespace detail {

template <encoding E>
maybe_error check_encoding(const E& e, const encoding_use& use) noexcept {
  if constexpr (has_check<E>) {
    return e.check(use);
  } else {
    static_cast<void>(e);
    static_cast<void>(use);
    return {};
  }
}

/// Calls f(side name, tokens) for the sides that a call has, until one gives an error.
template <class F>
maybe_error for_each_side(const encoding_use& use, F&& f) {
  const bool same = use.q_tokens != nullptr && use.k_tokens == nullptr;
  if (use.q_tokens != nullptr)
    if (maybe_error e = f(same ? "tokens" : "tokens.q", *use.q_tokens)) return e;
  if (use.k_tokens != nullptr)
    if (maybe_error e = f("tokens.k", *use.k_tokens)) return e;
  return {};
}

}  // namespace detail

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_CONCEPTS_HPP
