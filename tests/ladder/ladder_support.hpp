// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTS_LADDER_LADDER_SUPPORT_HPP
#define POSENC_TESTS_LADDER_LADDER_SUPPORT_HPP

#include <gtest/gtest.h>
#include <posenc/ladder/frequency_ladder.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#ifndef POSENC_TEST_DATA_DIR
#define POSENC_TEST_DATA_DIR "tests/data"
#endif

namespace ladder_test {

using nlohmann::json;

/// The cases of one file of tests/data.
inline json cases_of(const char* file) {
  const std::string path = std::string(POSENC_TEST_DATA_DIR) + "/" + file;
  std::ifstream stream(path);
  EXPECT_TRUE(stream.good()) << "cannot read " << path;
  if (!stream.good()) return json::array();
  return json::parse(stream).at("cases");
}

/// NaN, infinity and minus infinity, made by bits so that they survive -ffast-math. Pass the elements by reference.
inline const std::array<double, 3>& not_finite() {
  static const std::array<double, 3> numbers = [] {
    const std::array<std::uint64_t, 3> bits = {0x7ff8'0000'0000'0000, 0x7ff0'0000'0000'0000, 0xfff0'0000'0000'0000};
    std::array<double, 3> result{};
    std::memcpy(result.data(), bits.data(), sizeof result);
    return result;
  }();
  return numbers;
}

/// What every scaling's parameter that must be > 0 refuses.
inline std::vector<double> not_positive() {
  std::vector<double> numbers(not_finite().begin(), not_finite().end());
  numbers.insert(numbers.end(), {0.0, -1.0, -1e-300});
  return numbers;
}

/// Largest relative deviation of a ladder's frequencies from a list.
inline double largest_relative_deviation(const posenc::frequency_ladder& ladder, const std::vector<double>& expected) {
  EXPECT_EQ(static_cast<std::size_t>(ladder.size()), expected.size());
  if (static_cast<std::size_t>(ladder.size()) != expected.size()) return 1e9;
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double deviation = std::abs(ladder.inv_freq()[i] - expected[i]) / std::abs(expected[i]);
    largest = deviation > largest ? deviation : largest;
  }
  return largest;
}

inline std::vector<double> frequencies(const posenc::frequency_ladder& ladder) {
  return {ladder.inv_freq().begin(), ladder.inv_freq().end()};
}

}  // namespace ladder_test

#endif  // POSENC_TESTS_LADDER_LADDER_SUPPORT_HPP
