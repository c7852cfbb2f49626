// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_FREQUENCY_AXIS_HPP
#define POSENC_ENCODING_FREQUENCY_AXIS_HPP

#include <algorithm>
#include <span>
#include <vector>

#include "../core/error.hpp"
#include "../core/number_list.hpp"
#include "../core/platform.hpp"
#include "../core/tokens.hpp"

/// Which position axis each frequency of a rotary encoding reads, as a list with one entry a pair.
namespace posenc::inline POSENC_ABI {

namespace detail {
inline void check_sections(const std::vector<index_t>& sections) {
  if (sections.empty() || static_cast<index_t>(sections.size()) > max_position_axes)
    raise(make_error(errc::invalid_shape, "sections",
                     "has %zu entries; allowed: one for each of 1 to %td position axes", sections.size(),
                     max_position_axes));
  for (const index_t pairs : sections)
    if (pairs < 0) raise(make_error(errc::invalid_value, "sections", "has %td pairs; allowed: 0 and more", pairs));
}
}  // namespace detail

/// M-RoPE in sections (Qwen2-VL, arXiv:2409.12191, section 2.1): the first sections[0] pairs read axis 0 (time), the next
/// sections[1] axis 1 (height), the next sections[2] axis 2 (width). Frequencies run on over the sections. Qwen2-VL and
/// Qwen2.5-VL have {16, 24, 24}. Errors: invalid_shape, invalid_value.
inline std::vector<index_t> mrope_sections(const std::vector<index_t>& sections) {
  detail::check_sections(sections);
  index_t pairs = 0;
  for (const index_t section : sections) pairs += section;
  std::vector<index_t> axes(static_cast<std::size_t>(pairs));
  std::size_t at = 0;
  for (std::size_t axis = 0; axis < sections.size(); ++axis)
    for (index_t i = 0; i < sections[axis]; ++i) axes[at++] = static_cast<index_t>(axis);
  return axes;
}

/// M-RoPE with interleaved axes (Qwen3-VL): pairs 1, 4, 7, ... below 3 * sections[1] read axis 1 (height), pairs 2, 5, 8,
/// ... below 3 * sections[2] axis 2 (width), all others axis 0 (time). Qwen3-VL has {24, 20, 20}, whose last four pairs are
/// 0, 0, 0, 0. Errors: invalid_shape, invalid_value (sections whose pairs do not fit into this order).
inline std::vector<index_t> mrope_interleaved(const std::vector<index_t>& sections) {
  detail::check_sections(sections);
  if (sections.size() != 3)
    raise(make_error(errc::invalid_shape, "sections", "has %zu entries; allowed: 3 (time, height, width)",
                     sections.size()));
  const index_t pairs = sections[0] + sections[1] + sections[2];
  std::vector<index_t> axes(static_cast<std::size_t>(pairs));
  for (index_t axis = 1; axis <= 2; ++axis) {
    const index_t section = sections[static_cast<std::size_t>(axis)];
    if (section > 0 && 3 * (section - 1) + axis >= pairs)
      raise(make_error(
          errc::invalid_value, "sections",
          "has %td pairs for axis %td, the last of which would be pair %td of %td; allowed: every third pair "
          "must be enough",
          section, axis, 3 * (section - 1) + axis, pairs));
    for (index_t i = 0; i < section; ++i) axes[static_cast<std::size_t>(3 * i + axis)] = axis;
  }
  return axes;
}

/// M-RoPE with interleaved axes as ggml has it ("imrope"), for four streams of positions: pairs 0, 3, 6, ... below
/// 3 * sections[0] read stream 0, pairs 1, 4, 7, ... below 3 * sections[1] stream 1, pairs 2, 5, 8, ... below
/// 3 * sections[2] stream 2, all others stream 3, which llama.cpp fills with zeros. With Qwen3-VL's {24, 20, 20, 0} these
/// are pairs 61 and 62, which read time in `mrope_interleaved`. The sections may be fewer than `pairs` and start anew then.
/// Errors: invalid_shape (not four sections, none with pairs, pairs < 0), invalid_value.
inline std::vector<index_t> imrope_sections(const std::vector<index_t>& sections, index_t pairs) {
  detail::check_sections(sections);
  index_t total = 0;
  for (const index_t section : sections) total += section;
  if (sections.size() != 4 || total < 1 || pairs < 0)
    raise(make_error(errc::invalid_shape, "sections",
                     "has %zu entries and %td pairs for %td pairs; allowed: 4 entries, at least one pair",
                     sections.size(), total, pairs));
  std::vector<index_t> axes(static_cast<std::size_t>(pairs));
  for (index_t pair = 0; pair < pairs; ++pair) {
    const index_t inside = pair % total, axis = inside % 3;
    axes[static_cast<std::size_t>(pair)] = inside < 3 * sections[static_cast<std::size_t>(axis)] ? axis : 3;
  }
  return axes;
}

namespace detail {

/// Frequencies sorted by the axis that they read, so that those of one axis are computed together.
class frequencies_by_axis {
 public:
  frequencies_by_axis(std::span<const double> inv_freq, const std::vector<index_t>& axes)
      : inv_freq_(inv_freq.data(), inv_freq.size()) {
    const auto pairs = static_cast<index_t>(inv_freq.size());
    if (axes.empty()) {
      runs_.push_back({0, pairs});
      return;
    }
    number_list<index_t> order(inv_freq.size());
    std::size_t at = 0;
    bool sorted = true;
    for (index_t axis = 0; axis < max_position_axes; ++axis) {
      const std::size_t before = at;
      for (std::size_t i = 0; i < axes.size(); ++i) {
        if (axes[i] != axis) continue;
        sorted = sorted && at == i;
        inv_freq_[at] = inv_freq[i];
        order[at++] = static_cast<index_t>(i);
      }
      if (at != before) runs_.push_back({axis, static_cast<index_t>(at)});
    }
    if (!sorted) pair_of_ = order;
  }

  /// All of them, in the order in which they are sorted.
  std::span<const double> inv_freq() const noexcept { return inv_freq_.view(); }

  /// Calls f(inv_freq, count, axis, first, pairs) for pieces of at most `longest` frequencies of one axis, which stand at
  /// first, first + 1, ... in sorted order. They belong to the pairs of these numbers, or, where `pairs` is not null, to
  /// pairs[0], pairs[1], ...
  template <class F>
  void for_each_piece(index_t longest, F&& f) const {
    for (index_t begin = 0; const run& r : runs_) {
      const index_t step = pair_of_.empty() ? r.end - begin : longest;
      for (; begin < r.end; begin += step)
        f(inv_freq_.data() + begin, (std::min)(step, r.end - begin), r.axis, begin,
          pair_of_.empty() ? nullptr : pair_of_.data() + begin);
      begin = r.end;
    }
  }

 private:
  struct run {
    index_t axis;
    index_t end;
  };

  number_list<double> inv_freq_;
  number_list<run> runs_;
  number_list<index_t> pair_of_;  // which pair each frequency belongs to; empty: they stand in order
};

}  // namespace detail

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_FREQUENCY_AXIS_HPP
