// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_POSITION_CHECKS_HPP
#define POSENC_ENCODING_POSITION_CHECKS_HPP

#include <cmath>

#include "../core/error.hpp"
#include "../core/tokens.hpp"
#include "concepts.hpp"

/// What the `check` members of encodings share. All of it allocates nothing and never throws.
namespace posenc::inline POSENC_ABI::detail {

/// Where a position stands that an encoding cannot take.
struct found_position {
  double position = 0;
  index_t row = 0, token = -1;  // -1: there is none

  explicit operator bool() const noexcept { return token >= 0; }
};

/// The first position on the axis for which bad(position, row, token) holds. Of positions that count up from a start (and
/// tokens without documents) only the first and the last are looked at before all are: `bad` must hold for one of the two
/// if it holds anywhere between.
template <class Bad>
found_position find_position(const token_view& tokens, index_t axis, Bad bad) noexcept {
  constexpr index_t chunk = 64;
  double values[chunk];
  for (index_t row = 0; row < tokens.batch(); ++row) {
    const index_t count = tokens.count();
    if (tokens.counts_up() && !tokens.has_documents() && count > 0 &&
        !bad(tokens.position(axis, row, 0), row, index_t{0}) &&
        !bad(tokens.position(axis, row, count - 1), row, count - 1))
      continue;
    for (index_t first = 0; first < count; first += chunk) {
      const index_t n = count - first < chunk ? count - first : chunk;
      tokens.read_positions(axis, row, first, n, values);
      for (index_t i = 0; i < n; ++i)
        if (bad(values[i], row, first + i)) return found_position{values[i], row, first + i};
    }
  }
  return {};
}

/// The axis that an encoding reads must be one that the tokens have.
inline maybe_error check_axis(const char* encoding, index_t axis, const encoding_use& use) noexcept {
  return for_each_side(use, [&](const char* side, const token_view& tokens) -> maybe_error {
    if (axis >= 0 && axis < tokens.axes()) return {};
    if (axis < 0)
      return make_error(errc::mismatch, "encoding", "%s reads the position axis %td; allowed: 0 to %td, the axes of %s",
                        encoding, axis, tokens.axes() - 1, side);
    return make_error(
        errc::mismatch, "encoding",
        "%s reads the position axis %td (counted from 0) and %s has %td %s; allowed: tokens with %td axes "
        "and more",
        encoding, axis, side, tokens.axes(), tokens.axes() == 1 ? "axis" : "axes", axis + 1);
  });
}

/// Encodings that look distances up in a table need whole numbers.
inline maybe_error check_whole_positions(const char* encoding, index_t axis, const encoding_use& use) noexcept {
  if (!use.cached_positions_whole)
    return make_error(errc::invalid_value, "cache", "has keys at fractional positions; %s takes whole numbers only",
                      encoding);
  return for_each_side(use, [&](const char* side, const token_view& tokens) -> maybe_error {
    const auto found = find_position(tokens, axis, [](double p, index_t, index_t) { return p != std::floor(p); });
    if (!found) return {};
    return make_error(errc::invalid_value, side,
                      "has the position %.17g at token %td of row %td; %s takes whole numbers only", found.position,
                      found.token, found.row, encoding);
  });
}

/// An encoding with one entry for each query head.
inline maybe_error check_query_heads(const char* encoding, const char* entries, index_t count,
                                     const encoding_use& use) noexcept {
  if (use.heads == 0 || use.heads == count) return {};
  return make_error(errc::invalid_shape, "encoding",
                    "%s has %s for %td heads; the call has %td query heads, allowed: equal", encoding, entries, count,
                    use.heads);
}

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ENCODING_POSITION_CHECKS_HPP
