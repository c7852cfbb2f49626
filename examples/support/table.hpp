// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_EXAMPLES_SUPPORT_TABLE_HPP
#define POSENC_EXAMPLES_SUPPORT_TABLE_HPP

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace tour {

/// printf into a string.
__attribute__((format(printf, 1, 2))) inline std::string formatted(const char* format, ...) {
  char buffer[256];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return buffer;
}

/// A deviation, such as 1.4e-07.
inline std::string small(double x) { return x == 0 ? "0" : formatted("%.1e", x); }

/// A column. Neighbours with the same group get it as a common heading above their titles.
struct column {
  std::string group, title;
  bool flush_left = false;
};

/// A table in plain characters. The first column is flush left, the others flush right unless they say otherwise.
class table {
 public:
  explicit table(std::vector<column> columns) : columns_(std::move(columns)) {}

  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  void print() const {
    std::vector<std::size_t> widths;
    for (const column& c : columns_) widths.push_back(c.title.size());
    for (const auto& row : rows_)
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = (std::max)(widths[i], row[i].size());
    // A heading wider than its columns widens the first of them.
    for (std::size_t i = 0, end; i < columns_.size(); i = end) {
      const std::size_t width = group_width(widths, i, end);
      if (columns_[i].group.size() > width) widths[i] += columns_[i].group.size() - width;
    }

    std::string heading, rule;
    for (std::size_t i = 0, end; i < columns_.size(); i = end) {
      const std::size_t width = group_width(widths, i, end), length = columns_[i].group.size();
      const char fill = end - i > 1 && length > 0 ? '-' : ' ';
      std::string label = columns_[i].group;
      if (fill == '-') label = " " + label + " ";
      const std::size_t free = width > label.size() ? width - label.size() : 0;
      const std::size_t before = fill == '-' ? free / 2 : free;
      heading += (i == 0 ? "" : gap) + std::string(before, fill) + label + std::string(free - before, fill);
      rule += (i == 0 ? "" : gap) + std::string(width, '-');
    }
    if (heading.find_first_not_of(' ') != std::string::npos) line(heading);
    std::vector<std::string> titles;
    for (const column& c : columns_) titles.push_back(c.title);
    line(joined(titles, widths));
    line(rule);
    for (const auto& row : rows_) line(joined(row, widths));
  }

 private:
  static constexpr const char* gap = "   ";

  /// The width of the columns [begin, end) that share the group of `begin`.
  std::size_t group_width(const std::vector<std::size_t>& widths, std::size_t begin, std::size_t& end) const {
    std::size_t width = widths[begin];
    end = begin + 1;
    while (!columns_[begin].group.empty() && end < columns_.size() && columns_[end].group == columns_[begin].group)
      width += 3 + widths[end++];
    return width;
  }

  std::string joined(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths) const {
    std::string result;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string space(widths[i] - cells[i].size(), ' ');
      result += i == 0 ? "" : gap;
      result += i == 0 || columns_[i].flush_left ? cells[i] + space : space + cells[i];
    }
    return result;
  }

  static void line(const std::string& text) {
    const std::size_t end = text.find_last_not_of(' ');
    std::printf("%s\n", text.substr(0, end == std::string::npos ? 0 : end + 1).c_str());
  }

  std::vector<column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tour

#endif  // POSENC_EXAMPLES_SUPPORT_TABLE_HPP
