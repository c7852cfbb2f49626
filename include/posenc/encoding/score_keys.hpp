// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_SCORE_KEYS_HPP
#define POSENC_ENCODING_SCORE_KEYS_HPP

#include <cstdint>

#include "../core/platform.hpp"
#include "../simd/simd.hpp"

namespace posenc::inline POSENC_ABI {

/// Keys of one block of the attention kernel: as many lanes as a block has keys.
inline constexpr index_t block_keys = 64;

/// A table over whole-number distances from `low` to `high`, for `score_keys::lookup`. Farther distances read the ends.
/// `values` points at the entry of `low`; `block_keys` entries before it repeat the first and as many after the entry of
/// `high` the last, so that a vector of neighbouring distances is one load, and a block's are next to each other.
template <class Real>
struct distance_table {
  const Real* values;
  std::int64_t low, high;
};

/// What the `bias` of an encoding sees: one query against a vector of keys. `Real` is float or double, `value_type` holds
/// one number for each key; arithmetic on it, and `abs`, `min`, `max`, `fma` of posenc::simd, work lane by lane.
/// `Consecutive` says that the keys' positions run by one on the axis, which spares loads and gathers.
template <class Real, bool Consecutive>
class score_keys {
 public:
  using real_type = Real;
  using value_type = simd::vec<Real>;
  static constexpr int lanes = value_type::lanes;

  /// The keys `first` and following of at most `block_keys`. `key_positions` points at the position of key 0 on axis 0, those
  /// of the next axis lie `axis_stride` after; `query_position` at the query's, one number an axis. Both outlive the object.
  score_keys(const double* key_positions, index_t axis_stride, const double* query_position, int first = 0) noexcept
      : keys_(key_positions), query_(query_position), axis_stride_(axis_stride), first_(first) {}

  /// Key position - query position. The difference is formed in double and rounded once.
  POSENC_ALWAYS_INLINE value_type distance(index_t axis = 0) const noexcept {
    const double* keys = keys_ + axis * axis_stride_;
    if constexpr (Consecutive) {
      // Where the distance of key 0 is held as it is, the sums are what is rounded; else (fractions, far keys) they would be
      // rounded twice. Vectors of one block share it.
      const double distance = keys[0] - query_[axis];
      const auto held = static_cast<Real>(distance);
      if (static_cast<double>(held) == distance) [[likely]]
        return value_type(held) + (simd::iota<Real>() + value_type(static_cast<Real>(first_)));
    }
    Real values[lanes];
    for (int i = 0; i < lanes; ++i) values[i] = static_cast<Real>(keys[first_ + i] - query_[axis]);
    return simd::load(values);
  }

  double query_position(index_t axis = 0) const noexcept { return query_[axis]; }
  double key_position(int lane, index_t axis = 0) const noexcept { return keys_[axis * axis_stride_ + first_ + lane]; }

  /// f(distance) for each key, one after another: for functions that have no vector form. f: double -> double.
  template <class F>
  value_type map(F&& f, index_t axis = 0) const {
    Real values[lanes];
    for (int i = 0; i < lanes; ++i) values[i] = static_cast<Real>(f(key_position(i, axis) - query_[axis]));
    return simd::load(values);
  }

  /// The table's entries at the distances, which must be whole numbers.
  POSENC_ALWAYS_INLINE value_type lookup(const distance_table<Real>& table, index_t axis = 0) const noexcept {
    const double* keys = keys_ + axis * axis_stride_;
    if constexpr (Consecutive) {
      return simd::load(table.values + first_ +
                        (clamp(keys[0] - query_[axis], table.low - block_keys, table.high + 1) - table.low));
    } else {
      Real values[lanes];
      for (int i = 0; i < lanes; ++i)
        values[i] = table.values[clamp(keys[first_ + i] - query_[axis], table.low, table.high) - table.low];
      return simd::load(values);
    }
  }

 private:
  static POSENC_ALWAYS_INLINE std::int64_t clamp(double distance, std::int64_t low, std::int64_t high) noexcept {
    const auto d = static_cast<std::int64_t>(distance);
    return d < low ? low : d > high ? high : d;
  }

  const double* keys_;
  const double* query_;
  index_t axis_stride_;
  int first_;
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_SCORE_KEYS_HPP
