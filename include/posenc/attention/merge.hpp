// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_MERGE_HPP
#define POSENC_ATTENTION_MERGE_HPP

#include <cmath>
#include <concepts>
#include <initializer_list>
#include <span>
#include <type_traits>

#include "../core/error.hpp"
#include "../core/finite.hpp"
#include "../core/minus_infinity.hpp"
#include "../core/tensor_view.hpp"
#include "checks.hpp"
#include "options.hpp"

namespace posenc::inline POSENC_ABI {

/// The result of attention over some of the keys: `out` [batch, heads, queries, value_dim], and `lse` [batch, heads,
/// queries] contiguous. Computed without sinks.
template <std::floating_point Real>
struct attention_part {
  tensor_view<const Real> out;
  const Real* lse = nullptr;
};

namespace detail {

template <class Real>
maybe_error check_merge(std::span<const attention_part<Real>> parts, const tensor_view<Real>& out,
                        const attention_options& options) noexcept {
  if (parts.empty()) return make_error(errc::invalid_shape, "parts", "is empty; allowed: at least one part");
  if (maybe_error e = check_layout(out, "out", true)) return e;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (std::size_t axis = 0; axis < 4; ++axis)
      if (parts[i].out.extent(axis) != out.extent(axis))
        return make_error(errc::invalid_shape, "parts", "part %zu has extent %td on axis %zu; allowed: %td, like out",
                          i, parts[i].out.extent(axis), axis, out.extent(axis));
    if (maybe_error e = check_layout(parts[i].out, "parts", false)) return e;
    if (!identical(out, parts[i].out) && overlaps(out, parts[i].out))
      return make_error(errc::invalid_layout, "out",
                        "overlaps part %zu; allowed: memory of its own, or exactly a part's", i);
    if (!out.empty() && parts[i].lse == nullptr)
      return make_error(errc::invalid_layout, "parts", "part %zu has a null lse", i);
  }
  if (options.scale || options.softcap != 0)
    return make_error(errc::invalid_value, "options", "has a scale or a softcap; allowed: sinks and lse only");
  if (maybe_error e = check_options(options, out.batch(), out.heads(), out.tokens())) return e;
  if (options.lse.meets(out)) return lse_overlap("out");
  for (const attention_part<Real>& part : parts)
    if (options.lse.meets(part.out)) return lse_overlap("the out of a part");
  return {};
}

}  // namespace detail

/// What merge would raise, as a value.
template <std::floating_point Real>
maybe_error check(std::span<const attention_part<Real>> parts, const tensor_view<Real>& out,
                  const attention_options& options = {}) noexcept {
  return detail::check_merge(parts, out, options);
}

/// Joins results over disjoint sets of keys into the result over all of them, exactly: each part counts with
/// e^(its lse - the whole lse) (Milakov and Gimelshein, arXiv:1805.02867). Sinks (options.sinks) are added here, once: a
/// row that saw nothing in any part comes out 0 with lse = its sink. options.lse gets the whole's lse; the other
/// options must be left alone. `out` may be the out of one of the parts.
template <std::floating_point Real>
void merge(std::span<const attention_part<Real>> parts, const tensor_view<Real>& out,
           const attention_options& options = {}) {
  raise_if(detail::check_merge(parts, out, options));
  for (index_t b = 0; b < out.batch(); ++b)
    for (index_t h = 0; h < out.heads(); ++h)
      for (index_t t = 0; t < out.tokens(); ++t) {
        const auto lse_at = [&](const attention_part<Real>& part) -> const Real& {
          return part.lse[(b * out.heads() + h) * out.tokens() + t];
        };
        bool any = options.sinks.size() > 0;
        double top = any ? options.sinks[h] : 0;
        for (const attention_part<Real>& part : parts) {
          if (detail::is_minus_infinity(lse_at(part))) continue;
          const auto lse = static_cast<double>(lse_at(part));
          top = !any || lse > top ? lse : top;
          any = true;
        }
        double sum = options.sinks.size() > 0 ? std::exp(options.sinks[h] - top) : 0;
        for (const attention_part<Real>& part : parts) {
          if (!detail::is_minus_infinity(lse_at(part))) sum += std::exp(static_cast<double>(lse_at(part)) - top);
        }
        constexpr index_t chunk = 64;  // summed in double, written once
        for (index_t first = 0; first < out.dim(); first += chunk) {
          const index_t n = out.dim() - first < chunk ? out.dim() - first : chunk;
          double values[chunk] = {};
          for (const attention_part<Real>& part : parts) {
            if (detail::is_minus_infinity(lse_at(part))) continue;
            const double factor = std::exp(static_cast<double>(lse_at(part)) - top) / sum;
            const Real* from = part.out.row(b, h, t) + first;
            for (index_t d = 0; d < n; ++d) values[d] += factor * static_cast<double>(from[d]);
          }
          for (index_t d = 0; d < n; ++d) out.row(b, h, t)[first + d] = static_cast<Real>(values[d]);
        }
        if (!options.lse) continue;
        if (any) {
          options.lse.set(b, h, t, top + std::log(sum));
        } else {
          options.lse.set_minus_infinity(b, h, t);
        }
      }
}

template <std::floating_point Real>
void merge(std::initializer_list<attention_part<Real>> parts, const tensor_view<Real>& out,
           const attention_options& options = {}) {
  merge(std::span<const attention_part<Real>>(parts.begin(), parts.size()), out, options);
}

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ATTENTION_MERGE_HPP
