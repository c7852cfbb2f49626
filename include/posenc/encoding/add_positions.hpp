// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_ADD_POSITIONS_HPP
#define POSENC_ENCODING_ADD_POSITIONS_HPP

#include <algorithm>
#include <span>
#include <type_traits>
#include <vector>

#include "../attention/checks.hpp"
#include "../core/as_view.hpp"
#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/tokens.hpp"
#include "../simd/convert.hpp"
#include "concepts.hpp"
#include "diagnostics.hpp"

namespace posenc::inline POSENC_ABI {

namespace detail {

template <class X, class Out>
consteval bool check_input_dtypes() {
  constexpr bool known = scalar<X> && scalar<Out>;
  static_assert(known,
                "posenc: embeddings must have elements of type float, double, Eigen::half or Eigen::bfloat16 (integers "
                "that hold 16-bit numbers: use posenc::as_half or posenc::as_bfloat16)");
  if constexpr (known) {
    constexpr bool mixes = mixable<X, Out>;
    static_assert(
        mixes,
        "posenc: x and out mix float, half and bfloat16 freely, but double goes with double only: convert the "
        "odd one");
    constexpr bool writes = !mixes || !std::is_const_v<Out>;
    static_assert(
        writes,
        "posenc: add_positions writes to a const buffer: pass embeddings that are not const, or an out of their "
        "own");
    return mixes && writes;
  }
  return false;
}

template <class X, class Out, class E>
maybe_error check_add_positions(const tensor_view<X>& x, const tensor_view<Out>& out, const token_view& tokens,
                                const E& encoding) noexcept {
  const bool in_place = identical(x, out);
  if (auto e = check_layout(x, "x", in_place)) return e;
  if (auto e = check_layout(out, "out", !in_place)) return e;
  if (x.heads() != 1)
    return make_error(
        errc::invalid_shape, "x",
        "has %td heads; allowed: 1, since positions are added to whole embeddings [batch, 1, tokens, dim] "
        "before they are split into heads",
        x.heads());
  for (std::size_t i = 0; i < 4; ++i)
    if (x.extent(i) != out.extent(i))
      return make_error(errc::invalid_shape, "out",
                        "is [%td, %td, %td, %td] and x [%td, %td, %td, %td]; allowed: equal extents", out.extent(0),
                        out.extent(1), out.extent(2), out.extent(3), x.extent(0), x.extent(1), x.extent(2),
                        x.extent(3));
  if (auto e = check_unordered_tokens(tokens, x.batch(), x.tokens(), "tokens")) return e;
  encoding_use use;
  use.dim = x.dim();
  use.q_tokens = &tokens;
  if (auto e = check_encoding(encoding, use)) {
    if (x.from_columns() && e->code() == errc::invalid_shape)
      return make_error(errc::invalid_shape, "x",
                        "is a column-major matrix, which is read as dim x tokens: %td elements for each of %td tokens, "
                        "which does not fit the encoding (%s); if it is tokens x dim, make it row-major",
                        x.dim(), x.tokens(), e->what());
    return e;
  }
  if (!in_place && overlaps(x, out))
    return make_error(errc::invalid_layout, "out",
                      "overlaps x without being the same tensor; allowed: x itself, or other memory");
  return {};
}

/// Adds to one row. `buffer` holds dim numbers where elements are 16 bits wide.
template <class X, class Out, class E>
void add_to_row(const E& encoding, position_span position, const X* x, Out* out, index_t dim,
                compute_type<Out>* buffer) {
  using real = compute_type<Out>;
  const auto size = static_cast<std::size_t>(dim);
  if constexpr (std::is_same_v<Out, real>) {
    if constexpr (std::is_same_v<std::remove_cv_t<X>, real>) {
      if (x != out) std::copy_n(x, size, out);
    } else {
      simd::load_row(x, dim, out);
    }
    encoding.add_position(position, std::span<real>(out, size));
  } else {
    simd::load_row(x, dim, buffer);
    encoding.add_position(position, std::span<real>(buffer, size));
    simd::store_row(buffer, dim, out);
  }
}

template <class X, class Out, class E>
void add_positions(const tensor_view<X>& x, const tensor_view<Out>& out, const token_view& tokens, const E& encoding) {
  raise_if(check_add_positions(x, out, tokens, encoding));
  if (x.empty()) return;
  using real = compute_type<Out>;
  std::vector<real> buffer(std::is_same_v<Out, real> ? std::size_t{0} : static_cast<std::size_t>(x.dim()));
  double position[max_position_axes] = {};
  for (index_t b = 0; b < x.batch(); ++b)
    for (index_t t = 0; t < x.tokens(); ++t) {
      for (index_t axis = 0; axis < tokens.axes(); ++axis) position[axis] = tokens.position(axis, b, t);
      add_to_row(encoding, position_span(position, static_cast<std::size_t>(tokens.axes())), x.row(b, 0, t),
                 out.row(b, 0, t), x.dim(), buffer.data());
    }
}

}  // namespace detail

/// Adds an input encoding (sinusoidal, learned_positions, a combination, one's own) to embeddings, in place:
/// x [batch, 1, tokens, dim] is anything that has a view, `tokens` says where its tokens stand. 16-bit elements are
/// widened to float and rounded once; only they cost an allocation, of one row. Padding (document -1) gets its position
/// added like every token: nothing reads it later.
///
/// Errors: invalid_shape (several heads, extents, tokens or a width that do not fit), invalid_layout (null data, a stride
/// of dim other than 1, shared rows), invalid_value and out_of_range (positions that the encoding does not take). Nothing
/// has been written then.
template <class X, class E>
void add_positions(X&& x, const token_view& tokens, const E& encoding) {
  if constexpr (detail::check_viewable<X>() && detail::check_input_encoding<E>()) {
    using element = view_element<X>;
    if constexpr (detail::check_input_dtypes<element, element>())
      detail::add_positions(as_view(x), as_view(x), tokens, encoding);
  }
}

/// The same into `out`, of the same extents: x itself, or memory that does not overlap it. float, half and bfloat16 mix.
template <class X, class Out, class E>
void add_positions(X&& x, Out&& out, const token_view& tokens, const E& encoding) {
  if constexpr (detail::check_viewable<X>() && detail::check_viewable<Out>() && detail::check_input_encoding<E>()) {
    if constexpr (detail::check_input_dtypes<view_element<X>, view_element<Out>>())
      detail::add_positions(as_view(x), as_view(out), tokens, encoding);
  }
}

/// The error that `add_positions` with the same arguments would raise, as a value. Allocates nothing, never throws.
template <class X, class E>
  requires acts_on<E, on_inputs>
maybe_error check(X&& x, const token_view& tokens, const E& encoding) noexcept {
  if constexpr (detail::check_viewable<X>() && detail::check_input_encoding<E>()) {
    using element = view_element<X>;
    if constexpr (detail::check_input_dtypes<element, element>())
      return detail::check_add_positions(as_view(x), as_view(x), tokens, encoding);
  }
  return {};
}

template <class X, class Out, class E>
  requires acts_on<E, on_inputs>
maybe_error check(X&& x, Out&& out, const token_view& tokens, const E& encoding) noexcept {
  if constexpr (detail::check_viewable<X>() && detail::check_viewable<Out>() && detail::check_input_encoding<E>()) {
    if constexpr (detail::check_input_dtypes<view_element<X>, view_element<Out>>())
      return detail::check_add_positions(as_view(x), as_view(out), tokens, encoding);
  }
  return {};
}

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_ADD_POSITIONS_HPP
