// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTS_ENCODING_ENCODING_SUPPORT_HPP
#define POSENC_TESTS_ENCODING_ENCODING_SUPPORT_HPP

#include <gtest/gtest.h>
#include <posenc/attention/policies.hpp>
#include <posenc/core/error.hpp>
#include <posenc/core/tokens.hpp>
#include <posenc/encoding/concepts.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/expect_error.hpp"

#ifndef POSENC_TEST_DATA_DIR
#define POSENC_TEST_DATA_DIR "tests/data"
#endif

namespace encoding_test {

using nlohmann::json;
using posenc::block_keys;
using posenc::index_t;

/// One file of tests/data.
inline json data_of(const char* file) {
  const std::string path = std::string(POSENC_TEST_DATA_DIR) + "/" + file;
  std::ifstream stream(path);
  EXPECT_TRUE(stream.good()) << "cannot read " << path;
  if (!stream.good()) return json{{"cases", json::array()}};
  return json::parse(stream);
}

/// One of the mistakes that users met.
inline json report(const char* id) {
  const json data = data_of("encoding_user_reports.json");
  for (const json& c : data.at("cases"))
    if (c.at("id") == id) return c;
  ADD_FAILURE() << "no report " << id;
  return {};
}

using numbers = std::vector<double>;

/// The largest difference between two lists.
template <class A, class B>
double largest_difference(const A& a, const B& b) {
  EXPECT_EQ(std::size(a), std::size(b));
  if (std::size(a) != std::size(b)) return 1e9;
  double largest = 0;
  for (std::size_t i = 0; i < std::size(a); ++i)
    largest = (std::max)(largest, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

/// NaN, infinity and minus infinity, made by bits so that they survive -ffast-math. Pass the elements by reference.
inline const std::array<double, 3>& not_finite() {
  static const std::array<double, 3> values = [] {
    const std::array<std::uint64_t, 3> bits = {0x7ff8'0000'0000'0000, 0x7ff0'0000'0000'0000, 0xfff0'0000'0000'0000};
    std::array<double, 3> result{};
    std::memcpy(result.data(), bits.data(), sizeof result);
    return result;
  }();
  return values;
}

/// The biases of one query against keys, as the kernel gets them: the encoding is reached through its policy, and reads a
/// block of keys. `query` has one position an axis, `keys` are [axis][key], at most block_keys of them.
template <class Real, class E>
std::vector<Real> bias_row(const E& encoding, const numbers& query, const std::vector<numbers>& keys, index_t head,
                           bool consecutive) {
  const std::size_t count = keys.front().size();
  std::vector<double> positions(keys.size() * block_keys);
  for (std::size_t axis = 0; axis < keys.size(); ++axis)
    for (std::size_t j = 0; j < block_keys; ++j)
      positions[axis * block_keys + j] = j < count     ? keys[axis][j]
                                         : consecutive ? keys[axis][0] + static_cast<double>(j)
                                                       : keys[axis].back();
  posenc::detail::key_tokens block{};
  block.positions = positions.data();
  block.count = static_cast<index_t>(count);
  block.consecutive_positions = consecutive;
  posenc::detail::tile_row row;
  row.head = head;
  row.position = query.data();
  std::vector<Real> scores(block_keys, Real(0));
  const auto policy = posenc::detail::encoding_policy_of<Real>(encoding);
  EXPECT_NE(policy.bias, nullptr);
  if (policy.bias == nullptr) return {};
  policy.bias->add(policy.encoding, scores.data(), block_keys, &row, 1, block);
  scores.resize(count);
  return scores;
}

/// Positions first, first + 1, ..., `count` of them.
inline numbers range(double first, std::size_t count) {
  numbers result(count);
  for (std::size_t i = 0; i < count; ++i) result[i] = first + static_cast<double>(i);
  return result;
}

/// Real numbers one type at a time.
using real_types = testing::Types<float, double>;

struct real_names {
  template <class T>
  static std::string GetName(int) {
    return std::is_same_v<T, float> ? "float" : "double";
  }
};

/// A rotation for tests: turns dimensions `first` and `first + 1` by position * frequency, times `factor`.
struct turn {
  using acts_on = posenc::places<posenc::on_queries_keys>;
  static constexpr bool rotation_depends_on_role = false;

  index_t first = 0;
  double frequency = 1;
  double factor = 1;

  index_t rotation_size(posenc::rotation_shape) const { return 2; }

  template <class Real>
  void prepare_rotation(posenc::rotation_shape, posenc::position_span position, posenc::rotation_use use,
                        Real* row) const {
    const bool forward = use.op == posenc::rotation_op::rotate;
    const double scale = use.op == posenc::rotation_op::inverse ? 1 / factor : factor;
    row[0] = static_cast<Real>(scale * std::cos(position[0] * frequency));
    row[1] = static_cast<Real>((forward ? scale : -scale) * std::sin(position[0] * frequency));
  }

  template <class Real>
  void apply_rotation(posenc::rotation_shape, const Real* row, index_t, Real* x) const {
    const Real a = x[first], b = x[first + 1];
    x[first] = a * row[0] - b * row[1];
    x[first + 1] = a * row[1] + b * row[0];
  }

  posenc::dim_range rotated_dims(posenc::rotation_shape) const { return {first, first + 2}; }
};

/// x turned by an encoding, as one head of a token at a position.
template <class Real, class E>
std::vector<Real> turned(const E& encoding, double position, std::vector<Real> x,
                         posenc::token_role role = posenc::token_role::query,
                         posenc::rotation_op op = posenc::rotation_op::rotate, index_t kv_head = 0,
                         index_t kv_heads = 1) {
  const posenc::rotation_shape shape{static_cast<index_t>(x.size()), kv_heads};
  // A guard behind the row tells of writes past its end.
  const auto size = static_cast<std::size_t>(encoding.rotation_size(shape));
  std::vector<Real> row(size + 1, Real(-77));
  encoding.prepare_rotation(shape, posenc::position_span(&position, 1), {role, op}, row.data());
  EXPECT_EQ(row.back(), Real(-77));
  encoding.apply_rotation(shape, static_cast<const Real*>(row.data()), kv_head, x.data());
  return x;
}

/// The error of an encoding's check for these tokens on both sides, as text; empty if there is none.
template <class E>
std::string check_text(const E& encoding, const posenc::token_view& tokens, index_t heads, index_t kv_heads,
                       index_t dim) {
  const posenc::maybe_error e = posenc::detail::check_encoding(encoding, {heads, kv_heads, dim, &tokens, &tokens});
  return e ? e->what() : "";
}

}  // namespace encoding_test

#endif  // POSENC_TESTS_ENCODING_ENCODING_SUPPORT_HPP
