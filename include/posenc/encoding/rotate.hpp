// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_ROTATE_HPP
#define POSENC_ENCODING_ROTATE_HPP

#include <type_traits>

#include "../core/as_view.hpp"
#include "../core/dtype.hpp"
#include "../core/eigen.hpp"
#include "../core/error.hpp"
#include "../core/executor.hpp"
#include "../core/tokens.hpp"
#include "concepts.hpp"
#include "diagnostics.hpp"
#include "rotate_checks.hpp"
#include "rotate_rows.hpp"

/// Rotary encodings on the caller's own buffers: for an attention kernel of one's own, for keys on their way into a cache,
/// for gradients. posenc::attention rotates by itself.
///
/// All functions take heads [batch, heads, tokens, dim] in any strides with a contiguous dim, as anything that has a view
/// (`as_view`): [B, H, T, D], [B, T, H, D], the q part of a fused QKV row. `tokens` says where the tokens stand; rows of a
/// batch share it or have their own. `encoding` is any that acts on queries and keys.
///
/// Elements are float, half or bfloat16 (arithmetic in float, rounded once) or double. Dimensions that the encoding does
/// not turn keep their bits in place and are copied out of place. With rope nothing is allocated for heads of up to 512
/// dimensions. The executor comes last, with or without options before it. Neither the executor nor alignment changes a bit
/// of the result.
///
/// Errors: `check` with the same arguments (without the executor) gives them as a value: invalid_shape (extents, tokens, a
/// width that does not fit), invalid_layout (null data, a stride of dim other than 1, rows that share elements, an out that
/// overlaps), invalid_value (positions, a role that has to be given), mismatch. Nothing has been written when one is raised.
/// No rows or no tokens is valid.
namespace posenc::inline POSENC_ABI {

namespace detail {

template <class In, class Out, class... Encodings>
consteval bool check_rotate_types() {
  if constexpr (check_viewable<In>() && check_viewable<Out>())
    if constexpr (check_rotation_dtypes<view_element<In>, view_element<Out>>())
      return (check_rotary_encoding<Encodings>() && ...);
  return false;
}

template <class X>
POSENC_ALWAYS_INLINE auto heads_of(X& x, token_role role, const char* name) {
  const auto view = as_view(x);
  using element = view_element<X&>;
  return rotated_heads<element, element>{view, view, role, name, name};
}

template <class In, class Out>
POSENC_ALWAYS_INLINE auto heads_of(In& in, Out& out, token_role role, const char* name, const char* out_name = "out") {
  return rotated_heads<view_element<In&>, view_element<Out&>>{as_view(in), as_view(out), role, name, out_name};
}

template <class Q, class QOut, class K, class KOut, class E, class Executor>
POSENC_NOINLINE void rotate_any_two(const rotated_heads<Q, QOut>& q, const rotated_heads<K, KOut>& k,
                                    const token_view& tokens, const E& encoding, store_mode store, Executor& executor) {
  raise_if(check_rotation_pair(q, k, tokens, encoding));
  const rotation_shape shape{q.in.dim(), k.in.heads()};
  run_rotation<compute_type<QOut>>(tokens, q.in.batch(), encoding, rotation_op::rotate, shape, store, executor, q, k);
}

/// A decoding step's one token has a way of its own, whose heads need no memory: nothing takes their address, and where it
/// returns false, with nothing done, other heads are made for the other way.
template <class Q, class QOut, class K, class KOut, class E>
POSENC_ALWAYS_INLINE bool rotate_token(const rotated_heads<Q, QOut>& q, const rotated_heads<K, KOut>& k,
                                       const token_view& tokens, const E& encoding, store_mode store) {
  if (!is_one_token(q, k, tokens)) return false;
  raise_if(check_encoding(encoding, {q.in.heads(), k.in.heads(), q.in.dim(), &tokens, nullptr}));
  turn_one_token<compute_type<QOut>>(tokens.position(0, 0, 0), encoding, rotation_op::rotate,
                                     rotation_shape{q.in.dim(), k.in.heads()}, store, heads_of_token(q, 0, 0),
                                     heads_of_token(k, 0, 0));
  return true;
}

template <rotation_op Op, class In, class Out, class E>
POSENC_ALWAYS_INLINE bool rotate_token(const rotated_heads<In, Out>& x, const token_view& tokens, const E& encoding,
                                       const rotate_options& options) {
  if (!is_one_token(x, tokens) || options.kv_heads != 0) return false;
  if constexpr (depends_on_role<E>()) raise_if(check_role(encoding, options));
  raise_if(check_encoding(encoding, use_of(x, tokens, 0)));
  turn_one_token<compute_type<Out>>(tokens.position(0, 0, 0), encoding, Op, rotation_shape{x.in.dim(), x.in.heads()},
                                    options.store, heads_of_token(x, 0, 0));
  return true;
}

template <class MakeQ, class MakeK, class E, class Executor>
POSENC_ALWAYS_INLINE void rotate_two(MakeQ make_q, MakeK make_k, const token_view& tokens, const E& encoding,
                                     store_mode store, Executor& executor) {
  if (!rotate_token(make_q(), make_k(), tokens, encoding, store))
    rotate_any_two(make_q(), make_k(), tokens, encoding, store, executor);
}

template <class Q, class QOut, class K, class KOut, class E>
consteval bool check_rotate_qk_types() {
  if constexpr (check_rotate_types<Q, QOut, E>() && check_rotate_types<K, KOut, E>())
    return check_rotation_dtypes<view_element<Q>, view_element<KOut>>();
  return false;
}

template <rotation_op Op, class In, class Out, class E, class Executor>
POSENC_NOINLINE void rotate_any_one(const rotated_heads<In, Out>& x, const token_view& tokens, const E& encoding,
                                    const rotate_options& options, Executor& executor) {
  raise_if(check_rotation(x, tokens, encoding, options));
  const rotation_shape shape{x.in.dim(), kv_heads_of(x, options.kv_heads)};
  run_rotation<compute_type<Out>>(tokens, x.in.batch(), encoding, Op, shape, options.store, executor, x);
}

/// `x` are the input and, if there is one, the output.
template <rotation_op Op, class E, class Executor, class... X>
POSENC_ALWAYS_INLINE void rotate_one(const token_view& tokens, const E& encoding, const rotate_options& options,
                                     Executor& executor, X&... x) {
  if (!rotate_token<Op>(heads_of(x..., role_of(options), "x"), tokens, encoding, options))
    rotate_any_one<Op>(heads_of(x..., role_of(options), "x"), tokens, encoding, options, executor);
}

template <class In, class Out, class From, class To, class Executor>
void rerotate_one(const rotated_heads<In, Out>& x, const token_view& tokens, const From& from, const To& to,
                  double shift, const rotate_options& options, Executor& executor) {
  raise_if(check_rerotation(x, tokens, from, to, shift, options));
  const rotation_shape shape{x.in.dim(), kv_heads_of(x, options.kv_heads)};
  run_rerotation<compute_type<Out>>(tokens, from, to, shift, shape, executor, x);
}

}  // namespace detail

/// x = A R x, in place: every head of every token turned by the rotation R of its position and multiplied by the
/// encoding's attention factor A. Where queries and keys turn differently (xPos), options.role says which x are:
/// rotate(q, tokens, xpos, {.role = token_role::query}).
template <class X, class E, class Executor = serial_executor>
void rotate(X&& x, const token_view& tokens, const E& encoding, const rotate_options& options = {},
            Executor&& executor = {}) {
  if constexpr (detail::check_rotate_types<X&, X&, E>())
    detail::rotate_one<rotation_op::rotate>(tokens, encoding, options, executor, x);
}
template <class X, class E, class Executor>
  requires executor<std::remove_reference_t<Executor>>
void rotate(X&& x, const token_view& tokens, const E& encoding, Executor&& executor) {
  rotate(x, tokens, encoding, rotate_options{}, executor);
}

/// out = A R x. `out` has the extents of x and is x itself or does not overlap it; float, half and bfloat16 mix.
template <class X, class Out, class E, class Executor = serial_executor>
void rotate(X&& x, Out&& out, const token_view& tokens, const E& encoding, const rotate_options& options = {},
            Executor&& executor = {}) {
  if constexpr (detail::check_rotate_types<X&, Out&, E>())
    detail::rotate_one<rotation_op::rotate>(tokens, encoding, options, executor, x, out);
}
template <class X, class Out, class E, class Executor>
  requires executor<std::remove_reference_t<Executor>>
void rotate(X&& x, Out&& out, const token_view& tokens, const E& encoding, Executor&& executor) {
  rotate(x, out, tokens, encoding, rotate_options{}, executor);
}

/// Queries and keys of the same tokens in place and in one pass, for which a token's cosines and sines are made once:
/// q [batch, heads, tokens, dim], k [batch, kv_heads, tokens, dim], heads a multiple of kv_heads. q and k may be parts of
/// one buffer and of different types. Errors: those of `check_rotate_qk`.
template <class Q, class K, class E, class Executor = serial_executor>
void rotate_qk(Q&& q, K&& k, const token_view& tokens, const E& encoding, Executor&& executor = {}) {
  if constexpr (detail::check_rotate_qk_types<Q&, Q&, K&, K&, E>())
    detail::rotate_two([&]() POSENC_INLINE_LAMBDA { return detail::heads_of(q, token_role::query, "q"); },
                       [&]() POSENC_INLINE_LAMBDA { return detail::heads_of(k, token_role::key, "k"); }, tokens,
                       encoding, store_mode::cached, executor);
}

/// The same into q_out and k_out: into the keys' place in a cache, say. Each may be its input itself.
/// Of the options only `store` makes a difference.
template <class Q, class K, class QOut, class KOut, class E, class Executor = serial_executor>
void rotate_qk(Q&& q, K&& k, QOut&& q_out, KOut&& k_out, const token_view& tokens, const E& encoding,
               const rotate_options& options, Executor&& executor = {}) {
  if constexpr (detail::check_rotate_qk_types<Q&, QOut&, K&, KOut&, E>())
    detail::rotate_two([&]()
                           POSENC_INLINE_LAMBDA { return detail::heads_of(q, q_out, token_role::query, "q", "q_out"); },
                       [&]() POSENC_INLINE_LAMBDA { return detail::heads_of(k, k_out, token_role::key, "k", "k_out"); },
                       tokens, encoding, options.store, executor);
}

template <class Q, class K, class QOut, class KOut, class E, class Executor = serial_executor>
  requires executor<std::remove_reference_t<Executor>>
void rotate_qk(Q&& q, K&& k, QOut&& q_out, KOut&& k_out, const token_view& tokens, const E& encoding,
               Executor&& executor = {}) {
  rotate_qk(q, k, q_out, k_out, tokens, encoding, rotate_options{}, executor);
}

/// x = A R^T x, in place: how gradients of rotated vectors flow back to the vectors.
template <class X, class E, class Executor = serial_executor>
void rotate_transposed(X&& x, const token_view& tokens, const E& encoding, const rotate_options& options = {},
                       Executor&& executor = {}) {
  if constexpr (detail::check_rotate_types<X&, X&, E>())
    detail::rotate_one<rotation_op::transposed>(tokens, encoding, options, executor, x);
}
template <class X, class E, class Executor>
  requires executor<std::remove_reference_t<Executor>>
void rotate_transposed(X&& x, const token_view& tokens, const E& encoding, Executor&& executor) {
  rotate_transposed(x, tokens, encoding, rotate_options{}, executor);
}

/// out = A R^T x.
template <class X, class Out, class E, class Executor = serial_executor>
void rotate_transposed(X&& x, Out&& out, const token_view& tokens, const E& encoding,
                       const rotate_options& options = {}, Executor&& executor = {}) {
  if constexpr (detail::check_rotate_types<X&, Out&, E>())
    detail::rotate_one<rotation_op::transposed>(tokens, encoding, options, executor, x, out);
}
template <class X, class Out, class E, class Executor>
  requires executor<std::remove_reference_t<Executor>>
void rotate_transposed(X&& x, Out&& out, const token_view& tokens, const E& encoding, Executor&& executor) {
  rotate_transposed(x, out, tokens, encoding, rotate_options{}, executor);
}

/// x = R^T x / A, in place: undoes `rotate`, up to rounding.
template <class X, class E, class Executor = serial_executor>
void unrotate(X&& x, const token_view& tokens, const E& encoding, const rotate_options& options = {},
              Executor&& executor = {}) {
  if constexpr (detail::check_rotate_types<X&, X&, E>())
    detail::rotate_one<rotation_op::inverse>(tokens, encoding, options, executor, x);
}
template <class X, class E, class Executor>
  requires executor<std::remove_reference_t<Executor>>
void unrotate(X&& x, const token_view& tokens, const E& encoding, Executor&& executor) {
  unrotate(x, tokens, encoding, rotate_options{}, executor);
}

/// out = R^T x / A.
template <class X, class Out, class E, class Executor = serial_executor>
void unrotate(X&& x, Out&& out, const token_view& tokens, const E& encoding, const rotate_options& options = {},
              Executor&& executor = {}) {
  if constexpr (detail::check_rotate_types<X&, Out&, E>())
    detail::rotate_one<rotation_op::inverse>(tokens, encoding, options, executor, x, out);
}
template <class X, class Out, class E, class Executor>
  requires executor<std::remove_reference_t<Executor>>
void unrotate(X&& x, Out&& out, const token_view& tokens, const E& encoding, Executor&& executor) {
  unrotate(x, out, tokens, encoding, rotate_options{}, executor);
}

/// Keys that `from` rotated at the positions of `tokens` become keys that `to` rotates at those positions + shift (on every
/// axis), in place: moving a cached context, or going over to another ladder. 16-bit keys are rounded once, at the end.
template <class X, class From, class To, class Executor = serial_executor>
void rerotate(X&& keys, const token_view& tokens, const From& from, const To& to, double shift,
              const rotate_options& options = {}, Executor&& executor = {}) {
  if constexpr (detail::check_rotate_types<X&, X&, From, To>())
    detail::rerotate_one(detail::heads_of(keys, detail::role_of(options), "keys"), tokens, from, to, shift, options,
                         executor);
}
template <class X, class From, class To, class Executor>
  requires executor<std::remove_reference_t<Executor>>
void rerotate(X&& keys, const token_view& tokens, const From& from, const To& to, double shift, Executor&& executor) {
  rerotate(keys, tokens, from, to, shift, rotate_options{}, executor);
}

/// The same into `out`.
template <class X, class Out, class From, class To, class Executor = serial_executor>
void rerotate(X&& keys, Out&& out, const token_view& tokens, const From& from, const To& to, double shift,
              const rotate_options& options = {}, Executor&& executor = {}) {
  if constexpr (detail::check_rotate_types<X&, Out&, From, To>())
    detail::rerotate_one(detail::heads_of(keys, out, detail::role_of(options), "keys"), tokens, from, to, shift,
                         options, executor);
}
template <class X, class Out, class From, class To, class Executor>
  requires executor<std::remove_reference_t<Executor>>
void rerotate(X&& keys, Out&& out, const token_view& tokens, const From& from, const To& to, double shift,
              Executor&& executor) {
  rerotate(keys, out, tokens, from, to, shift, rotate_options{}, executor);
}

/// What `rotate`, `rotate_transposed` and `unrotate` with these arguments would raise, as a value. Never throws, allocates
/// nothing.
template <class X, class E>
  requires(rotary_encoding<E> && !acts_on<E, on_inputs>)
maybe_error check(X&& x, const token_view& tokens, const E& encoding, const rotate_options& options = {}) noexcept {
  if constexpr (detail::check_rotate_types<X&, X&, E>())
    return detail::check_rotation(detail::heads_of(x, detail::role_of(options), "x"), tokens, encoding, options);
}

template <class X, class Out, class E>
  requires(rotary_encoding<E> && !acts_on<E, on_inputs>)
maybe_error check(X&& x, Out&& out, const token_view& tokens, const E& encoding,
                  const rotate_options& options = {}) noexcept {
  if constexpr (detail::check_rotate_types<X&, Out&, E>())
    return detail::check_rotation(detail::heads_of(x, out, detail::role_of(options), "x"), tokens, encoding, options);
}

/// The same for `rotate_qk`.
template <class Q, class K, class E>
maybe_error check_rotate_qk(Q&& q, K&& k, const token_view& tokens, const E& encoding) noexcept {
  if constexpr (detail::check_rotate_qk_types<Q&, Q&, K&, K&, E>())
    return detail::check_rotation_pair(detail::heads_of(q, token_role::query, "q"),
                                       detail::heads_of(k, token_role::key, "k"), tokens, encoding);
}

template <class Q, class K, class QOut, class KOut, class E>
maybe_error check_rotate_qk(Q&& q, K&& k, QOut&& q_out, KOut&& k_out, const token_view& tokens,
                            const E& encoding) noexcept {
  if constexpr (detail::check_rotate_qk_types<Q&, QOut&, K&, KOut&, E>())
    return detail::check_rotation_pair(detail::heads_of(q, q_out, token_role::query, "q", "q_out"),
                                       detail::heads_of(k, k_out, token_role::key, "k", "k_out"), tokens, encoding);
}

/// The same for `rerotate`.
template <class X, class From, class To>
  requires(rotary_encoding<From> && rotary_encoding<To>)
maybe_error check(X&& keys, const token_view& tokens, const From& from, const To& to, double shift,
                  const rotate_options& options = {}) noexcept {
  if constexpr (detail::check_rotate_types<X&, X&, From, To>())
    return detail::check_rerotation(detail::heads_of(keys, detail::role_of(options), "keys"), tokens, from, to, shift,
                                    options);
}

template <class X, class Out, class From, class To>
  requires(rotary_encoding<From> && rotary_encoding<To>)
maybe_error check(X&& keys, Out&& out, const token_view& tokens, const From& from, const To& to, double shift,
                  const rotate_options& options = {}) noexcept {
  if constexpr (detail::check_rotate_types<X&, Out&, From, To>())
    return detail::check_rerotation(detail::heads_of(keys, out, detail::role_of(options), "keys"), tokens, from, to,
                                    shift, options);
}

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_ROTATE_HPP
