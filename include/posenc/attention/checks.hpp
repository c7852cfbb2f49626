// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_CHECKS_HPP
#define POSENC_ATTENTION_CHECKS_HPP

#include "../core/error.hpp"
#include "../core/tensor_view.hpp"
#include "../core/tokens.hpp"

/// Checks that entry points share: shapes, layouts and overlaps of views. None allocates or throws.
namespace posenc::inline POSENC_ABI::detail {

template <class T>
const char* layout_hint(const tensor_view<T>& x) noexcept {
  return x.from_columns() ? " (column-major Eigen data is read as dim x tokens: transpose it or use RowMajor)" : "";
}

/// Null data, negative extents, a stride of dim other than 1; and for outputs, rows that share memory.
template <class T>
maybe_error check_layout(const tensor_view<T>& x, const char* name, bool output) noexcept {
  for (std::size_t i = 0; i < 4; ++i)
    if (x.extent(i) < 0)
      return make_error(errc::invalid_shape, name, "has extent %td; allowed: 0 and more", x.extent(i));
  // Also of empty tensors: there is work for each row of the batch.
  constexpr index_t most = index_t{1} << 48;
  index_t elements = 1;
  for (std::size_t i = 0; i < 4; ++i) {
    if (x.extent(i) > most / elements)
      return make_error(errc::invalid_shape, name,
                        "has extents [%td, %td, %td, %td]; allowed: a product of those that are not 0 of up to 2^48",
                        x.extent(0), x.extent(1), x.extent(2), x.extent(3));
    if (x.extent(i) > 0) elements *= x.extent(i);
  }
  if (x.empty()) return {};
  if (x.data_handle() == nullptr)
    return make_error(errc::invalid_layout, name,
                      "is null with extents [%td, %td, %td, %td]; allowed: null only if empty", x.extent(0),
                      x.extent(1), x.extent(2), x.extent(3));
  if (x.dim() > 1 && x.stride(3) != 1)
    return make_error(errc::invalid_layout, name, "has stride %td between the elements of a row; allowed: 1%s",
                      x.stride(3), layout_hint(x));
  for (std::size_t i = 0; output && i < 3; ++i)
    if (x.extent(i) > 1 && x.stride(i) == 0)
      return make_error(errc::invalid_layout, name,
                        "has stride 0 over %td rows of axis %zu; allowed: rows of their own, since they are written",
                        x.extent(i), i);
  if (output && overlaps_itself(x))
    return make_error(
        errc::invalid_layout, name,
        "has strides [%td, %td, %td] over rows of %td elements, so that rows share memory; allowed: rows of "
        "their own, since they are written",
        x.stride(0), x.stride(1), x.stride(2), x.dim());
  return {};
}

/// The hint, if any of the views came from a column-major matrix.
template <class... Views>
const char* shared_hint(const Views&... views) noexcept {
  const char* hint = "";
  ((hint = views.from_columns() ? layout_hint(views) : hint), ...);
  return hint;
}

template <class T>
maybe_error check_extent(const tensor_view<T>& x, const char* name, std::size_t axis, index_t wanted, const char* like,
                         const char* hint) noexcept {
  static constexpr const char* names[] = {"batch rows", "heads", "tokens", "dim"};
  if (x.extent(axis) == wanted) return {};
  return make_error(errc::invalid_shape, name, "has %td %s; allowed: %td, like %s%s", x.extent(axis), names[axis],
                    wanted, like, hint);
}

template <class T>
maybe_error check_extent(const tensor_view<T>& x, const char* name, std::size_t axis, index_t wanted,
                         const char* like) noexcept {
  return check_extent(x, name, axis, wanted, like, layout_hint(x));
}

/// Shapes of q, k, v and out against each other.
template <class Q, class K, class V, class Out>
maybe_error check_shapes(const tensor_view<Q>& q, const tensor_view<K>& k, const tensor_view<V>& v,
                         const tensor_view<Out>& out) noexcept {
  if (maybe_error e = check_layout(q, "q", false)) return e;
  if (maybe_error e = check_layout(k, "k", false)) return e;
  if (maybe_error e = check_layout(v, "v", false)) return e;
  if (maybe_error e = check_layout(out, "out", true)) return e;
  if (q.dim() < 1) return make_error(errc::invalid_shape, "q", "has head_dim %td; allowed: 1 and more", q.dim());
  if (q.heads() < 1) return make_error(errc::invalid_shape, "q", "has %td heads; allowed: 1 and more", q.heads());
  if (k.heads() < 1) return make_error(errc::invalid_shape, "k", "has %td heads; allowed: 1 and more", k.heads());
  if (v.dim() < 1) return make_error(errc::invalid_shape, "v", "has dim %td; allowed: 1 and more", v.dim());
  if (q.heads() % k.heads() != 0)
    return make_error(errc::invalid_shape, "q", "has %td heads; allowed: a multiple of the %td heads of k", q.heads(),
                      k.heads());
  const char* hint = shared_hint(q, k, v, out);
  if (maybe_error e = check_extent(k, "k", 0, q.batch(), "q", hint)) return e;
  if (maybe_error e = check_extent(k, "k", 3, q.dim(), "q", hint)) return e;
  if (maybe_error e = check_extent(v, "v", 0, q.batch(), "q", hint)) return e;
  if (maybe_error e = check_extent(v, "v", 1, k.heads(), "k", hint)) return e;
  if (maybe_error e = check_extent(v, "v", 2, k.tokens(), "k", hint)) return e;
  if (maybe_error e = check_extent(out, "out", 0, q.batch(), "q", hint)) return e;
  if (maybe_error e = check_extent(out, "out", 1, q.heads(), "q", hint)) return e;
  if (maybe_error e = check_extent(out, "out", 2, q.tokens(), "q", hint)) return e;
  if (maybe_error e = check_extent(out, "out", 3, v.dim(), "v", hint)) return e;
  const auto shared = [](const char* with) {
    return make_error(errc::invalid_layout, "out", "overlaps %s; allowed: memory of its own%s", with,
                      with[0] == 'q' ? ", or exactly q's" : "");
  };
  if (overlaps(out, k)) return shared("k");
  if (overlaps(out, v)) return shared("v");
  if (!identical(out, q) && overlaps(out, q)) return shared("q");
  return {};
}

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ATTENTION_CHECKS_HPP
