// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_ROTATE_CHECKS_HPP
#define POSENC_ENCODING_ROTATE_CHECKS_HPP

#include <cstdint>
#include <optional>
#include <type_traits>

#include "../attention/checks.hpp"
#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/finite.hpp"
#include "../core/tensor_view.hpp"
#include "../core/tokens.hpp"
#include "concepts.hpp"
#include "rotated_dims.hpp"
#include "store_mode.hpp"

namespace posenc::inline POSENC_ABI {

/// What a rotation may depend on besides tokens and encoding. For rope itself, neither `role` nor `kv_heads` makes a
/// difference.
struct rotate_options {
  /// Which side the heads are of. Some encodings (xPos, a query temperature) turn queries and keys differently, and a call
  /// with one of these must say it; to the others it is nothing.
  std::optional<token_role> role = std::nullopt;

  /// Key heads of the layer, where query heads of grouped attention are turned and key heads have rotations of their own:
  /// query head h belongs to key head h / (heads / kv_heads). 0: as many as there are heads.
  index_t kv_heads = 0;

  /// How results are written out of place. In place nothing streams.
  store_mode store = store_mode::cached;
};

namespace detail {

template <class In, class Out>
consteval bool check_rotation_dtypes() {
  constexpr bool known = scalar<In> && scalar<Out>;
  static_assert(
      known,
      "posenc: rotated vectors must have elements of type float, double, Eigen::half or Eigen::bfloat16 (integers "
      "that hold 16-bit numbers: use posenc::as_half or posenc::as_bfloat16)");
  if constexpr (known) {
    constexpr bool mixes = mixable<In, Out>;
    static_assert(
        mixes,
        "posenc: rotated vectors mix float, half and bfloat16 freely, but double goes with double only: convert "
        "the odd one");
    constexpr bool writes = !mixes || !std::is_const_v<Out>;
    static_assert(writes,
                  "posenc: rotating writes to a const buffer: pass vectors that are not const, or an out of their own");
    return mixes && writes;
  }
  return false;
}

/// One tensor of heads that is turned: read from `in`, written to `out`, which may be the same one.
template <class In, class Out>
struct rotated_heads {
  tensor_view<In> in;
  tensor_view<Out> out;
  token_role role = token_role::key;
  const char* in_name = "x";
  const char* out_name = "out";
};

template <class In, class Out>
bool in_place(const rotated_heads<In, Out>& x) noexcept {
  return std::is_same_v<std::remove_cv_t<In>, Out> && identical(x.in, x.out);
}

/// Whether tokens are a plain range of positions for all rows, and nothing else is said of them.
inline bool is_plain(const token_view& tokens) noexcept {
  return tokens.counts_up() && !tokens.has_order() && !tokens.has_documents() && !tokens.has_cu_seqlens() &&
         tokens.axes() == 1 && tokens.batch() == 1;
}

/// Whether a view is sound at first sight: some memory, no empty axis, rows side by side in one of the two usual orders.
template <class T>
bool is_plain(const tensor_view<T>& x) noexcept {
  if (x.data_handle() == nullptr || x.batch() < 1 || x.heads() < 1 || x.tokens() < 1 || x.dim() < 1 ||
      x.stride(3) != 1 || x.from_columns())
    return false;
  constexpr index_t limit = index_t{1} << 31, too_far = index_t{1} << 62;  // within so much nothing wraps
  const auto reach = [](index_t count, index_t stride, index_t inner) {
    return count == 1 ? inner : count < limit && stride < limit && stride >= inner ? count * stride : too_far;
  };
  index_t rows = reach(x.tokens(), x.stride(2), reach(x.heads(), x.stride(1), x.dim()));
  if (rows == too_far) rows = reach(x.heads(), x.stride(1), reach(x.tokens(), x.stride(2), x.dim()));
  return reach(x.batch(), x.stride(0), rows) < too_far;
}

/// The check of a usual call without a loop: a decoding step is so short that it would show. False says nothing.
template <class In, class Out>
bool is_plain(const rotated_heads<In, Out>& x, const token_view& tokens) noexcept {
  if (!is_plain(x.in) || !is_plain(tokens) || tokens.count() != x.in.tokens()) return false;
  const double first = tokens.position(0, 0, 0);
  if (!is_position(first) || !is_position(first + static_cast<double>(tokens.count()))) return false;
  if (in_place(x)) return true;
  for (std::size_t axis = 0; axis < 4; ++axis)
    if (x.out.extent(axis) != x.in.extent(axis)) return false;
  return is_plain(x.out) && !overlaps(x.out, x.in);
}

/// All heads of one token.
template <class In, class Out>
struct token_heads {
  const In* in;
  Out* out;
  index_t in_stride, out_stride;
  index_t heads;
  const In* next;  ///< where the heads of the token begin that comes after this one, or these; null: memory is ready
  Out* next_out;   ///< the same of the output
  token_role role;
};

template <class In, class Out>
POSENC_ALWAYS_INLINE auto heads_of_token(const rotated_heads<In, Out>& x, index_t b, index_t t) noexcept {
  using element = std::remove_const_t<In>;
  const element* const in = x.in.row(b, 0, t);
  Out* const out = x.out.row(b, 0, t);
  const bool last = t + 1 >= x.in.tokens();
  return token_heads<element, Out>{in,
                                   out,
                                   x.in.stride(1),
                                   x.out.stride(1),
                                   x.in.heads(),
                                   last ? in : in + x.in.stride(2),
                                   last ? out : out + x.out.stride(2),
                                   x.role};
}

/// How many elements the heads of the only token reach over, if the view has one and is sound, else 0. What decoding does
/// for each layer of each token is so short that checks show: this one is for it, has neither loops nor calls, and
/// leaves the view in registers.
template <class T>
POSENC_ALWAYS_INLINE index_t reach_of_one_token(const tensor_view<T>& x) noexcept {
  constexpr index_t limit = index_t{1} << 31;  // within so much nothing wraps
  const index_t heads = x.heads(), dim = x.dim(), stride = heads == 1 ? x.dim() : x.stride(1);
  const bool sound = x.data_handle() != nullptr && x.batch() == 1 && x.tokens() == 1 && x.stride(3) == 1 &&
                     heads >= 1 && heads < limit && dim >= 1 && stride >= dim && stride < limit;
  return sound ? (heads - 1) * stride + dim : 0;
}

/// The memory [first, last) in bytes.
struct memory_range {
  std::uintptr_t first, last;

  template <class T>
  POSENC_ALWAYS_INLINE memory_range(const T* data, index_t elements) noexcept
      : first(reinterpret_cast<std::uintptr_t>(data)),
        last(first + static_cast<std::uintptr_t>(elements) * sizeof(T)) {}
  friend POSENC_ALWAYS_INLINE bool meet(const memory_range& a, const memory_range& b) noexcept {
    return a.first < b.last && b.first < a.last;
  }
};

/// Whether all is right with heads of one token, at a position that is the only thing that is said of it.
/// False says nothing.
template <class In, class Out>
POSENC_ALWAYS_INLINE bool is_one_token(const rotated_heads<In, Out>& x, const token_view& tokens) noexcept {
  if (tokens.count() != 1 || !is_plain(tokens) || !is_position(tokens.position(0, 0, 0))) return false;
  const index_t reach = reach_of_one_token(x.in), out_reach = reach_of_one_token(x.out);
  if (reach == 0 || out_reach == 0 || x.in.heads() != x.out.heads() || x.in.dim() != x.out.dim()) return false;
  const memory_range in(x.in.data_handle(), reach), out(x.out.data_handle(), out_reach);
  const bool same = std::is_same_v<std::remove_cv_t<In>, Out> && in.first == out.first && reach == out_reach;
  return same || !meet(in, out);
}

/// The same of queries and keys together.
template <class Q, class QOut, class K, class KOut>
POSENC_ALWAYS_INLINE bool is_one_token(const rotated_heads<Q, QOut>& q, const rotated_heads<K, KOut>& k,
                                       const token_view& tokens) noexcept {
  if (!is_one_token(q, tokens) || !is_one_token(k, tokens) || q.in.dim() != k.in.dim() ||
      q.in.heads() % k.in.heads() != 0)
    return false;
  const memory_range q_in(q.in.data_handle(), reach_of_one_token(q.in)),
      k_in(k.in.data_handle(), reach_of_one_token(k.in));
  const memory_range q_out(q.out.data_handle(), reach_of_one_token(q.out)),
      k_out(k.out.data_handle(), reach_of_one_token(k.out));
  return !meet(q_out, k_out) && !meet(q_out, k_in) && !meet(k_out, q_in);
}

template <class In, class Out>
maybe_error check_heads(const rotated_heads<In, Out>& x, const token_view& tokens) noexcept {
  if (is_plain(x, tokens)) return {};
  if (maybe_error e = check_layout(x.in, x.in_name, false)) return e;
  if (x.in.heads() < 1)
    return make_error(errc::invalid_shape, x.in_name, "has %td heads; allowed: 1 and more", x.in.heads());
  if (x.in.dim() < 1)
    return make_error(errc::invalid_shape, x.in_name, "has head_dim %td; allowed: 1 and more", x.in.dim());
  const bool same = in_place(x);
  const char* written = same ? x.in_name : x.out_name;
  if (!same)
    for (std::size_t axis = 0; axis < 4; ++axis)
      if (maybe_error e = check_extent(x.out, written, axis, x.in.extent(axis), x.in_name)) return e;
  if (maybe_error e = check_layout(x.out, written, true)) return e;
  if (!same && overlaps(x.out, x.in))
    return make_error(errc::invalid_layout, written, "overlaps %s; allowed: memory of its own, or exactly %s",
                      x.in_name, x.in_name);
  if (x.in.from_columns() && x.in.tokens() != tokens.count())
    return make_error(errc::invalid_shape, x.in_name, "has %td tokens, tokens describes %td%s", x.in.tokens(),
                      tokens.count(), layout_hint(x.in));
  return check_unordered_tokens(tokens, x.in.batch(), x.in.tokens(), "tokens");
}

/// Key heads that a rotation sees, for a tensor of its own.
template <class In, class Out>
POSENC_ALWAYS_INLINE index_t kv_heads_of(const rotated_heads<In, Out>& x, index_t given) noexcept {
  return given == 0 ? x.in.heads() : given;
}

template <class In, class Out>
maybe_error check_kv_heads(const rotated_heads<In, Out>& x, index_t given) noexcept {
  if (given >= 0 && x.in.heads() % kv_heads_of(x, given) == 0) return {};
  return make_error(errc::invalid_value, "options.kv_heads", "is %td for %td heads of %s; allowed: a divisor, or 0",
                    given, x.in.heads(), x.in_name);
}

/// What an encoding sees of a call with one tensor.
template <class In, class Out>
POSENC_ALWAYS_INLINE encoding_use use_of(const rotated_heads<In, Out>& x, const token_view& tokens,
                                         index_t kv_heads) noexcept {
  encoding_use use;
  if (x.role == token_role::query) use.heads = x.in.heads();
  use.kv_heads = kv_heads_of(x, kv_heads);
  use.dim = x.in.dim();
  use.q_tokens = &tokens;
  return use;
}

/// The side that heads are of; any one where encodings do not tell them apart.
POSENC_ALWAYS_INLINE token_role role_of(const rotate_options& options) noexcept {
  return options.role.value_or(token_role::key);
}

/// Queries that are turned as keys give scores that look right: nothing is guessed.
template <class E>
maybe_error check_role(const E& encoding, const rotate_options& options) noexcept {
  if (options.role || !tells_roles_apart(encoding)) return {};
  return make_error(errc::invalid_value, "options.role",
                    "is not given and the encoding turns queries and keys differently; allowed: token_role::query or "
                    "token_role::key, what the heads are (an encoding that turns both alike says so: "
                    "rotation_depends_on_role = false)");
}

template <rotary_encoding E, class In, class Out>
maybe_error check_rotation(const rotated_heads<In, Out>& x, const token_view& tokens, const E& encoding,
                           const rotate_options& options) noexcept {
  if (maybe_error e = check_heads(x, tokens)) return e;
  if (maybe_error e = check_role(encoding, options)) return e;
  if (maybe_error e = check_kv_heads(x, options.kv_heads)) return e;
  return check_encoding(encoding, use_of(x, tokens, options.kv_heads));
}

/// Queries and keys of the same tokens.
template <rotary_encoding E, class Q, class QOut, class K, class KOut>
maybe_error check_rotation_pair(const rotated_heads<Q, QOut>& q, const rotated_heads<K, KOut>& k,
                                const token_view& tokens, const E& encoding) noexcept {
  if (maybe_error e = check_heads(q, tokens)) return e;
  if (maybe_error e = check_heads(k, tokens)) return e;
  if (q.in.heads() % k.in.heads() != 0)
    return make_error(errc::invalid_shape, q.in_name, "has %td heads; allowed: a multiple of the %td heads of %s",
                      q.in.heads(), k.in.heads(), k.in_name);
  if (maybe_error e = check_extent(k.in, k.in_name, 0, q.in.batch(), q.in_name)) return e;
  if (maybe_error e = check_extent(k.in, k.in_name, 3, q.in.dim(), q.in_name)) return e;
  const auto shared = [](const char* written, const char* other) {
    return make_error(errc::invalid_layout, written, "overlaps %s; allowed: memory of its own", other);
  };
  if (overlaps(q.out, k.out)) return shared(k.out_name, q.out_name);
  if (!in_place(k) && overlaps(q.out, k.in)) return shared(q.out_name, k.in_name);
  if (!in_place(q) && overlaps(k.out, q.in)) return shared(k.out_name, q.in_name);
  return check_encoding(encoding, {q.in.heads(), k.in.heads(), q.in.dim(), &tokens, nullptr});
}

template <rotary_encoding From, rotary_encoding To, class In, class Out>
maybe_error check_rerotation(const rotated_heads<In, Out>& x, const token_view& tokens, const From& from, const To& to,
                             const double& shift, const rotate_options& options) noexcept {
  if (!is_position(shift))
    return make_error(errc::invalid_value, "shift", "is %g; allowed: a finite number within +-2^53", shift);
  if (maybe_error e = check_rotation(x, tokens, from, options)) return e;
  return check_rotation(x, tokens, to, options);
}

}  // namespace detail

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_ROTATE_CHECKS_HPP
