// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_AXIAL_ROPE_HPP
#define POSENC_ENCODING_AXIAL_ROPE_HPP

#include <span>
#include <utility>
#include <vector>

#include "../core/error.hpp"
#include "../core/number_list.hpp"
#include "../core/token_builders.hpp"
#include "rope.hpp"

/// RoPE over the rows and columns of images: each axis has a ladder of its own. Axis 0 is the row, axis 1 the column.
namespace posenc::inline POSENC_ABI {

namespace detail {
inline rope ladders_side_by_side(const frequency_ladder* ladders, std::size_t count, rope_options options) {
  number_list<double> inv_freq;
  number_list<index_t> axes;
  const double factor = ladders[0].attention_factor();
  for (std::size_t axis = 0; axis < count; ++axis) {
    const frequency_ladder& ladder = ladders[axis];
    if (ladder.attention_factor() != factor)
      raise(make_error(errc::mismatch, "ladders", "have the attention factors %g and %g; allowed: equal", factor,
                       ladder.attention_factor()));
    inv_freq.append(ladder.inv_freq().data(), ladder.inv_freq().size());
    for (index_t i = 0; i < ladder.size(); ++i) axes.push_back(static_cast<index_t>(axis));
  }
  options.frequency_axis = std::vector<index_t>(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) options.frequency_axis[i] = axes[i];
  return rope(frequency_ladder::from_inv_freq(inv_freq.view(), factor), std::move(options));
}
}  // namespace detail

/// The ladders side by side: the first pairs of a head have the frequencies of ladders[0] and read axis 0, the next those
/// of ladders[1] and read axis 1, and so on. The attention factors must be equal. `options.frequency_axis` is made here.
/// Errors: invalid_shape (no ladders, or more than there are axes), mismatch (attention factors), those of rope.
inline rope axial_rope(std::span<const frequency_ladder> ladders, rope_options options = {}) {
  if (ladders.empty() || static_cast<index_t>(ladders.size()) > max_position_axes)
    raise(make_error(errc::invalid_shape, "ladders", "has %zu entries; allowed: one for each of 1 to %td position axes",
                     ladders.size(), max_position_axes));
  if (!options.frequency_axis.empty())
    raise(make_error(errc::mismatch, "frequency_axis",
                     "has %zu entries; allowed: none, the ladders say which axis is read",
                     options.frequency_axis.size()));
  return detail::ladders_side_by_side(ladders.data(), ladders.size(), std::move(options));
}

namespace detail {
inline void check_vision_dim(index_t head_dim) {
  if (head_dim <= 0 || head_dim % 4 != 0)
    raise(make_error(errc::invalid_shape, "head_dim",
                     "is %td; allowed: a multiple of 4 (pairs for rows and for columns)", head_dim));
}
}  // namespace detail

/// The vision encoder of Qwen2-VL, Qwen2.5-VL and Qwen3-VL (ggml's vision mode): rows and columns have the same
/// frequencies base^(-4k / head_dim), rows first; half pairs. Errors: invalid_shape, invalid_value.
inline rope qwen_vision_rope(index_t head_dim, const ladder_options& options = {}) {
  detail::check_vision_dim(head_dim);
  const frequency_ladder one(head_dim / 2, options);
  const frequency_ladder both[] = {one, one};
  return detail::ladders_side_by_side(both, 2, {});
}

/// The vision encoder of Pixtral: the frequencies base^(-2k / head_dim) are dealt out, even k to rows and odd k to columns;
/// rows come first; half pairs. Errors: invalid_shape, invalid_value.
inline rope pixtral_vision_rope(index_t head_dim, const ladder_options& options = {}) {
  detail::check_vision_dim(head_dim);
  const frequency_ladder all(head_dim, options);
  detail::number_list<double> dealt[2];
  for (index_t k = 0; k < all.size(); ++k) dealt[k % 2].push_back(all.inv_freq(k));
  const frequency_ladder both[] = {frequency_ladder::from_inv_freq(dealt[0].view()),
                                   frequency_ladder::from_inv_freq(dealt[1].view())};
  return detail::ladders_side_by_side(both, 2, {});
}

/// The vision encoder of Llama 4: columns and rows have the same frequencies base^(-4k / head_dim), columns first;
/// interleaved pairs. Its rows and columns count from 1, and the class token, the last one, is at 0:
/// patch_tokens(rows, columns, {.first = 1, .class_token = true}). Errors: invalid_shape, invalid_value.
inline rope llama4_vision_rope(index_t head_dim, const ladder_options& options = {}) {
  detail::check_vision_dim(head_dim);
  const frequency_ladder one(head_dim / 2, options);
  const std::size_t pairs = one.inv_freq().size();
  detail::number_list<double> inv_freq(one.inv_freq().data(), pairs);
  inv_freq.append(one.inv_freq().data(), pairs);
  std::vector<index_t> axes(2 * pairs);
  for (std::size_t i = 0; i < pairs; ++i) axes[i] = 1;
  return rope(frequency_ladder::from_inv_freq(inv_freq.view()),
              {.pairing = pairing::interleaved, .frequency_axis = std::move(axes)});
}

struct patch_options {
  double first = 0;          ///< the position of the first row and the first column
  bool class_token = false;  ///< whether one more token follows the patches, at 0 on both axes
};

/// The patches of an image row by row, as tokens with the axes row and column. Their order is 0 for all: an encoder's
/// patches all see each other. Errors: invalid_shape (rows or columns < 0).
inline token_list patch_tokens(index_t rows, index_t columns, const patch_options& options = {}) {
  if (rows < 0 || columns < 0)
    raise(make_error(errc::invalid_shape, rows < 0 ? "rows" : "columns", "is %td; allowed: 0 and more",
                     rows < 0 ? rows : columns));
  token_list tokens = detail::blank_tokens(2, 1, rows * columns + (options.class_token ? 1 : 0), true, false, 0);
  for (index_t i = 0; i < rows * columns; ++i) {
    tokens.positions[static_cast<std::size_t>(i)] = options.first + static_cast<double>(i / columns);
    tokens.positions[static_cast<std::size_t>(tokens.count + i)] = options.first + static_cast<double>(i % columns);
  }
  return tokens;
}

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_AXIAL_ROPE_HPP
