// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_T5_BUCKET_HPP
#define POSENC_ENCODING_T5_BUCKET_HPP

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "../core/as_view.hpp"
#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/finite.hpp"
#include "../core/number_list.hpp"
#include "../simd/convert.hpp"
#include "concepts.hpp"
#include "position_checks.hpp"

namespace posenc::inline POSENC_ABI {

/// How T5 sorts distances into buckets.
struct t5_bucket_options {
  index_t num_buckets = 32;    ///< rows of the table; at least 2, or 4 if bidirectional, at most 65536
  index_t max_distance = 128;  ///< from here on distances share the last bucket; at most 2^24
  bool bidirectional = true;   ///< encoders; false (decoders): all keys after the query share bucket 0
  index_t axis = 0;            ///< the position axis that distances are taken on
};

namespace detail {

/// The buckets of one direction, without and with logarithm.
struct t5_bucket_counts {
  std::int64_t all, exact;

  explicit t5_bucket_counts(const t5_bucket_options& o) noexcept
      : all(o.bidirectional ? o.num_buckets / 2 : o.num_buckets), exact(all / 2) {}
};

inline maybe_error check_t5_buckets(const t5_bucket_options& o) noexcept {
  const index_t least = o.bidirectional ? 4 : 2;
  if (o.num_buckets < least || o.num_buckets > 65536)
    return make_error(errc::invalid_value, "num_buckets", "is %td; allowed: %td to 65536 if %s", o.num_buckets, least,
                      o.bidirectional ? "bidirectional" : "not bidirectional");
  const std::int64_t exact = t5_bucket_counts(o).exact;
  constexpr index_t longest = index_t{1} << 24;
  if (o.max_distance <= exact || o.max_distance > longest)
    return make_error(errc::invalid_value, "max_distance",
                      "is %td; allowed: more than the %td distances that have a bucket each, up to 2^24",
                      o.max_distance, static_cast<index_t>(exact));
  if (o.axis < 0 || o.axis >= max_position_axes)
    return make_error(errc::invalid_value, "axis", "is %td; allowed: 0 to %td", o.axis, max_position_axes - 1);
  return {};
}

/// a^i * b^j in digits of 32 bits, lowest first.
inline number_list<std::uint32_t> product_of_powers(std::uint32_t a, std::int64_t i, std::uint32_t b, std::int64_t j) {
  number_list<std::uint32_t> digits;
  digits.push_back(1);
  for (std::int64_t step = 0; step < i + j; ++step) {
    std::uint64_t carry = 0;
    for (std::uint32_t& digit : digits) {
      carry += std::uint64_t{digit} * (step < i ? a : b);
      digit = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) digits.push_back(static_cast<std::uint32_t>(carry));
  }
  return digits;
}

/// Whether r^n >= exact^(n - t) * max_distance^t, in integers.
inline bool reaches_t5_bucket(std::int64_t r, std::int64_t exact, std::int64_t max_distance, std::int64_t n,
                              std::int64_t t) {
  std::int64_t common = n;
  for (std::int64_t rest = t; rest != 0;) common = std::exchange(rest, common % rest);
  n /= common;
  t /= common;
  const auto left = product_of_powers(static_cast<std::uint32_t>(r), n, 1, 0);
  const auto right =
      product_of_powers(static_cast<std::uint32_t>(exact), n - t, static_cast<std::uint32_t>(max_distance), t);
  if (left.size() != right.size()) return left.size() > right.size();
  for (std::size_t i = left.size(); i-- > 0;)
    if (left[i] != right[i]) return left[i] > right[i];
  return true;
}

/// The bucket of distance r >= 0 in one direction.
inline std::int64_t t5_one_sided_bucket(std::int64_t r, const t5_bucket_options& o) {
  const t5_bucket_counts count(o);
  if (r < count.exact) return r;
  if (r >= o.max_distance) return count.all - 1;
  const std::int64_t n = count.all - count.exact;
  const auto exact = static_cast<double>(count.exact);
  const double place = static_cast<double>(n) * std::log1p(static_cast<double>(r - count.exact) / exact) /
                       std::log1p(static_cast<double>(o.max_distance - count.exact) / exact);
  // `place` is good to 1e-15 relative. Only next to a whole number can rounding have put it on the wrong side.
  auto t = static_cast<std::int64_t>(place);
  const auto nearest = static_cast<std::int64_t>(place + 0.5);
  if (std::fabs(place - static_cast<double>(nearest)) < 1e-12 * (place + 1))
    t = reaches_t5_bucket(r, count.exact, o.max_distance, n, nearest) ? nearest : nearest - 1;
  return (std::min)(count.exact + t, count.all - 1);
}

}  // namespace detail

/// The bucket of a relative position (key - query), 0 to num_buckets - 1 (Raffel et al. 2020, "Exploring the Limits of
/// Transfer Learning", section 2.1, and its code). If bidirectional, half of the buckets are for keys after the query.
/// Of the n buckets of a direction the first n/2 = m hold the distances below m, one each; distance r >= m goes to
///
///   min(n - 1, m + floor((n - m) ln(r / m) / ln(max_distance / m)))
///
/// evaluated exactly: floating-point logarithms are off by one at some distances of some options.
/// Errors: invalid_value (num_buckets, max_distance).
inline index_t t5_relative_bucket(std::int64_t relative, const t5_bucket_options& options = {}) {
  raise_if(detail::check_t5_buckets(options));
  if (relative > 0 && !options.bidirectional) return 0;
  const std::int64_t farthest = options.max_distance;
  const std::int64_t r = relative > 0 ? (std::min)(relative, farthest) : -(std::max)(relative, -farthest);
  return static_cast<index_t>(detail::t5_one_sided_bucket(r, options) +
                              (relative > 0 ? detail::t5_bucket_counts(options).all : 0));
}

/// T5's relative position bias (Raffel et al. 2020): adds table[bucket(key position - query position)][head] to the scores,
/// in natural units after scale and softcap. Positions are whole numbers. T5 itself has no 1/sqrt(head_dim): pass scale 1
/// to attention.
///
/// The object copies the table and spreads it over the distances, so that a lookup is a load; it holds 12 bytes for each
/// head and distance up to where the last bucket begins.
class t5_bucket {
 public:
  using acts_on = places<on_scores>;

  /// `table` is anything that has a view, by rows: [num_buckets, heads], as checkpoints store it; float, double, half or
  /// bfloat16. Errors: invalid_shape, invalid_layout (null data), invalid_value (options, NaN or infinite entries).
  template <class Table>
    requires(!std::is_same_v<std::remove_cvref_t<Table>, t5_bucket>)
  explicit t5_bucket(const Table& table, const t5_bucket_options& options = {}) : options_(options) {
    if constexpr (detail::check_viewable<const Table>()) {
      static_assert(scalar<view_element<const Table>>,
                    "posenc: a table of T5 buckets has elements of type float, double, Eigen::half or Eigen::bfloat16");
      if constexpr (scalar<view_element<const Table>>) spread(as_view(table));
    }
  }

  /// Contiguous [num_buckets, heads].
  template <scalar T>
  t5_bucket(const T* table, index_t heads, const t5_bucket_options& options = {})
      : t5_bucket(view_bhtd(table, 1, 1, options.num_buckets, heads), options) {}

  index_t heads() const noexcept { return heads_; }
  const t5_bucket_options& options() const noexcept { return options_; }

  template <class Keys>
  auto bias(const Keys& keys, index_t head) const {
    return keys.lookup(table_of<typename Keys::real_type>(head), options_.axis);
  }

  maybe_error check(const encoding_use& use) const noexcept {
    if (maybe_error e = detail::check_query_heads("t5_bucket", "columns", heads_, use)) return e;
    if (maybe_error e = detail::check_axis("t5_bucket", options_.axis, use)) return e;
    return detail::check_whole_positions("t5_bucket", options_.axis, use);
  }

 private:
  template <class Real>
  distance_table<Real> table_of(index_t head) const noexcept {
    const index_t offset = head * stride_ + block_keys;
    if constexpr (std::is_same_v<Real, double>) {
      return {double_values_.data() + offset, low_, high_};
    } else {
      return {float_values_.data() + offset, low_, high_};
    }
  }

  template <class T>
  maybe_error check_table(const tensor_view<T>& table) const noexcept {
    if (maybe_error e = detail::check_t5_buckets(options_)) return e;
    if (table.batch() != 1 || table.heads() != 1)
      return make_error(errc::invalid_shape, "table", "has %td x %td matrices; allowed: one, [num_buckets, heads]",
                        table.batch(), table.heads());
    if (table.tokens() != options_.num_buckets || table.dim() < 1)
      return make_error(errc::invalid_shape, "table",
                        "has %td rows and %td columns%s; allowed: num_buckets = %td rows, one column for each head",
                        table.tokens(), table.dim(),
                        table.from_columns() ? " (a column-major matrix is read as heads x num_buckets)" : "",
                        options_.num_buckets);
    if (table.data_handle() == nullptr) return make_error(errc::invalid_layout, "table", "is null");
    for (index_t b = 0; b < table.tokens(); ++b)
      for (index_t h = 0; h < table.dim(); ++h) {
        compute_type<T> x;
        simd::load_row(&table(0, 0, b, h), 1, &x);
        if (!detail::is_finite(x) || std::fabs(static_cast<double>(x)) > (std::numeric_limits<float>::max)())
          return make_error(errc::invalid_value, "table", "has %g for bucket %td of head %td; allowed: finite floats",
                            static_cast<double>(x), b, h);
      }
    return {};
  }

  template <class T>
  void spread(const tensor_view<T>& table) {
    raise_if(check_table(table));
    heads_ = table.dim();
    // Farther distances read the ends: the last bucket's first distance, and 0 where all keys after the query share one.
    std::int64_t reach = 0;
    detail::number_list<index_t> buckets;  // of the distances 0, -1, ..., -reach
    for (const std::int64_t last = detail::t5_bucket_counts(options_).all - 1;; ++reach) {
      buckets.push_back(static_cast<index_t>(detail::t5_one_sided_bucket(reach, options_)));
      if (buckets.back() == last) break;
    }
    low_ = -reach;
    high_ = options_.bidirectional ? reach : 0;
    stride_ = static_cast<index_t>(high_ - low_) + 1 + 2 * block_keys;
    double_values_.extend(static_cast<std::size_t>(heads_ * stride_));
    float_values_.extend(double_values_.size());
    const auto after = static_cast<index_t>(detail::t5_bucket_counts(options_).all);
    std::size_t at = 0;
    for (index_t head = 0; head < heads_; ++head)
      for (std::int64_t d = low_ - block_keys; d <= high_ + block_keys; ++d, ++at) {
        const std::int64_t inside = (std::clamp)(d, low_, high_);
        const index_t bucket =
            inside > 0 ? buckets[static_cast<std::size_t>(inside)] + after : buckets[static_cast<std::size_t>(-inside)];
        const auto value = static_cast<compute_type<T>>(table(0, 0, bucket, head));
        double_values_[at] = static_cast<double>(value);
        float_values_[at] = static_cast<float>(value);
      }
  }

  t5_bucket_options options_;
  index_t heads_ = 0, stride_ = 0;
  std::int64_t low_ = 0, high_ = 0;
  detail::number_list<float> float_values_;
  detail::number_list<double> double_values_;
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_T5_BUCKET_HPP
