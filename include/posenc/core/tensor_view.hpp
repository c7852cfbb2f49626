// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_CORE_TENSOR_VIEW_HPP
#define POSENC_CORE_TENSOR_VIEW_HPP

#include <array>
#include <concepts>
#include <type_traits>
#include <utility>

#include "error.hpp"
#include "platform.hpp"

namespace posenc::inline POSENC_ABI {

/// A view of a tensor [batch, heads, tokens, dim] in the caller's memory. Strides are in elements and may be anything
/// (also zero, to share rows, in inputs); only the elements of one row lie side by side: the stride of dim is 1.
/// Member names are those of std::mdspan.
template <class T>
class tensor_view {
 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;
  using index_type = index_t;

  constexpr tensor_view() noexcept = default;

  /// Any layout: extents and strides of [batch, heads, tokens, dim].
  constexpr tensor_view(T* data, std::array<index_t, 4> extents, std::array<index_t, 4> strides) noexcept
      : data_(data), extents_(extents), strides_(strides) {}

  /// The same memory, read only.
  template <class U>
    requires(std::same_as<const U, T> && !std::is_const_v<U>)
  constexpr tensor_view(const tensor_view<U>& other) noexcept  // NOLINT(google-explicit-constructor)
      : data_(other.data_handle()),
        extents_{other.extent(0), other.extent(1), other.extent(2), other.extent(3)},
        strides_{other.stride(0), other.stride(1), other.stride(2), other.stride(3)},
        from_columns_(other.from_columns()) {}

  static constexpr std::size_t rank() noexcept { return 4; }
  constexpr index_t extent(std::size_t i) const noexcept { return extents_[i]; }
  constexpr index_t stride(std::size_t i) const noexcept { return strides_[i]; }
  constexpr T* data_handle() const noexcept { return data_; }

  constexpr index_t batch() const noexcept { return extents_[0]; }
  constexpr index_t heads() const noexcept { return extents_[1]; }
  constexpr index_t tokens() const noexcept { return extents_[2]; }
  constexpr index_t dim() const noexcept { return extents_[3]; }
  constexpr bool empty() const noexcept {
    return extents_[0] == 0 || extents_[1] == 0 || extents_[2] == 0 || extents_[3] == 0;
  }

  /// The first of the `dim()` elements of one head of one token.
  constexpr T* row(index_t batch, index_t head, index_t token) const noexcept {
    return data_ + batch * strides_[0] + head * strides_[1] + token * strides_[2];
  }
  constexpr T& operator()(index_t batch, index_t head, index_t token, index_t d) const noexcept {
    return row(batch, head, token)[d * strides_[3]];
  }

  /// Tokens [first, first + count) of all heads of all rows. Errors: out_of_range.
  constexpr tensor_view tokens(index_t first, index_t count) const { return part(2, "tokens", first, count); }
  /// Heads [first, first + count). Errors: out_of_range.
  constexpr tensor_view heads(index_t first, index_t count) const { return part(1, "heads", first, count); }
  /// Rows [first, first + count) of the batch. Errors: out_of_range.
  constexpr tensor_view batch(index_t first, index_t count) const { return part(0, "batch", first, count); }

  /// Whether this view came from a column-major matrix, which is read as dim x tokens; error texts say so.
  constexpr bool from_columns() const noexcept { return from_columns_; }
  constexpr tensor_view& set_from_columns(bool value) noexcept {
    from_columns_ = value;
    return *this;
  }

 private:
  constexpr tensor_view part(std::size_t axis, const char* name, index_t first, index_t count) const {
    if (first < 0 || count < 0 || count > extents_[axis] - first)
      raise(make_error(errc::out_of_range, name, "[%td, %td + %td) reach beyond the view's %td; allowed: a part of it",
                       first, first, count, extents_[axis]));
    tensor_view result = *this;
    if (count > 0) result.data_ += first * strides_[axis];
    result.extents_[axis] = count;
    return result;
  }

  T* data_ = nullptr;
  std::array<index_t, 4> extents_{};
  std::array<index_t, 4> strides_{};
  bool from_columns_ = false;
};

/// Contiguous [batch, heads, tokens, dim].
template <class T>
constexpr tensor_view<T> view_bhtd(T* data, index_t batch, index_t heads, index_t tokens, index_t dim) noexcept {
  return {data, {batch, heads, tokens, dim}, {heads * tokens * dim, tokens * dim, dim, 1}};
}

/// Contiguous [batch, tokens, heads, dim].
template <class T>
constexpr tensor_view<T> view_bthd(T* data, index_t batch, index_t tokens, index_t heads, index_t dim) noexcept {
  return {data, {batch, heads, tokens, dim}, {tokens * heads * dim, dim, heads * dim, 1}};
}

/// Contiguous [tokens, heads, dim]: one row, or sequences one after another (ragged, see `token_view::with_cu_seqlens`).
template <class T>
constexpr tensor_view<T> view_thd(T* data, index_t tokens, index_t heads, index_t dim) noexcept {
  return view_bthd(data, index_t{1}, tokens, heads, dim);
}

/// One part of a fused projection [batch, tokens, width], whose rows hold the heads of q, then k, then v, say:
/// `heads` heads of `dim` elements from column `first` on. Errors: out_of_range for heads that reach beyond the row.
template <class T>
constexpr tensor_view<T> view_fused(T* data, index_t batch, index_t tokens, index_t width, index_t first, index_t heads,
                                    index_t dim) {
  // The product of sensible numbers does not overflow; of others, each alone is more than the row.
  if (first < 0 || heads < 0 || dim < 0 || first > width || (heads > 0 && dim > (width - first) / heads))
    raise(make_error(errc::out_of_range, "first",
                     "is %td: %td heads of %td from there on do not fit a row of %td; allowed: columns 0 to %td", first,
                     heads, dim, width, width));
  return {data + first, {batch, heads, tokens, dim}, {tokens * width, dim, width, 1}};
}

namespace detail {

/// Offsets i0 * stride0 + ... of a box of indices, each from low to high: which distances are among them?
struct lattice {
  std::array<index_t, 4> low, high, strides;

  /// The largest strides first, so that few steps of each can leave a rest that the others reach.
  void sort() noexcept {
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t j = i + 1; j < 4; ++j)
        if (strides[j] > strides[i]) {
          std::swap(strides[i], strides[j]);
          std::swap(low[i], low[j]);
          std::swap(high[i], high[j]);
        }
  }

  /// Whether the axes from `axis` on make up `delta`. Strides are not negative. After `budget` steps: true.
  bool reaches(index_t delta, std::size_t axis, index_t& budget) const noexcept {
    if (axis == 4) return delta == 0;
    if (--budget < 0) return true;
    const index_t stride = strides[axis];
    if (stride == 0) return reaches(delta, axis + 1, budget);
    index_t least = 0, most = 0;
    for (std::size_t i = axis + 1; i < 4; ++i) {
      least += low[i] * strides[i];
      most += high[i] * strides[i];
    }
    // delta - step * stride must lie between least and most.
    const index_t above = delta - least, below = delta - most;
    index_t last = above >= 0 ? above / stride : -((-above + stride - 1) / stride);
    index_t first = below >= 0 ? (below + stride - 1) / stride : -(-below / stride);
    first = first < low[axis] ? low[axis] : first;
    last = last > high[axis] ? high[axis] : last;
    for (index_t step = first; step <= last; ++step)
      if (reaches(delta - step * stride, axis + 1, budget)) return true;
    return false;
  }
};

/// Steps after which a search gives up and takes it that elements meet.
inline constexpr index_t overlap_budget = 100000;

/// Whether two rows of one view share an element.
template <class T>
bool overlaps_itself(const tensor_view<T>& x) noexcept {
  if (x.empty()) return false;
  lattice steps{};
  for (std::size_t i = 0; i < 4; ++i) {
    const index_t stride = x.extent(i) > 1 ? x.stride(i) : 0;
    steps.strides[i] = stride < 0 ? -stride : stride;
    steps.low[i] = -(x.extent(i) - 1);
    steps.high[i] = x.extent(i) - 1;
    if (x.extent(i) > 1 && x.stride(i) == 0) return true;
  }
  steps.sort();
  // A distance of zero with the first index that differs `step` higher.
  index_t budget = overlap_budget;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    index_t reach = 0;
    for (std::size_t i = axis + 1; i < 4; ++i) reach += steps.high[i] * steps.strides[i];
    for (index_t step = 1; step <= steps.high[axis] && step * steps.strides[axis] <= reach; ++step)
      if (steps.reaches(step * steps.strides[axis], axis + 1, budget)) return true;
  }
  return false;
}

/// Whether the two sets of elements meet: exactly where both have the same element size and strides, else by the range
/// of addresses.
template <class A, class B>
bool overlaps(const tensor_view<A>& a, const tensor_view<B>& b) noexcept {
  if (a.empty() || b.empty()) return false;
  struct range {
    const char *first, *last;
  };
  const auto range_of = [](const auto& view) {
    index_t low = 0, high = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const index_t reach = (view.extent(i) - 1) * view.stride(i);
      (reach < 0 ? low : high) += reach;
    }
    return range{reinterpret_cast<const char*>(view.data_handle() + low),
                 reinterpret_cast<const char*>(view.data_handle() + high + 1)};
  };
  const range ra = range_of(a), rb = range_of(b);
  if (ra.last <= rb.first || rb.last <= ra.first) return false;
  bool same = sizeof(A) == sizeof(B);
  lattice both{};
  for (std::size_t i = 0; i < 4; ++i) {
    const bool single = a.extent(i) == 1 && b.extent(i) == 1;
    same = same && (single || (a.stride(i) == b.stride(i) && a.stride(i) >= 0));
    both.low[i] = -(b.extent(i) - 1);
    both.high[i] = a.extent(i) - 1;
    both.strides[i] = single ? 0 : a.stride(i);
  }
  const index_t bytes = reinterpret_cast<const char*>(b.data_handle()) - reinterpret_cast<const char*>(a.data_handle());
  if (!same || bytes % static_cast<index_t>(sizeof(A)) != 0) return true;
  both.sort();
  index_t budget = overlap_budget;
  return both.reaches(bytes / static_cast<index_t>(sizeof(A)), 0, budget);
}

/// Whether two views name the same elements in the same order.
template <class A, class B>
bool identical(const tensor_view<A>& a, const tensor_view<B>& b) noexcept {
  if (static_cast<const void*>(a.data_handle()) != static_cast<const void*>(b.data_handle())) return false;
  if (sizeof(A) != sizeof(B)) return false;
  for (std::size_t i = 0; i < 4; ++i)
    if (a.extent(i) != b.extent(i) || (a.extent(i) > 1 && a.stride(i) != b.stride(i))) return false;
  return true;
}

}  // namespace detail

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_CORE_TENSOR_VIEW_HPP
