// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_ROTATED_DIMS_HPP
#define POSENC_ENCODING_ROTATED_DIMS_HPP

#include <concepts>

#include "concepts.hpp"

namespace posenc::inline POSENC_ABI {

/// `posenc::dim_range rotated_dims(posenc::rotation_shape) const`: the dimensions that a rotary encoding turns, optional.
/// `combine` reads it: two rotations of one dimension are an error there. Without it the whole head counts as turned. An
/// empty range says that the order in which it is combined with others does not matter (it only scales, say).
template <class E>
concept has_rotated_dims = requires(const E& e, rotation_shape s) {
  { e.rotated_dims(s) } -> std::convertible_to<dim_range>;
};

namespace detail {

template <class E>
dim_range rotated_dims_of(const E& e, rotation_shape shape) {
  if constexpr (has_rotated_dims<E>) {
    return e.rotated_dims(shape);
  } else {
    static_cast<void>(e);
    return {0, shape.head_dim};
  }
}

/// The smallest range that holds both.
constexpr dim_range hull(dim_range a, dim_range b) noexcept {
  if (a.begin >= a.end) return b;
  if (b.begin >= b.end) return a;
  return {a.begin < b.begin ? a.begin : b.begin, a.end > b.end ? a.end : b.end};
}

/// Whether a dimension is in both.
constexpr bool meet(dim_range a, dim_range b) noexcept {
  return (a.begin > b.begin ? a.begin : b.begin) < (a.end < b.end ? a.end : b.end);
}

/// Whether queries and keys turn differently; a rotary encoding says `static constexpr bool rotation_depends_on_role =
/// false` if they do not.
template <class E>
constexpr bool depends_on_role() {
  if constexpr (!acts_on<E, on_queries_keys>) {
    return false;
  } else if constexpr (requires { E::rotation_depends_on_role; }) {
    return E::rotation_depends_on_role;
  } else {
    return true;
  }
}

/// The same of one encoding: what is chosen at run time asks the one that it holds.
template <class E>
bool tells_roles_apart(const E& encoding) noexcept {
  if constexpr (!depends_on_role<E>()) {
    return false;
  } else if constexpr (requires { encoding.tells_roles_apart(); }) {
    return encoding.tells_roles_apart();
  } else {
    return true;
  }
}

}  // namespace detail

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_ROTATED_DIMS_HPP
