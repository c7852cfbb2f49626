// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTS_ENCODING_ROPE_SUPPORT_HPP
#define POSENC_TESTS_ENCODING_ROPE_SUPPORT_HPP

#include <gtest/gtest.h>
#include <posenc/core/eigen.hpp>
#include <posenc/core/tensor_view.hpp>
#include <posenc/core/token_builders.hpp>
#include <posenc/encoding/rope.hpp>
#include <posenc/encoding/rotate.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "encoding/encoding_support.hpp"

namespace rope_test {

using encoding_test::data_of;
using encoding_test::numbers;
using nlohmann::json;
using posenc::frequency_ladder;
using posenc::index_t;
using posenc::pairing;
using posenc::rope;
using posenc::tensor_view;

inline constexpr std::array<pairing, 2> pairings = {pairing::half, pairing::interleaved};

using element_types = testing::Types<float, double, posenc::half, posenc::bfloat16>;

struct element_names {
  template <class T>
  static std::string GetName(int) {
    return posenc::detail::dtype_name(posenc::dtype_of<T>);
  }
};

/// One of the mistakes that users met.
inline json report(const char* id) {
  const json data = data_of("rope_user_reports.json");
  for (const json& c : data.at("cases"))
    if (c.at("id") == id) return c;
  ADD_FAILURE() << "no report " << id;
  return {};
}

/// A report's tolerance: that of double arithmetic or of float; 16-bit types have their own.
template <class T>
double tolerance(const json& report, double largest = 1) {
  switch (posenc::dtype_of<T>) {
    case posenc::dtype::float64: return report.at("tolerance").at("abs_f64").get<double>();
    case posenc::dtype::float32: return report.at("tolerance").at("abs_f32").get<double>();
    case posenc::dtype::half: return 1.5e-3 * largest;
    default: return 1.2e-2 * largest;
  }
}

/// How far a rotation by `angle` may be off where the largest number around is `largest`.
template <class T>
double rotation_bound(double angle, double largest) {
  switch (posenc::dtype_of<T>) {
    case posenc::dtype::float64: return (1e-13 + 1e-15 * std::fabs(angle)) * largest;
    case posenc::dtype::float32: return 4e-7 * largest;
    case posenc::dtype::half: return 1.5e-3 * largest;
    default: return 1.2e-2 * largest;
  }
}

template <class T>
std::vector<T> as_elements(const numbers& x) {
  std::vector<T> result(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) result[i] = static_cast<T>(static_cast<posenc::compute_type<T>>(x[i]));
  return result;
}

template <class T>
numbers as_doubles(const std::vector<T>& x) {
  numbers result(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) result[i] = static_cast<double>(x[i]);
  return result;
}

inline double largest_of(const numbers& x) {
  double largest = 0;
  for (const double v : x) largest = (std::max)(largest, std::fabs(v));
  return largest;
}

/// Numbers that every element type holds exactly, different from each other for a while.
inline numbers pattern(index_t size, int seed = 1) {
  numbers result(static_cast<std::size_t>(size));
  unsigned state = static_cast<unsigned>(seed) * 2654435761u + 12345u;
  for (double& x : result) {
    state = state * 1664525u + 1013904223u;
    x = static_cast<double>(static_cast<int>(state >> 25) - 64) / 32;
  }
  return result;
}

template <class T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(static_cast<const void*>(&a), static_cast<const void*>(&b), sizeof(T)) == 0;
}

/// A ladder of the usual frequencies for `rotary_dim`, with an attention factor.
inline frequency_ladder ladder_of(index_t rotary_dim, double attention_factor = 1, double base = 10000) {
  return frequency_ladder(rotary_dim, {.base = base}).with_attention_factor(attention_factor);
}

/// One head turned by the formula, in long double. `angles` has one angle a pair.
inline numbers turned_by_formula(numbers x, const numbers& angles, pairing how, index_t offset, double factor,
                                 posenc::rotation_op op = posenc::rotation_op::rotate) {
  const auto pairs = static_cast<index_t>(angles.size());
  for (index_t i = 0; i < pairs; ++i) {
    const auto a = static_cast<std::size_t>(offset + (how == pairing::half ? i : 2 * i));
    const std::size_t b = how == pairing::half ? a + static_cast<std::size_t>(pairs) : a + 1;
    long double angle = angles[static_cast<std::size_t>(i)];
    if (op != posenc::rotation_op::rotate) angle = -angle;
    const long double scale = op == posenc::rotation_op::inverse ? 1 / static_cast<long double>(factor) : factor;
    const long double c = scale * std::cos(angle), s = scale * std::sin(angle), u = x[a], v = x[b];
    x[a] = static_cast<double>(u * c - v * s);
    x[b] = static_cast<double>(u * s + v * c);
  }
  return x;
}

inline numbers angles_of(const frequency_ladder& ladder, double position) {
  numbers result;
  for (const double w : ladder.inv_freq()) result.push_back(position * w);
  return result;
}

}  // namespace rope_test

#endif  // POSENC_TESTS_ENCODING_ROPE_SUPPORT_HPP
