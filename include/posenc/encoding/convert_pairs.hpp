// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_CONVERT_PAIRS_HPP
#define POSENC_ENCODING_CONVERT_PAIRS_HPP

#include <algorithm>
#include <type_traits>
#include <vector>

#include "../core/error.hpp"
#include "../core/platform.hpp"
#include "pairing.hpp"

namespace posenc::inline POSENC_ABI {

/// How the rows of a weight change places.
struct pair_conversion {
  pairing from = pairing::half;
  pairing to = pairing::interleaved;
  index_t head_dim = 0;
  index_t rotary_dim = 0;     ///< rotated dimensions of a head; 0: all of them
  index_t offset = 0;         ///< the first rotated dimension
  index_t row_stride = 0;     ///< elements from row to row; 0: the number of columns
  index_t column_stride = 1;  ///< elements from column to column; 1 with row_stride: rows of a larger matrix
};

/// The error that `convert_pairs` with these arguments would raise, as a value.
inline maybe_error check_convert_pairs(const void* weights, index_t rows, index_t columns,
                                       const pair_conversion& how) noexcept {
  if (how.head_dim < 1) return make_error(errc::invalid_shape, "head_dim", "is %td; allowed: 1 and more", how.head_dim);
  const index_t rotary = how.rotary_dim == 0 ? how.head_dim : how.rotary_dim;
  if (rotary < 0 || rotary % 2 != 0)
    return make_error(errc::invalid_shape, "rotary_dim", "is %td; allowed: an even number > 0", rotary);
  if (how.offset < 0 || how.offset > how.head_dim || rotary > how.head_dim - how.offset)
    return make_error(errc::invalid_shape, "rotary_dim",
                      "is %td from offset %td on in heads of %td; allowed: within the head", rotary, how.offset,
                      how.head_dim);
  if (rows < 0 || rows % how.head_dim != 0)
    return make_error(errc::invalid_shape, "rows", "is %td; allowed: a multiple of head_dim %td, whole heads", rows,
                      how.head_dim);
  if (columns < 0) return make_error(errc::invalid_shape, "columns", "is %td; allowed: 0 and more", columns);
  const bool rows_apart =
      how.column_stride >= 1 &&
      (how.row_stride == 0 ? how.column_stride == 1 : how.row_stride >= columns * how.column_stride);
  const bool columns_apart = how.row_stride >= 1 && how.column_stride >= rows * how.row_stride;
  if (rows > 0 && columns > 1 && !rows_apart && !columns_apart)
    return make_error(
        errc::invalid_layout, "row_stride",
        "is %td and column_stride %td for %td rows and %td columns, which share elements; allowed: rows or "
        "columns of their own",
        how.row_stride, how.column_stride, rows, columns);
  if (rows > 0 && columns > 0 && weights == nullptr)
    return make_error(errc::invalid_layout, "weights", "is null for %td rows", rows);
  return {};
}

/// Rearranges the rows of a projection of queries or keys [heads * head_dim, columns], in place, so that queries and keys
/// come out for the other pairing: for pair i of d rotated dimensions, half pairs are rows i and i + d/2, interleaved ones
/// rows 2i and 2i + 1. Scores stay what they were if Wq, Wk, their biases (one column) and the weights of norms of queries
/// and keys (one column; head_dim rows, or all heads) are converted. Keys of grouped attention have fewer heads, which the
/// rows tell. Values and output projections are not touched by rotations and stay as they are. Elements of any type, whose
/// bits move; weights stored [columns, rows] have row_stride 1 and column_stride rows.
/// Errors: those of `check_convert_pairs`.
template <class T>
  requires std::is_trivially_copyable_v<T>
void convert_pairs(T* weights, index_t rows, index_t columns, const pair_conversion& how) {
  raise_if(check_convert_pairs(weights, rows, columns, how));
  if (how.from == how.to || rows == 0 || columns == 0) return;
  const index_t row_stride = how.row_stride == 0 ? columns : how.row_stride;
  const index_t rotary = how.rotary_dim == 0 ? how.head_dim : how.rotary_dim, pairs = rotary / 2;
  // So many columns at once that the rows of a head fit the first cache.
  const index_t wide = (std::min)(columns, (std::max)(index_t{1}, index_t{16384} / (rotary * index_t{sizeof(T)})));
  std::vector<T> head(static_cast<std::size_t>(rotary * wide));
  const auto place_in = [pairs](pairing p, index_t pair, index_t member) {
    return p == pairing::half ? pair + member * pairs : 2 * pair + member;
  };
  for (index_t first = how.offset; first < rows; first += how.head_dim)
    for (index_t column = 0; column < columns; column += wide) {
      const index_t n = (std::min)(wide, columns - column);
      T* const at = weights + first * row_stride + column * how.column_stride;
      for (index_t r = 0; r < rotary; ++r)
        for (index_t c = 0; c < n; ++c)
          head[static_cast<std::size_t>(r * wide + c)] = at[r * row_stride + c * how.column_stride];
      for (index_t pair = 0; pair < pairs; ++pair)
        for (index_t member = 0; member < 2; ++member) {
          const index_t from = place_in(how.from, pair, member), to = place_in(how.to, pair, member);
          for (index_t c = 0; c < n; ++c)
            at[to * row_stride + c * how.column_stride] = head[static_cast<std::size_t>(from * wide + c)];
        }
    }
}

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_CONVERT_PAIRS_HPP
