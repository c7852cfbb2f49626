// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTS_CONFORMANCE_ELEMENT_TYPES_HPP
#define POSENC_TESTS_CONFORMANCE_ELEMENT_TYPES_HPP

#include <posenc/core/eigen.hpp>
#include <posenc/core/tensor_view.hpp>

#include <cmath>
#include <vector>

#include "json_values.hpp"

namespace conformance {

template <class T>
constexpr const char* type_name() {
  return posenc::detail::dtype_name(posenc::dtype_of<T>);
}

/// One bound for each element type.
struct bounds {
  double in_double, in_float, in_half, in_bfloat16;

  template <class T>
  constexpr double of() const {
    switch (posenc::dtype_of<T>) {
      case posenc::dtype::float64: return in_double;
      case posenc::dtype::float32: return in_float;
      case posenc::dtype::half: return in_half;
      default: return in_bfloat16;
    }
  }
};

/// What is allowed, absolute and relative to max|x|, max|v| and 1 + |lse|. The double bound of rotations and tables
/// grows with the angle; see `rotation_bound`.
inline constexpr bounds attention_bounds{1e-12, 2e-6, 2e-3, 1e-2};
inline constexpr bounds lse_bounds{1e-12, 2e-6, 2e-3, 1e-2};
inline constexpr bounds rotation_bounds{1e-13, 4e-7, 1.5e-3, 1.2e-2};
inline constexpr double ladder_bound = 1e-13;
inline constexpr double slope_bound = 1e-15, float_slope_bound = 1e-7;

template <class T>
double rotation_bound(double angle, double largest) {
  const double growing = posenc::dtype_of<T> == posenc::dtype::float64 ? 1e-15 * std::abs(angle) : 0;
  return (rotation_bounds.of<T>() + growing) * largest;
}

/// Calls f<double>(), f<float>(), f<half>() and f<bfloat16>().
template <class F>
void for_each_type(F&& f) {
  f.template operator()<double>();
  f.template operator()<float>();
  f.template operator()<posenc::half>();
  f.template operator()<posenc::bfloat16>();
}

template <class T>
T element(const double& x) {
  return static_cast<T>(static_cast<posenc::compute_type<T>>(x));
}
template <class T>
double wide(const T& x) {
  return static_cast<double>(static_cast<posenc::compute_type<T>>(x));
}

template <class T>
std::vector<T> elements(const std::vector<double>& values) {
  std::vector<T> result;
  result.reserve(values.size());
  for (const double& x : values) result.push_back(element<T>(x));
  return result;
}

}  // namespace conformance

#endif  // POSENC_TESTS_CONFORMANCE_ELEMENT_TYPES_HPP
