// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_MERGE_HPP
#define POSENC_ATTENTION_MERGE_HPP

#include <cmath>
#include <concepts>
#include <initializer_list>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>

#include "../core/as_view.hpp"
#include "../core/dtype.hpp"
#include "../core/eigen.hpp"
#include "../core/error.hpp"
#include "../core/executor.hpp"
#include "../core/finite.hpp"
#include "../core/minus_infinity.hpp"
#include "../core/tensor_view.hpp"
#include "../simd/convert.hpp"
#include "checks.hpp"
#include "options.hpp"

namespace posenc::inline POSENC_ABI {

/// The result of attention over some of the keys, float or double: `out` [batch, heads, queries, value_dim], and `lse`
/// [batch, heads, queries] contiguous. Computed without sinks.
template <std::floating_point Real>
struct attention_part {
  using value_type = Real;

  tensor_view<const Real> out;
  const Real* lse = nullptr;
};

namespace detail {
template <class P>
inline constexpr bool is_part = false;
template <class Real>
inline constexpr bool is_part<attention_part<Real>> = true;
}  // namespace detail

/// An array, std::array, std::vector, std::span or std::initializer_list of `attention_part`s.
template <class R>
concept contiguous_parts = requires(const R& r) {
  { std::size(r) } -> std::convertible_to<std::size_t>;
  requires detail::is_part<std::remove_cvref_t<decltype(*std::data(r))>>;
};

namespace detail {

template <contiguous_parts R>
using part_of = std::remove_cvref_t<decltype(*std::data(std::declval<const R&>()))>;

template <contiguous_parts R>
std::span<const part_of<R>> span_of(const R& parts) noexcept {
  return {std::data(parts), static_cast<std::size_t>(std::size(parts))};
}

template <class Parts>
consteval bool check_is_parts() {
  static_assert(contiguous_parts<Parts>,
                "posenc: merge takes its parts as a contiguous range (std::vector, std::array, std::span, an array) of "
                "posenc::attention_part<float> or of posenc::attention_part<double>");
  return contiguous_parts<Parts>;
}

template <class Real, class Out>
consteval bool check_merge_types() {
  if constexpr (check_viewable<Out>()) {
    using element = view_element<Out>;
    constexpr bool known = scalar<Real> && scalar<element>;
    static_assert(known,
                  "posenc: parts must be of float or double, and out must have elements of type float, double, "
                  "Eigen::half or Eigen::bfloat16 (integers that hold 16-bit numbers: use posenc::as_half or "
                  "posenc::as_bfloat16)");
    if constexpr (known) {
      constexpr bool mixes = mixable<Real, element>;
      static_assert(mixes,
                    "posenc: parts of float are merged into float, half or bfloat16, parts of double into double: "
                    "convert the odd one");
      constexpr bool writes = !mixes || !std::is_const_v<element>;
      static_assert(writes, "posenc: out is const: merge writes to it");
      return mixes && writes;
    }
  }
  return false;
}

/// A part's lse as a tensor of rows of one number.
template <class Real>
tensor_view<const Real> lse_rows(const attention_part<Real>& part) noexcept {
  return view_bhtd(part.lse, part.out.batch(), part.out.heads(), part.out.tokens(), index_t{1});
}

template <class Real, class Out>
maybe_error check_merge(std::span<const attention_part<Real>> parts, const tensor_view<Out>& out,
                        const attention_options& options) noexcept {
  if (parts.empty()) return make_error(errc::invalid_shape, "parts", "is empty; allowed: at least one part");
  if (maybe_error e = check_layout(out, "out", true)) return e;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (std::size_t axis = 0; axis < 4; ++axis)
      if (parts[i].out.extent(axis) != out.extent(axis))
        return make_error(errc::invalid_shape, "parts", "part %zu has extent %td on axis %zu; allowed: %td, like out%s",
                          i, parts[i].out.extent(axis), axis, out.extent(axis), shared_hint(out, parts[i].out));
    if (maybe_error e = check_layout(parts[i].out, "parts", false)) return e;
    if (!identical(out, parts[i].out) && overlaps(out, parts[i].out))
      return make_error(errc::invalid_layout, "out",
                        "overlaps part %zu; allowed: memory of its own, or exactly a part's", i);
    if (out.batch() == 0 || out.heads() == 0 || out.tokens() == 0) continue;  // rows without elements have an lse
    if (parts[i].lse == nullptr) return make_error(errc::invalid_layout, "parts", "part %zu has a null lse", i);
    if (overlaps(out, lse_rows(parts[i])))
      return make_error(errc::invalid_layout, "out", "overlaps the lse of part %zu; allowed: memory of its own", i);
  }
  if (options.scale || options.softcap != 0)
    return make_error(errc::invalid_value, "options", "has a scale or a softcap; allowed: sinks and lse only");
  if (maybe_error e = check_options(options, out.batch(), out.heads(), out.tokens())) return e;
  if (options.lse.meets(out)) return lse_overlap("out");
  for (const attention_part<Real>& part : parts) {
    if (options.lse.meets(part.out)) return lse_overlap("the out of a part");
    if (options.lse.meets(lse_rows(part)) && !options.lse.is(lse_rows(part)))
      return make_error(errc::invalid_layout, "options.lse",
                        "overlaps the lse of a part; allowed: memory of its own, or exactly a part's");
  }
  return {};
}

/// One row. Sums are formed in double and rounded to the compute type; 16-bit elements are rounded from that.
template <class Real, class Out>
void merge_row(std::span<const attention_part<Real>> parts, const tensor_view<Out>& out,
               const attention_options& options, index_t b, index_t h, index_t t) noexcept {
  const auto lse_at = [&](const attention_part<Real>& part) -> const Real& {
    return part.lse[(b * out.heads() + h) * out.tokens() + t];
  };
  bool any = options.sinks.size() > 0;
  double top = any ? options.sinks[h] : 0;
  for (const attention_part<Real>& part : parts) {
    if (is_minus_infinity(lse_at(part))) continue;
    const auto lse = static_cast<double>(lse_at(part));
    top = !any || lse > top ? lse : top;
    any = true;
  }
  double sum = options.sinks.size() > 0 ? std::exp(options.sinks[h] - top) : 0;
  for (const attention_part<Real>& part : parts) {
    if (!is_minus_infinity(lse_at(part))) sum += std::exp(static_cast<double>(lse_at(part)) - top);
  }
  constexpr index_t chunk = 64;  // out may be a part: all parts are read before a chunk is written
  for (index_t first = 0; first < out.dim(); first += chunk) {
    const index_t n = out.dim() - first < chunk ? out.dim() - first : chunk;
    double values[chunk] = {};
    for (const attention_part<Real>& part : parts) {
      if (is_minus_infinity(lse_at(part))) continue;
      const double factor = std::exp(static_cast<double>(lse_at(part)) - top) / sum;
      const Real* from = part.out.row(b, h, t) + first;
      for (index_t d = 0; d < n; ++d) values[d] += factor * static_cast<double>(from[d]);
    }
    Real rounded[chunk];
    for (index_t d = 0; d < n; ++d) rounded[d] = static_cast<Real>(values[d]);
    simd::store_row(static_cast<const Real*>(rounded), n, out.row(b, h, t) + first);
  }
  if (!options.lse) return;
  if (any) {
    options.lse.set(b, h, t, top + std::log(sum));
  } else {
    options.lse.set_minus_infinity(b, h, t);
  }
}

template <class Real, class Out, executor X>
void merge_parts(std::span<const attention_part<Real>> parts, const tensor_view<Out>& out,
                 const attention_options& options, X& executor) {
  raise_if(check_merge(parts, out, options));
  const index_t heads = out.heads(), tokens = out.tokens();
  const auto bytes_a_row =
      out.dim() * static_cast<index_t>(sizeof(Out)) * (static_cast<index_t>(parts.size()) + index_t{1});
  run_steps(out.batch() * heads * tokens, bytes_a_row, executor, [&](index_t first, index_t last) {
    for (index_t row = first; row < last; ++row)
      merge_row(parts, out, options, row / tokens / heads, row / tokens % heads, row % tokens);
  });
}

}  // namespace detail

/// What merge would raise, as a value. Never throws, allocates nothing.
template <std::floating_point Real, class Out>
maybe_error check(std::span<const attention_part<Real>> parts, Out&& out,
                  const attention_options& options = {}) noexcept {
  if constexpr (detail::check_merge_types<Real, std::remove_reference_t<Out>>())
    return detail::check_merge(parts, as_view(out), options);
}
template <contiguous_parts Parts, class Out>
maybe_error check(const Parts& parts, Out&& out, const attention_options& options = {}) noexcept {
  return check(detail::span_of(parts), out, options);
}

/// Joins results over disjoint sets of keys into the result over all of them, exactly: each part counts with
/// e^(its lse - the whole lse) (Milakov and Gimelshein, arXiv:1805.02867).
///
/// `parts` is a contiguous range of `attention_part<float>` or `attention_part<double>` (std::vector, std::array,
/// std::span, an array), or a list in braces, merge<float>({{out_a, lse_a}, {out_b, lse_b}}, out). `out` [batch, heads,
/// queries, value_dim] is anything that has a view; it may be the out of one of the parts. Parts of float are merged into
/// float, half or bfloat16 (the float result, rounded), parts of double into double.
///
/// Sinks (options.sinks) are added here, once: a row that saw nothing in any part comes out 0 with lse = its sink.
/// options.lse gets the whole's lse, in a part's place if you like; the other options must be left alone. The executor
/// does not change a bit of the result.
///
/// Errors: `check` with the same arguments (without the executor) gives them as a value: invalid_shape (no parts, extents,
/// sinks), invalid_layout (null data, rows that share elements, overlaps), invalid_value. Nothing has been written when one
/// is raised.
template <std::floating_point Real, class Out, class Executor = serial_executor>
void merge(std::span<const attention_part<Real>> parts, Out&& out, const attention_options& options = {},
           Executor&& executor = {}) {
  if constexpr (detail::check_merge_types<Real, std::remove_reference_t<Out>>())
    detail::merge_parts(parts, as_view(out), options, executor);
}
template <class Parts, class Out, class Executor = serial_executor>
void merge(const Parts& parts, Out&& out, const attention_options& options = {}, Executor&& executor = {}) {
  if constexpr (detail::check_is_parts<Parts>()) merge(detail::span_of(parts), out, options, executor);
}
template <std::floating_point Real, class Out, class Executor = serial_executor>
void merge(std::initializer_list<attention_part<Real>> parts, Out&& out, const attention_options& options = {},
           Executor&& executor = {}) {
  merge(detail::span_of(parts), out, options, executor);
}

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ATTENTION_MERGE_HPP
