// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTING_HEAD_MATRICES_HPP
#define POSENC_TESTING_HEAD_MATRICES_HPP

#include <span>
#include <vector>

#include "../core/platform.hpp"
#include "../core/tensor_view.hpp"

namespace posenc::inline POSENC_ABI::testing {

/// One matrix [queries, keys] of doubles for each batch row and query head, in memory of its own: attention weights,
/// scores, biases. `as_view` takes it, as [batch, heads, queries, keys].
class head_matrices {
 public:
  using element_type = const double;

  head_matrices() = default;
  head_matrices(index_t batch, index_t heads, index_t queries, index_t keys, const double& fill = 0)
      : extents_{batch, heads, queries, keys},
        values_(static_cast<std::size_t>(batch * heads * queries * keys), fill) {}

  index_t batch() const noexcept { return extents_[0]; }
  index_t heads() const noexcept { return extents_[1]; }
  index_t queries() const noexcept { return extents_[2]; }
  index_t keys() const noexcept { return extents_[3]; }

  double operator()(index_t batch, index_t head, index_t query, index_t key) const noexcept {
    return values_[index(batch, head, query, key)];
  }
  double& operator()(index_t batch, index_t head, index_t query, index_t key) noexcept {
    return values_[index(batch, head, query, key)];
  }
  /// What one query has with every key.
  std::span<const double> row(index_t batch, index_t head, index_t query) const noexcept {
    return std::span<const double>(values_).subspan(index(batch, head, query, 0), static_cast<std::size_t>(keys()));
  }
  /// All numbers, [batch][heads][queries][keys].
  std::span<const double> values() const noexcept { return values_; }

  static constexpr std::size_t rank() noexcept { return 4; }
  index_t extent(std::size_t i) const noexcept { return extents_[i]; }
  index_t stride(std::size_t i) const noexcept {
    index_t product = 1;
    for (std::size_t axis = 3; axis > i; --axis) product *= extents_[axis];
    return product;
  }
  const double* data_handle() const noexcept { return values_.data(); }

 private:
  std::size_t index(index_t batch, index_t head, index_t query, index_t key) const noexcept {
    return static_cast<std::size_t>(((batch * heads() + head) * queries() + query) * keys() + key);
  }

  index_t extents_[4] = {};
  std::vector<double> values_;
};

}  // namespace posenc::inline POSENC_ABI::testing

#endif  // POSENC_TESTING_HEAD_MATRICES_HPP
