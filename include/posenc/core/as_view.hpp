// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_CORE_AS_VIEW_HPP
#define POSENC_CORE_AS_VIEW_HPP

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "dtype.hpp"
#include "tensor_view.hpp"

namespace posenc::inline POSENC_ABI {

/// How a type is seen as a `tensor_view`: specialise it for a type of your own with
/// `static tensor_view<Element> view(X& x)`; X may be const, then Element is const too.
/// There are specialisations for `tensor_view` itself and for mdspan-like objects; `posenc/core/eigen.hpp` adds
/// Eigen's matrices, maps and blocks.
template <class X>
struct view_traits;

template <class T>
struct view_traits<tensor_view<T>> {
  static constexpr tensor_view<T> view(const tensor_view<T>& x) noexcept { return x; }
};

template <class T>
struct view_traits<const tensor_view<T>> : view_traits<tensor_view<T>> {};

/// What std::mdspan and its look-alikes offer.
template <class X>
concept mdspan_like = requires(const X& x, std::size_t i) {
  typename X::element_type;
  { X::rank() } -> std::convertible_to<std::size_t>;
  { x.extent(i) } -> std::convertible_to<index_t>;
  { x.stride(i) } -> std::convertible_to<index_t>;
  { x.data_handle() } -> std::convertible_to<typename X::element_type*>;
};

/// Rank 4 is [batch, heads, tokens, dim], rank 3 [heads, tokens, dim], rank 2 [tokens, dim]. The stride of dim is 1.
template <mdspan_like X>
  requires(X::rank() >= 2 && X::rank() <= 4)
struct view_traits<X> {
  using element = typename std::remove_cv_t<X>::element_type;

  static constexpr tensor_view<element> view(const X& x) noexcept {
    constexpr std::size_t missing = 4 - X::rank();
    std::array<index_t, 4> extents{1, 1, 1, 1}, strides{0, 0, 0, 1};
    for (std::size_t i = 0; i < X::rank(); ++i) {
      extents[missing + i] = static_cast<index_t>(x.extent(i));
      strides[missing + i] = static_cast<index_t>(x.stride(i));
    }
    return {x.data_handle(), extents, strides};
  }
};

/// A type that `as_view` takes.
template <class X>
concept viewable = requires(std::remove_reference_t<X>& x) { view_traits<std::remove_reference_t<X>>::view(x); };

namespace detail {
template <class X>
consteval bool check_viewable() {
  static_assert(viewable<X>,
                "posenc: this argument has no tensor view: pass a posenc::tensor_view, an Eigen matrix or map (include "
                "posenc/core/eigen.hpp), an mdspan-like object, or specialise posenc::view_traits for its type");
  return viewable<X>;
}
}  // namespace detail

/// The view of x's memory as [batch, heads, tokens, dim]. Only memory is looked at: nothing is copied or converted.
template <class X>
constexpr auto as_view(X&& x) {
  if constexpr (detail::check_viewable<X>()) return view_traits<std::remove_reference_t<X>>::view(x);
}

/// The element type of a viewable argument, const or not.
template <viewable X>
using view_element = typename decltype(view_traits<std::remove_reference_t<X>>::view(
    std::declval<std::remove_reference_t<X>&>()))::element_type;

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_CORE_AS_VIEW_HPP
