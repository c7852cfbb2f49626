// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_LEARNED_HPP
#define POSENC_ENCODING_LEARNED_HPP

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <type_traits>

#include "../core/as_view.hpp"
#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/finite.hpp"
#include "concepts.hpp"
#include "position_checks.hpp"
#include "row_elements.hpp"

namespace posenc::inline POSENC_ABI {

/// How positions find their row in a learned table.
struct learned_options {
  /// row = position + row_offset: 2 for OPT and BART, whose tables have two rows more than positions.
  index_t row_offset = 0;
  /// RoBERTa's numbering: real tokens have the positions padding_idx + 1, padding_idx + 2, ..., padding has padding_idx
  /// (see roberta_positions). It changes max_length() only: a position is a row in any case.
  std::optional<index_t> padding_idx = {};
  index_t axis = 0;  ///< the position axis that is read
};

/// Learned absolute positions, added to the inputs: row `position + row_offset` of a table [rows, dim] in the caller's
/// memory, which must outlive this object. The table may be float, double, half or bfloat16, whatever the embeddings
/// are. Positions are whole numbers; one without a row is an error (out_of_range): nothing is extended, interpolated or
/// read beyond the table.
class learned_positions {
 public:
  using acts_on = places<on_inputs>;

  /// `table` is anything that has a view: [rows, dim] by rows, with any stride between rows.
  /// Errors: invalid_layout (null data, elements of a row not side by side), invalid_shape (no rows, no columns, several
  /// matrices), invalid_value (row_offset, padding_idx, axis).
  template <class Table>
    requires(!std::is_same_v<std::remove_cvref_t<Table>, learned_positions>)
  explicit learned_positions(const Table& table, const learned_options& options = {}) : options_(options) {
    if constexpr (detail::check_viewable<const Table>()) {
      using element = std::remove_cv_t<view_element<const Table>>;
      static_assert(scalar<element>,
                    "posenc: a table of learned positions has elements of type float, double, Eigen::half or "
                    "Eigen::bfloat16");
      const auto view = as_view(table);
      raise_if(check_table(view, options));
      table_ = view.data_handle();
      rows_ = view.tokens();
      dim_ = view.dim();
      if constexpr (scalar<element>) {
        row_bytes_ = view.stride(2) * static_cast<index_t>(sizeof(element));
        add_float_ = &add_row<element, float>;
        add_double_ = &add_row<element, double>;
      }
    }
  }

  index_t rows() const noexcept { return rows_; }
  index_t dim() const noexcept { return dim_; }
  const learned_options& options() const noexcept { return options_; }

  /// The first and the last position that has a row.
  index_t first_position() const noexcept { return -options_.row_offset; }
  index_t last_position() const noexcept { return rows_ - 1 - options_.row_offset; }

  /// The most tokens that a text may have: the rows, less those that positions of real tokens never reach (in RoBERTa's
  /// numbering those up to padding_idx, which leaves 512 of 514 rows).
  index_t max_length() const noexcept {
    const index_t unused =
        options_.padding_idx ? *options_.padding_idx + 1 : (std::max)(options_.row_offset, index_t{0});
    return (std::max)(rows_ - unused, index_t{0});
  }

  /// Adds the position's row to x, which has `dim()` elements. Errors: out_of_range, before x is written.
  template <class Real>
  void add_position(position_span position, std::span<Real> x) const {
    const double p = position[static_cast<std::size_t>(options_.axis)];
    if (!has_row(p))
      raise(make_error(errc::out_of_range, "position",
                       "is %.17g; allowed: whole numbers from %td to %td, as the learned table has %td rows", p,
                       first_position(), last_position(), rows_));
    const auto row = static_cast<index_t>(p) + options_.row_offset;
    const void* from = static_cast<const char*>(table_) + row * row_bytes_;
    if constexpr (std::is_same_v<Real, double>) {
      add_double_(from, dim_, x.data());
    } else {
      add_float_(from, dim_, x.data());
    }
  }

  maybe_error check(const encoding_use& use) const noexcept {
    if (use.dim != dim_)
      return make_error(errc::invalid_shape, "x", "has rows of %td elements; the table of learned positions has %td",
                        use.dim, dim_);
    if (maybe_error e = detail::check_axis("learned_positions", options_.axis, use)) return e;
    return detail::for_each_side(use, [&](const char* side, const token_view& tokens) -> maybe_error {
      const auto found =
          detail::find_position(tokens, options_.axis, [&](double p, index_t, index_t) { return !has_row(p); });
      if (!found) return {};
      if (found.position != std::floor(found.position))
        return make_error(errc::invalid_value, side,
                          "has the position %.17g at token %td of row %td; learned_positions takes whole numbers only",
                          found.position, found.token, found.row);
      return make_error(errc::out_of_range, side,
                        "has the position %.17g at token %td of row %td, which is row %.17g of the learned table; "
                        "allowed: positions %td to %td, as the table has %td rows",
                        found.position, found.token, found.row,
                        found.position + static_cast<double>(options_.row_offset), first_position(), last_position(),
                        rows_);
    });
  }

 private:
  bool has_row(const double& position) const noexcept {
    return detail::is_finite(position) && position >= static_cast<double>(first_position()) &&
           position <= static_cast<double>(last_position()) && position == std::floor(position);
  }

  template <class T>
  static maybe_error check_table(const tensor_view<T>& table, const learned_options& options) noexcept {
    if (table.batch() != 1 || table.heads() != 1)
      return make_error(errc::invalid_shape, "table", "has %td x %td matrices; allowed: one, [rows, dim]",
                        table.batch(), table.heads());
    if (table.tokens() < 1 || table.dim() < 1)
      return make_error(errc::invalid_shape, "table", "has %td rows of %td elements; allowed: 1 and more",
                        table.tokens(), table.dim());
    if (table.data_handle() == nullptr)
      return make_error(errc::invalid_layout, "table", "is null for %td rows of %td elements", table.tokens(),
                        table.dim());
    if (table.dim() > 1 && table.stride(3) != 1)
      return make_error(errc::invalid_layout, "table", "has a stride of %td between the elements of a row; allowed: 1",
                        table.stride(3));
    constexpr index_t limit = index_t{1} << 52;
    if (options.row_offset < -limit || options.row_offset > limit)
      return make_error(errc::invalid_value, "row_offset", "is %td; allowed: -2^52 to 2^52", options.row_offset);
    if (options.padding_idx && (*options.padding_idx < 0 || *options.padding_idx >= table.tokens()))
      return make_error(errc::invalid_value, "padding_idx", "is %td; allowed: 0 to %td, a row of the table",
                        *options.padding_idx, table.tokens() - 1);
    if (options.padding_idx && options.row_offset != 0)
      return make_error(
          errc::mismatch, "row_offset",
          "is %td beside padding_idx %td; positions in RoBERTa's numbering are rows already: allowed is one "
          "of the two",
          options.row_offset, *options.padding_idx);
    if (options.axis < 0 || options.axis >= max_position_axes)
      return make_error(errc::invalid_value, "axis", "is %td; allowed: 0 to %td", options.axis, max_position_axes - 1);
    return {};
  }

  template <class T, class Real>
  POSENC_NOINLINE static void add_row(const void* row, index_t count, Real* x) noexcept {
    const T* from = static_cast<const T*>(row);
    if constexpr (std::is_same_v<Real, compute_type<T>>) {
      detail::for_each_register<Real>(count, [&](index_t first, auto n) POSENC_INLINE_LAMBDA {
        detail::store_lanes(x + first,
                            detail::load_lanes<Real>(x + first, n) + detail::load_lanes<Real>(from + first, n), n);
      });
    } else {
      for (index_t i = 0; i < count; ++i) x[i] += static_cast<Real>(static_cast<compute_type<T>>(from[i]));
    }
  }

  learned_options options_;
  const void* table_ = nullptr;
  index_t rows_ = 0, dim_ = 0, row_bytes_ = 0;
  void (*add_float_)(const void*, index_t, float*) noexcept = nullptr;
  void (*add_double_)(const void*, index_t, double*) noexcept = nullptr;
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_LEARNED_HPP
