// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_OPTIONS_HPP
#define POSENC_ATTENTION_OPTIONS_HPP

#include <array>
#include <cmath>
#include <concepts>
#include <optional>
#include <span>
#include <type_traits>

#include "../core/error.hpp"
#include "../core/finite.hpp"
#include "../core/minus_infinity.hpp"
#include "../core/platform.hpp"
#include "../core/tensor_view.hpp"
#include "workspace.hpp"

namespace posenc::inline POSENC_ABI {

/// One number for each head, float or double, in the caller's memory; empty: none.
class head_numbers {
 public:
  constexpr head_numbers() noexcept = default;
  template <class T>
    requires(std::same_as<std::remove_const_t<T>, float> || std::same_as<std::remove_const_t<T>, double>)
  constexpr head_numbers(std::span<T> values) noexcept  // NOLINT(google-explicit-constructor)
      : data_(values.data()),
        size_(static_cast<index_t>(values.size())),
        wide_(std::same_as<std::remove_const_t<T>, double>) {}
  template <class Container>
    requires requires(const Container& c) {
      { std::span(c.data(), c.size()) };
      requires std::floating_point<std::remove_cvref_t<decltype(*c.data())>>;
    }
  constexpr head_numbers(const Container& c) noexcept  // NOLINT(google-explicit-constructor)
      : head_numbers(std::span(c.data(), c.size())) {}

  constexpr index_t size() const noexcept { return size_; }
  constexpr bool null() const noexcept { return data_ == nullptr && size_ > 0; }
  double operator[](index_t head) const noexcept {
    return wide_ ? static_cast<const double*>(data_)[head]
                 : static_cast<double>(static_cast<const float*>(data_)[head]);
  }

 private:
  const void* data_ = nullptr;
  index_t size_ = 0;
  bool wide_ = false;
};

/// Where attention writes log-sum-exp: [batch, heads, queries], float or double, any strides; empty: nowhere.
class lse_view {
 public:
  constexpr lse_view() noexcept = default;
  template <class T>
    requires(std::same_as<T, float> || std::same_as<T, double>)
  constexpr lse_view(T* data, std::array<index_t, 3> extents, std::array<index_t, 3> strides) noexcept
      : data_(data), extents_(extents), strides_(strides), wide_(std::same_as<T, double>), given_(true) {}
  /// Contiguous.
  template <class T>
    requires(std::same_as<T, float> || std::same_as<T, double>)
  constexpr lse_view(T* data, index_t batch, index_t heads, index_t queries) noexcept
      : lse_view(data, {batch, heads, queries}, {heads * queries, queries, 1}) {}

  constexpr explicit operator bool() const noexcept { return given_; }
  constexpr bool null() const noexcept { return given_ && data_ == nullptr; }
  constexpr index_t extent(std::size_t i) const noexcept { return extents_[i]; }
  constexpr index_t stride(std::size_t i) const noexcept { return strides_[i]; }

  /// For the library: whether the places that are written are among the elements of x.
  template <class T>
  bool meets(const tensor_view<T>& x) const noexcept {
    if (!given_) return false;
    return wide_ ? detail::overlaps(rows<double>(), x) : detail::overlaps(rows<float>(), x);
  }
  /// For the library: whether they are the elements of x, in the same order.
  template <class T>
  bool is(const tensor_view<T>& x) const noexcept {
    return given_ && wide_ == std::same_as<std::remove_const_t<T>, double> && detail::identical(rows<const T>(), x);
  }

  void set(index_t batch, index_t head, index_t query, const double& value) const noexcept {
    if (detail::is_minus_infinity(value)) return set_minus_infinity(batch, head, query);
    if (wide_) {
      static_cast<double*>(data_)[index(batch, head, query)] = value;
    } else {
      static_cast<float*>(data_)[index(batch, head, query)] = static_cast<float>(value);
    }
  }
  void set_minus_infinity(index_t batch, index_t head, index_t query) const noexcept {
    if (wide_) {
      detail::set_minus_infinity(static_cast<double*>(data_)[index(batch, head, query)]);
    } else {
      detail::set_minus_infinity(static_cast<float*>(data_)[index(batch, head, query)]);
    }
  }

 private:
  template <class T>
  tensor_view<T> rows() const noexcept {
    return {
        static_cast<T*>(data_), {extents_[0], extents_[1], extents_[2], 1}, {strides_[0], strides_[1], strides_[2], 1}};
  }
  index_t index(index_t batch, index_t head, index_t query) const noexcept {
    return batch * strides_[0] + head * strides_[1] + query * strides_[2];
  }

  void* data_ = nullptr;
  std::array<index_t, 3> extents_{}, strides_{};
  bool wide_ = false, given_ = false;
};

/// Options of `attention`. The order of operations is fixed: q.k, times scale, softcap, plus biases, mask, softmax with
/// the sink in its denominator, weighted sum of the values.
struct attention_options {
  /// Factor of q.k. Not given: 1 / sqrt(head_dim). T5 uses 1, some models 1 / sqrt(query_pre_attn_scalar).
  std::optional<double> scale = std::nullopt;

  /// c in c * tanh(score / c), applied after the scale and before biases and mask. 0: none.
  double softcap = 0;

  /// A logit for each query head that takes part in the denominator with no value behind it (gpt-oss).
  head_numbers sinks{};

  /// Natural logarithm of each row's whole denominator, the sink included; -infinity for a row that sees nothing and has
  /// no sink, and for padding.
  lse_view lse{};

  /// Memory to work in; null: allocated and freed by the call.
  workspace* memory = nullptr;
};

namespace detail {

inline double scale_of(const attention_options& options, index_t head_dim) noexcept {
  return options.scale ? *options.scale : 1.0 / std::sqrt(static_cast<double>(head_dim));
}

inline maybe_error check_options(const attention_options& options, index_t batch, index_t heads,
                                 index_t q_tokens) noexcept {
  // Far beyond any use, but numbers that floats and quotients of them hold.
  constexpr double largest = 1e18, smallest = 1e-18;
  if (options.scale && (!is_finite(*options.scale) || std::fabs(*options.scale) > largest))
    return make_error(errc::invalid_value, "options.scale", "is %g; allowed: finite, -1e18 to 1e18", *options.scale);
  if (!is_finite(options.softcap) || (options.softcap != 0 && options.softcap < smallest) || options.softcap > largest)
    return make_error(errc::invalid_value, "options.softcap",
                      "is %g; allowed: finite and above 0, or 0 for none (1e-18 to 1e18)", options.softcap);
  if (options.sinks.size() != 0 && options.sinks.size() != heads)
    return make_error(errc::invalid_shape, "options.sinks",
                      "has %td entries; allowed: one for each of %td heads, or none", options.sinks.size(), heads);
  if (options.sinks.null()) return make_error(errc::invalid_layout, "options.sinks", "is null for %td heads", heads);
  for (index_t h = 0; h < options.sinks.size(); ++h)
    if (!is_finite(options.sinks[h]))
      return make_error(errc::invalid_value, "options.sinks", "is %g for head %td; allowed: finite", options.sinks[h],
                        h);
  if (options.lse) {
    if (options.lse.extent(0) != batch || options.lse.extent(1) != heads || options.lse.extent(2) != q_tokens)
      return make_error(errc::invalid_shape, "options.lse",
                        "has extents [%td, %td, %td]; allowed: [batch, heads, queries] = [%td, %td, %td]",
                        options.lse.extent(0), options.lse.extent(1), options.lse.extent(2), batch, heads, q_tokens);
    for (std::size_t axis = 0; axis < 3 && batch * heads * q_tokens > 0; ++axis)
      if (options.lse.extent(axis) > 1 && options.lse.stride(axis) == 0)
        return make_error(
            errc::invalid_layout, "options.lse",
            "has stride 0 over %td entries of axis %zu; allowed: places of their own, since they are written",
            options.lse.extent(axis), axis);
    if (options.lse.null() && batch * heads * q_tokens > 0)
      return make_error(errc::invalid_layout, "options.lse", "is null for %td rows", batch * heads * q_tokens);
  }
  return {};
}

inline error lse_overlap(const char* with) noexcept {
  return make_error(errc::invalid_layout, "options.lse", "overlaps %s; allowed: memory of its own", with);
}

}  // namespace detail

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ATTENTION_OPTIONS_HPP
