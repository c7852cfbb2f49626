// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTS_CONFORMANCE_REPORT_HPP
#define POSENC_TESTS_CONFORMANCE_REPORT_HPP

#include <posenc/core/finite.hpp>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace conformance {

/// Thrown for a case that asks for what is not there yet, or for what this program does not know.
struct skip_case : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Thrown for a case that contradicts its own schema.
struct malformed_case : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What became of one case: for each element type the comparison that came closest to its bound, or went farthest
/// beyond.
class case_report {
 public:
  /// One deviation against its bound. A bound of 0 asks for equality; NaN never passes.
  void compare(const char* type, const double& deviation, const double& bound) {
    entry& of_type = entry_of(type);
    const double ratio = ratio_of(deviation, bound);
    if (of_type.compared && ratio <= of_type.ratio) return;
    of_type = {of_type.type, deviation, bound, ratio, true};
  }

  /// Something that is right or wrong. Only the first mistake of a case is printed.
  void require(bool right, const std::string& what_is_wrong) {
    if (!right && mistake_.empty()) mistake_ = what_is_wrong;
  }

  /// Something for people to read that decides nothing.
  void note(const std::string& text) { notes_.push_back(text); }

  bool passed() const noexcept {
    if (!mistake_.empty() || entries_.empty()) return false;
    for (const entry& e : entries_)
      if (!(e.ratio <= 1)) return false;
    return true;
  }

  /// "double 2e-16 of 1.9e-12, float ...: passed".
  std::string text() const {
    std::string line;
    for (const entry& e : entries_) {
      char part[96];
      std::snprintf(part, sizeof part, "%s%s %.2g of %.2g%s", line.empty() ? "" : ", ", e.type.c_str(), e.deviation,
                    e.bound, e.ratio <= 1 ? "" : " (!)");
      line += part;
    }
    for (const std::string& note : notes_) line += (line.empty() ? "(" : " (") + note + ")";
    if (!line.empty()) line += ": ";
    line += passed() ? "passed" : "failed";
    if (!mistake_.empty()) line += ": " + mistake_;
    if (mistake_.empty() && entries_.empty()) line += ": nothing was compared";
    return line;
  }

 private:
  struct entry {
    std::string type;
    double deviation = 0, bound = 0, ratio = 0;
    bool compared = false;
  };

  static double ratio_of(const double& deviation, const double& bound) {
    constexpr double far_off = 1e300;
    if (!posenc::detail::is_finite(deviation) || !posenc::detail::is_finite(bound)) return far_off;
    if (deviation == 0) return 0;
    return bound > 0 ? deviation / bound : far_off;
  }

  entry& entry_of(const char* type) {
    for (entry& e : entries_)
      if (e.type == type) return e;
    entries_.push_back({type});
    return entries_.back();
  }

  std::vector<entry> entries_;
  std::vector<std::string> notes_;
  std::string mistake_;
};

}  // namespace conformance

#endif  // POSENC_TESTS_CONFORMANCE_REPORT_HPP
