// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_COS_SIN_TABLES_HPP
#define POSENC_ENCODING_COS_SIN_TABLES_HPP

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/tokens.hpp"
#include "concepts.hpp"
#include "pairing.hpp"
#include "position_checks.hpp"
#include "rope_kernel.hpp"
#include "row_elements.hpp"

namespace posenc::inline POSENC_ABI {

namespace detail {

/// Whether all `pairs` pairs of neighbours are alike, to the bit.
template <class T>
bool neighbours_alike(const T* row, index_t pairs) noexcept {
  // 16-bit neighbours share a lane.
  using lane = std::conditional_t<sizeof(T) == 8, double, float>;
  constexpr auto lane_bytes = static_cast<index_t>(sizeof(lane));
  const auto* const bytes = reinterpret_cast<const unsigned char*>(row);
  const index_t lanes_of_row = 2 * pairs * index_t{sizeof(T)} / lane_bytes;
  typename simd::vec<lane>::integer different{};
  for_each_register<lane>(lanes_of_row, [&](index_t first, auto count) POSENC_INLINE_LAMBDA {
    simd::vec<lane> x(lane{0});
    std::memcpy(&x.r, bytes + first * lane_bytes, static_cast<std::size_t>(count * lane_bytes));
    const auto bits = simd::as_integer(x);
    if constexpr (sizeof(T) == 2) {
      different |= (bits ^ (bits >> 16)) & 0xffff;
    } else {
      different |= bits ^ simd::as_integer(simd::swap_pairs(x));
    }
  });
  std::int64_t found = 0;
  for (int i = 0; i < simd::vec<lane>::lanes; ++i) found |= different[i];
  return found == 0;
}

}  // namespace detail

struct cos_sin_tables_options {
  index_t rotary_dim = 0;  ///< rotated dimensions: even, > 0
  posenc::pairing pairing = posenc::pairing::half;
  index_t offset = 0;         ///< the first rotated dimension
  double first_position = 0;  ///< of row 0
  index_t row_stride = 0;     ///< elements from row to row; 0: the rows' width
};

/// A rotation by the caller's own cosines and sines, which stay where they are: row r is that of position
/// first_position + r. Rows that belong to tokens rather than positions (Hugging Face's position_embeddings) are read by
/// token_range(tokens); with a batch, row b * tokens + t is the position b * tokens + t.
///
/// Rows hold one number a pair, as flash-attention's do, or each twice: all and then all again (Hugging Face), or
/// neighbours alike; which of these is found out by looking. float, double and 16-bit tables; what is in them counts,
/// attention factors and rounding included.
///
/// Make one for a table and keep it for all layers and steps: where numbers stand twice, construction and `check` read all
/// rows once, to see that they all do. For 8192 rows of 128 floats that is 8 MiB, and takes as long as the rotation of some
/// hundred tokens. With one number a pair nothing is read.
template <scalar T>
class cos_sin_tables {
 public:
  using acts_on = places<on_queries_keys>;
  static constexpr bool rotation_depends_on_role = false;

  /// `rows` rows of `width` numbers. Errors: those of `check`.
  cos_sin_tables(const T* cos, const T* sin, index_t rows, index_t width, const cos_sin_tables_options& options)
      : cos_(cos), sin_(sin), rows_(rows), options_(options) {
    raise_if(check_arguments(cos, sin, rows, width, options));
    raise_if(find_layout(width));
  }

  /// The error that the constructor would raise, as a value: invalid_shape (rotary_dim, a width that is neither rotary_dim
  /// nor half of it), invalid_value (offset, first_position; numbers that should stand twice and do not), invalid_layout.
  static maybe_error check(const T* cos, const T* sin, index_t rows, index_t width,
                           const cos_sin_tables_options& options) noexcept {
    if (maybe_error e = check_arguments(cos, sin, rows, width, options)) return e;
    return cos_sin_tables(unchecked{}, cos, sin, rows, options).find_layout(width);
  }

  /// Errors: invalid_shape (a head that is too narrow), out_of_range (a position without a row), invalid_value (a fraction).
  maybe_error check(const encoding_use& use) const noexcept {
    const dim_range turned = rotated_dims({});
    if (turned.end > use.dim)
      return make_error(
          errc::invalid_shape, "encoding",
          "the tables turn %td dimensions from offset %td on and heads have %td; allowed: heads of %td and "
          "more",
          options_.rotary_dim, turned.begin, use.dim, turned.end);
    if (maybe_error e = detail::check_whole_positions("cos_sin_tables", 0, use)) return e;
    return detail::for_each_side(use, [&](const char* side, const token_view& tokens) -> maybe_error {
      const auto found = detail::find_position(tokens, 0, [&](double p, index_t, index_t) { return !holds(p); });
      if (!found) return {};
      return make_error(
          errc::out_of_range, side,
          "has the position %.17g at token %td of row %td; allowed: %.17g to %.17g, the rows of the table",
          found.position, found.token, found.row, options_.first_position,
          options_.first_position + static_cast<double>(rows_ - 1));
    });
  }

  dim_range rotated_dims(rotation_shape) const noexcept {
    return {options_.offset, options_.offset + options_.rotary_dim};
  }

  index_t rotation_size(rotation_shape) const noexcept { return options_.rotary_dim; }

  /// `inverse` is that of the rotation and factor that the row holds: a row of zeros has none.
  template <class Real>
  void prepare_rotation(rotation_shape, position_span position, rotation_use use, Real* row) const noexcept {
    const index_t pairs = options_.rotary_dim / 2;
    // A position without a row is not read: whoever skips the check gets the last row.
    const double at = position[0] - options_.first_position;
    const index_t r = at >= 0 && at < static_cast<double>(rows_) ? static_cast<index_t>(at) : rows_ - 1;
    Real* const sines = row + pairs;
    read(cos_ + r * options_.row_stride, row);
    read(sin_ + r * options_.row_stride, sines);
    if (use.op == rotation_op::rotate) return;
    using wide = simd::vec<double>;
    detail::for_each_register<double>(pairs, [&](index_t first, auto count) POSENC_INLINE_LAMBDA {
      wide c = detail::load_lanes<double>(row + first, count), s = -detail::load_lanes<double>(sines + first, count);
      if (use.op == rotation_op::inverse) {
        // Lanes without a pair must not divide 0 by 0: the caller may trap that.
        const auto unused = simd::mask_from_bits<double>(~std::uint64_t{0} << count);
        const wide size = select(unused, wide(1.0), fma(c, c, s * s));
        c = c / size;
        s = s / size;
      }
      detail::store_lanes(row + first, c, count);
      detail::store_lanes(sines + first, s, count);
    });
  }

  template <class Real>
  void apply_rotation(rotation_shape shape, const Real* row, index_t /*kv_head*/, Real* x) const noexcept {
    rotate_heads(shape, row, 1, x, 0, x, 0);
  }

  template <class Real, class In, class Out>
  void rotate_heads(rotation_shape shape, const Real* row, index_t heads, const In* in, index_t in_stride, Out* out,
                    index_t out_stride, store_mode store = store_mode::cached, const In* next = nullptr,
                    Out* next_out = nullptr) const noexcept {
    detail::turn_rotary(options_.pairing, rotated_dims(shape), shape.head_dim, row, heads, in, in_stride, out,
                        out_stride, store, next, next_out);
  }

 private:
  struct unchecked {};
  cos_sin_tables(unchecked, const T* cos, const T* sin, index_t rows, const cos_sin_tables_options& options) noexcept
      : cos_(cos), sin_(sin), rows_(rows), options_(options) {}

  /// All that can be said without reading the tables.
  static maybe_error check_arguments(const T* cos, const T* sin, index_t rows, index_t width,
                                     const cos_sin_tables_options& options) noexcept {
    const index_t dim = options.rotary_dim;
    if (dim <= 0 || dim % 2 != 0)
      return make_error(errc::invalid_shape, "rotary_dim", "is %td; allowed: an even number > 0", dim);
    if (width != dim && width != dim / 2)
      return make_error(errc::invalid_shape, "width",
                        "is %td for rotary_dim %td; allowed: %td (one number a pair) or %td (each twice)", width, dim,
                        dim / 2, dim);
    if (rows < 1) return make_error(errc::invalid_shape, "rows", "is %td; allowed: 1 and more", rows);
    if (maybe_error e = detail::check_rotary_offset(options.offset)) return e;
    if (options.row_stride != 0 && options.row_stride < width)
      return make_error(errc::invalid_shape, "row_stride", "is %td; allowed: the width %td and more, or 0",
                        options.row_stride, width);
    const double& first = options.first_position;
    if (!detail::is_position(first) || first != std::floor(first))
      return make_error(errc::invalid_value, "first_position", "is %g; allowed: a whole number within +-2^53", first);
    if (cos == nullptr || sin == nullptr)
      return make_error(errc::invalid_layout, cos == nullptr ? "cos" : "sin", "is null for %td rows", rows);
    return {};
  }

  /// Sets how rows are read.
  maybe_error find_layout(index_t width) noexcept {
    const index_t pairs = options_.rotary_dim / 2;
    if (options_.row_stride == 0) options_.row_stride = width;
    if (width == pairs) return {};
    const auto halves_alike = [pairs](const T* row) {
      return std::memcmp(row, row + pairs, static_cast<std::size_t>(pairs) * sizeof(T)) == 0;
    };
    if (holds_for_rows(halves_alike)) return {};
    step_ = 2;
    if (holds_for_rows([pairs](const T* row) { return detail::neighbours_alike(row, pairs); })) return {};
    return make_error(errc::invalid_value, "cos",
                      "and sin have rows of %td numbers in which neither the halves nor neighbours are alike; allowed: "
                      "each number twice, or rows of %td",
                      width, pairs);
  }

  template <class F>
  bool holds_for_rows(F&& alike) const noexcept {
    for (const T* table : {cos_, sin_})
      for (index_t r = 0; r < rows_; ++r)
        if (!alike(table + r * options_.row_stride)) return false;
    return true;
  }

  bool holds(double position) const noexcept {
    const double at = position - options_.first_position;
    return at >= 0 && at < static_cast<double>(rows_);
  }

  template <class Real>
  void read(const T* from, Real* to) const noexcept {
    const index_t pairs = options_.rotary_dim / 2;
    if (step_ == 1) return simd::load_row(from, pairs, to);
    detail::for_each_register<Real>(pairs, [&](index_t first, auto count) POSENC_INLINE_LAMBDA {
      detail::store_lanes(to + first, detail::load_every_other<Real>(from + 2 * first, count), count);
    });
  }

  const T* cos_;
  const T* sin_;
  index_t rows_;
  cos_sin_tables_options options_;
  index_t step_ = 1;  ///< elements from pair to pair
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_COS_SIN_TABLES_HPP
