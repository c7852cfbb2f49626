// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTING_RANDOM_TENSOR_HPP
#define POSENC_TESTING_RANDOM_TENSOR_HPP

#include <cstdint>
#include <random>
#include <vector>

#include "../core/dtype.hpp"
#include "../core/tensor_view.hpp"

namespace posenc::inline POSENC_ABI::testing {

/// The source of random numbers for tests: the same on every platform, unlike the distributions of <random>.
class random_numbers {
 public:
  explicit random_numbers(std::uint64_t seed) : engine_(seed) {}

  /// A whole number from first to last, both included.
  std::int64_t whole(std::int64_t first, std::int64_t last) {
    const auto range = static_cast<std::uint64_t>(last - first) + 1;
    return first + static_cast<std::int64_t>(engine_() % range);
  }

  /// A multiple of 1/64 from -2 to 2 (2 left out). It has 8 significant bits, so that every element type holds it
  /// exactly and results in different types can be compared with each other.
  double element() { return static_cast<double>(whole(-128, 127)) / 64; }

 private:
  std::mt19937_64 engine_;
};

/// A contiguous tensor [tokens, heads, dim] of one batch row, in memory of its own.
template <scalar T>
class owned_tensor {
 public:
  owned_tensor(index_t tokens, index_t heads, index_t dim)
      : tokens_(tokens), heads_(heads), dim_(dim), values_(static_cast<std::size_t>(tokens * heads * dim), T(0)) {}

  /// As attention takes it: [1, heads, tokens, dim].
  tensor_view<T> view() noexcept { return view_thd(values_.data(), tokens_, heads_, dim_); }
  tensor_view<const T> view() const noexcept { return view_thd(values_.data(), tokens_, heads_, dim_); }
  /// `count` tokens from `first` on.
  tensor_view<const T> tokens(index_t first, index_t count) const noexcept {
    return view_thd(values_.data() + first * heads_ * dim_, count, heads_, dim_);
  }
  /// As add_positions takes it: whole embeddings [1, 1, tokens, heads * dim].
  tensor_view<T> embeddings() noexcept { return view_bhtd(values_.data(), 1, 1, tokens_, heads_ * dim_); }

  double operator()(index_t head, index_t token, index_t d) const noexcept {
    return static_cast<double>(static_cast<compute_type<T>>(view()(0, head, token, d)));
  }

 private:
  index_t tokens_, heads_, dim_;
  std::vector<T> values_;
};

/// A tensor of random elements (see random_numbers::element).
template <scalar T>
owned_tensor<T> random_tensor(random_numbers& random, index_t tokens, index_t heads, index_t dim) {
  owned_tensor<T> result(tokens, heads, dim);
  const tensor_view<T> view = result.view();
  for (index_t t = 0; t < tokens; ++t)
    for (index_t h = 0; h < heads; ++h)
      for (index_t d = 0; d < dim; ++d)
        view(0, h, t, d) = static_cast<T>(static_cast<compute_type<T>>(random.element()));
  return result;
}

}  // namespace posenc::inline POSENC_ABI::testing

#endif  // POSENC_TESTING_RANDOM_TENSOR_HPP
