// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_CORE_DTYPE_HPP
#define POSENC_CORE_DTYPE_HPP

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "platform.hpp"

namespace posenc::inline POSENC_ABI {

/// The element types that buffers may have. 16-bit types are storage only: arithmetic on them is float.
enum class dtype { float32, float64, half, bfloat16 };

/// Maps an element type to its `dtype`. `posenc/core/eigen.hpp` adds Eigen::half and Eigen::bfloat16;
/// a type of one's own with the same 16 bits can be added in the same way.
template <class T>
struct dtype_traits;

template <>
struct dtype_traits<float> {
  static constexpr dtype value = dtype::float32;
};

template <>
struct dtype_traits<double> {
  static constexpr dtype value = dtype::float64;
};

/// An element type that kernels read and write.
template <class T>
concept scalar = requires {
  { dtype_traits<std::remove_cv_t<T>>::value } -> std::convertible_to<dtype>;
};

template <scalar T>
inline constexpr dtype dtype_of = dtype_traits<std::remove_cv_t<T>>::value;

namespace detail {
template <dtype D>
struct compute_type_of {
  using type = float;
};
template <>
struct compute_type_of<dtype::float64> {
  using type = double;
};
}  // namespace detail

/// The type that arithmetic on elements of type T uses: double for double, float for everything else.
template <scalar T>
using compute_type = typename detail::compute_type_of<dtype_of<T>>::type;

/// Buffers of these types may meet in one call: float, half and bfloat16 mix freely, double goes with double.
template <class T, class... Others>
concept mixable = scalar<T> && (scalar<Others> && ...) && (std::same_as<compute_type<T>, compute_type<Others>> && ...);

namespace detail {
constexpr const char* dtype_name(dtype d) noexcept {
  switch (d) {
    case dtype::float32: return "float";
    case dtype::float64: return "double";
    case dtype::half: return "half";
    default: return "bfloat16";
  }
}

constexpr index_t dtype_size(dtype d) noexcept {
  switch (d) {
    case dtype::float32: return 4;
    case dtype::float64: return 8;
    default: return 2;
  }
}
}  // namespace detail

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_CORE_DTYPE_HPP
