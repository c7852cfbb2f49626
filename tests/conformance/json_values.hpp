// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTS_CONFORMANCE_JSON_VALUES_HPP
#define POSENC_TESTS_CONFORMANCE_JSON_VALUES_HPP

#include <posenc/core/platform.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "report.hpp"

namespace conformance {

using nlohmann::json;
using posenc::index_t;

/// A field that must be there.
inline const json& field(const json& object, const char* name) {
  if (!object.is_object() || !object.contains(name)) throw malformed_case(std::string("has no field ") + name);
  return object.at(name);
}

inline bool has(const json& object, const char* name) {
  return object.is_object() && object.contains(name) && !object.at(name).is_null();
}

/// A number; those that JSON does not know are the strings "nan", "inf" and "-inf".
inline double number(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  // Made by their bits, so that they survive -ffast-math.
  if (value == "nan") return std::bit_cast<double>(std::uint64_t{0x7ff8'0000'0000'0000});
  if (value == "inf") return std::bit_cast<double>(std::uint64_t{0x7ff0'0000'0000'0000});
  if (value == "-inf") return std::bit_cast<double>(std::uint64_t{0xfff0'0000'0000'0000});
  throw malformed_case("has " + value.dump().substr(0, 40) + " where a number belongs");
}

inline double number(const json& object, const char* name) { return number(field(object, name)); }

inline index_t whole(const json& value) {
  const double x = number(value);
  if (!(std::abs(x) <= 9007199254740992.0) || x != std::floor(x))
    throw malformed_case("has " + value.dump() + " where a whole number belongs");
  return static_cast<index_t>(x);
}
inline index_t whole(const json& object, const char* name) { return whole(field(object, name)); }

inline std::optional<double> optional_number(const json& object, const char* name) {
  if (!has(object, name)) return std::nullopt;
  return number(object.at(name));
}
inline std::optional<index_t> optional_whole(const json& object, const char* name) {
  if (!has(object, name)) return std::nullopt;
  return whole(object.at(name));
}
inline std::optional<bool> optional_bool(const json& object, const char* name) {
  if (!has(object, name)) return std::nullopt;
  return number(object.at(name)) != 0;
}
inline bool bool_or(const json& object, const char* name, bool otherwise) {
  return optional_bool(object, name).value_or(otherwise);
}

inline std::string text(const json& object, const char* name) {
  const json& value = field(object, name);
  if (!value.is_string()) throw malformed_case(std::string("has a field ") + name + " that is not a string");
  return value.get<std::string>();
}

/// Nested lists of numbers, all rectangular.
struct array {
  std::vector<index_t> extents;
  std::vector<double> values;

  index_t rank() const noexcept { return static_cast<index_t>(extents.size()); }
  index_t extent(index_t axis) const { return extents.at(static_cast<std::size_t>(axis)); }
  /// The element at these indices, one an axis.
  template <class... Index>
  double at(Index... index) const {
    std::size_t flat = 0, axis = 0;
    ((flat = flat * static_cast<std::size_t>(extents.at(axis++)) + static_cast<std::size_t>(index)), ...);
    return values.at(flat);
  }
  double largest() const {
    double result = 0;
    for (const double x : values)
      if (std::abs(x) > result) result = std::abs(x);
    return result;
  }
};

namespace detail {
inline void append(const json& list, array& to, std::size_t depth) {
  if (!list.is_array()) {
    if (depth != to.extents.size()) throw malformed_case("has lists of different depth in one array");
    to.values.push_back(number(list));
    return;
  }
  const auto size = static_cast<index_t>(list.size());
  if (to.extents.size() == depth) {
    if (!to.values.empty()) throw malformed_case("has lists of different depth in one array");
    to.extents.push_back(size);
  }
  if (to.extents[depth] != size) throw malformed_case("has lists of different length in one array");
  for (const json& element : list) append(element, to, depth + 1);
}
}  // namespace detail

inline array numbers(const json& value) {
  if (!value.is_array()) throw malformed_case("has " + value.dump().substr(0, 40) + " where a list belongs");
  array result;
  detail::append(value, result, 0);
  return result;
}
inline array numbers(const json& object, const char* name) {
  try {
    return numbers(field(object, name));
  } catch (const malformed_case& e) {
    throw malformed_case(std::string(name) + " " + e.what());
  }
}

/// The same with extents that the case says it has. Lists that are empty anywhere are taken as they are.
inline array numbers(const json& object, const char* name, const std::vector<index_t>& extents) {
  array result = numbers(object, name);
  index_t count = 1;
  for (const index_t extent : extents) count *= extent;
  if (count == 0 && result.values.empty()) result.extents = extents;
  if (result.extents != extents) throw malformed_case(std::string(name) + " has other extents than the case says");
  return result;
}

/// A list of numbers.
inline std::vector<double> list(const json& object, const char* name) {
  array result = numbers(object, name);
  if (result.rank() != 1) throw malformed_case(std::string(name) + " is not a plain list of numbers");
  return result.values;
}

inline std::vector<index_t> whole_list(const json& object, const char* name) {
  std::vector<index_t> result;
  for (const double x : list(object, name)) result.push_back(whole(json(x)));
  return result;
}

}  // namespace conformance

#endif  // POSENC_TESTS_CONFORMANCE_JSON_VALUES_HPP
