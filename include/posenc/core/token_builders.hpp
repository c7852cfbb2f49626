// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_CORE_TOKEN_BUILDERS_HPP
#define POSENC_CORE_TOKEN_BUILDERS_HPP

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <span>
#include <vector>

#include "error.hpp"
#include "number_list.hpp"
#include "tokens.hpp"

namespace posenc::inline POSENC_ABI {

/// A token description that owns its numbers; what the builders below return. It converts to `token_view`, which
/// stays valid as long as the list lives and is not changed: keep the list, not a view of what a builder returns, beyond
/// the call that it is made for.
struct token_list {
  index_t axes = 1, batch = 1, count = 0;
  std::vector<double> positions;         ///< [axes][batch][count]
  std::vector<double> order;             ///< [batch][count]; empty: the position
  std::vector<std::int64_t> documents;   ///< [batch][count]; empty: none
  std::vector<std::int64_t> cu_seqlens;  ///< sequence bounds; empty: one sequence

  token_view view() const noexcept POSENC_LIFETIME_BOUND {
    token_view result = token_positions(positions.data(), count, batch, axes);
    if (!order.empty()) result = result.with_order(order.data());
    if (!documents.empty()) result = result.with_documents(documents.data());
    if (!cu_seqlens.empty())
      result = result.with_cu_seqlens(cu_seqlens.data(), static_cast<index_t>(cu_seqlens.size()) - 1);
    return result;
  }
  operator token_view() const noexcept POSENC_LIFETIME_BOUND { return view(); }  // NOLINT(google-explicit-constructor)
  operator token_pair() const noexcept POSENC_LIFETIME_BOUND { return view(); }  // NOLINT(google-explicit-constructor)

  /// The position that the next token of a row takes: one more than the largest of its tokens that are not padding, over
  /// all axes; 0 if there is none. Left padding does not count: decoding after a padded prompt must not start at the
  /// padded length.
  double next_position(index_t row = 0) const noexcept {
    double next = 0;
    bool any = false;
    for (index_t axis = 0; axis < axes; ++axis)
      for (index_t t = 0; t < count; ++t) {
        const auto at = static_cast<std::size_t>(row * count + t);
        const bool padding = !documents.empty() && documents[at] == -1;
        if (padding) continue;
        const double after = positions[static_cast<std::size_t>(axis * batch * count) + at] + 1;
        next = any ? (std::max)(next, after) : after;
        any = true;
      }
    return next;
  }
};

/// An array, std::array, std::vector, std::span or std::initializer_list of lengths or bounds.
template <class R>
concept contiguous_integers = requires(const R& r) {
  { std::size(r) } -> std::convertible_to<std::size_t>;
  requires std::integral<std::remove_cvref_t<decltype(*std::data(r))>>;
};

namespace detail {
/// More tokens than any memory holds: their count could not be multiplied any more.
inline constexpr std::int64_t most_tokens = std::int64_t{1} << 48;
}  // namespace detail

/// The bounds 0, n0, n0 + n1, ... of sequences of the given lengths. Errors: invalid_value for a negative length.
template <contiguous_integers Lengths>
std::vector<std::int64_t> cu_seqlens_of(const Lengths& lengths) {
  const std::size_t count = std::size(lengths);
  const auto* const first = std::data(lengths);
  std::vector<std::int64_t> bounds(count + 1);
  for (std::size_t i = 0; i < count; ++i) {
    const auto length = static_cast<std::int64_t>(first[i]);
    if (length < 0 || length > detail::most_tokens - bounds[i])
      raise(make_error(errc::invalid_value, "lengths", "has %lld; allowed: 0 and more, up to 2^48 in all",
                       static_cast<long long>(length)));
    bounds[i + 1] = bounds[i] + length;
  }
  return bounds;
}
inline std::vector<std::int64_t> cu_seqlens_of(std::initializer_list<std::int64_t> lengths) {
  return cu_seqlens_of<std::initializer_list<std::int64_t>>(lengths);
}

namespace detail {
/// Tokens whose numbers are still to be written.
inline token_list blank_tokens(index_t axes, index_t batch, index_t count, bool order, bool documents,
                               std::size_t bounds) {
  const auto all = static_cast<std::size_t>(batch * count);
  return {axes,
          batch,
          count,
          std::vector<double>(static_cast<std::size_t>(axes) * all),
          std::vector<double>(order ? all : 0),
          std::vector<std::int64_t>(documents ? all : 0),
          std::vector<std::int64_t>(bounds)};
}
}  // namespace detail

/// Documents of the given lengths packed into one row: positions start again at 0 in each, document ids are 0, 1, ...
/// Errors: invalid_value for a negative length.
template <contiguous_integers Lengths>
token_list packed_documents(const Lengths& lengths) {
  const std::vector<std::int64_t> bounds = cu_seqlens_of<Lengths>(lengths);
  const std::size_t count = bounds.size() - 1;
  token_list result = detail::blank_tokens(1, 1, static_cast<index_t>(bounds[count]), false, true, 0);
  for (std::size_t d = 0; d < count; ++d)
    for (std::int64_t t = bounds[d]; t < bounds[d + 1]; ++t) {
      result.positions[static_cast<std::size_t>(t)] = static_cast<double>(t - bounds[d]);
      result.documents[static_cast<std::size_t>(t)] = static_cast<std::int64_t>(d);
    }
  return result;
}
inline token_list packed_documents(std::initializer_list<std::int64_t> lengths) {
  return packed_documents<std::initializer_list<std::int64_t>>(lengths);
}

/// Sequences one after another (ragged), given their bounds; sequence s stands at positions offsets[s], offsets[s] + 1,
/// ... (from 0 without offsets). One query per sequence with the cached lengths as offsets is a decoding step, several
/// are the next chunk of prefill over a cache.
/// Unlike documents, sequences are separate pieces of work: kernels never look across their bounds.
/// Errors: invalid_shape (no bounds, another number of offsets), invalid_value (bounds that do not start at 0 or fall).
template <contiguous_integers Bounds, contiguous_integers Offsets = std::vector<std::int64_t>>
token_list ragged_sequences(const Bounds& cu_seqlens, const Offsets& offsets = {}) {
  const auto* const bounds = std::data(cu_seqlens);
  const auto* const starts = std::data(offsets);
  const std::size_t count = std::size(cu_seqlens);
  if (count == 0)
    raise(make_error(errc::invalid_shape, "cu_seqlens", "is empty; allowed: the number of sequences + 1 bounds"));
  if (std::size(offsets) != 0 && std::size(offsets) + 1 != count)
    raise(make_error(errc::invalid_shape, "offsets", "has %zu entries for %zu sequences; allowed: one for each or none",
                     std::size(offsets), count - 1));
  for (std::size_t s = 0; s < count; ++s) {
    const auto begin = static_cast<std::int64_t>(bounds[s]);
    if ((s == 0 && begin != 0) || (s > 0 && begin < static_cast<std::int64_t>(bounds[s - 1])))
      raise(make_error(errc::invalid_value, "cu_seqlens", "has %lld at %zu; allowed: starting at 0, never falling",
                       static_cast<long long>(begin), s));
    if (begin > detail::most_tokens)
      raise(make_error(errc::invalid_value, "cu_seqlens", "has %lld at %zu; allowed: up to 2^48",
                       static_cast<long long>(begin), s));
  }
  token_list result = detail::blank_tokens(1, 1, static_cast<index_t>(bounds[count - 1]), false, false, count);
  for (std::size_t s = 0; s < count; ++s) result.cu_seqlens[s] = static_cast<std::int64_t>(bounds[s]);
  for (std::size_t s = 0; s + 1 < count; ++s) {
    const double start = std::size(offsets) == 0 ? 0.0 : static_cast<double>(starts[s]);
    const std::int64_t begin = result.cu_seqlens[s], end = result.cu_seqlens[s + 1];
    for (std::int64_t t = begin; t < end; ++t)
      result.positions[static_cast<std::size_t>(t)] = start + static_cast<double>(t - begin);
  }
  return result;
}

namespace detail {
template <class M>
token_list masked_tokens(const M* attention_mask, index_t batch, index_t count, double shift, double padding_position) {
  if (batch < 0 || count < 0 || (count > 0 && batch > most_tokens / count))
    raise(make_error(errc::invalid_shape, batch < 0 ? "batch" : "count",
                     "is %td (batch %td, count %td); allowed: 0 and more, up to 2^48 tokens in all",
                     batch < 0 ? batch : count, batch, count));
  if (attention_mask == nullptr && batch * count > 0)
    raise(make_error(errc::invalid_layout, "attention_mask", "is null for %td x %td entries", batch, count));
  token_list result = blank_tokens(1, batch, count, false, true, 0);
  for (index_t b = 0; b < batch; ++b) {
    double real = 0;
    for (index_t t = 0; t < count; ++t) {
      const bool is_real = attention_mask[b * count + t] != M{0};
      const auto at = static_cast<std::size_t>(b * count + t);
      if (is_real) real += 1;
      result.positions[at] = is_real ? real + shift : padding_position;
      result.documents[at] = is_real ? 0 : -1;
    }
  }
  return result;
}
}  // namespace detail

/// Rows padded on either side, from a 0/1 attention mask [batch, count]: positions count the real tokens of a row from 0,
/// padding gets document -1 (and position 0, which nothing reads).
template <class M>
  requires std::is_arithmetic_v<M>
token_list from_attention_mask(const M* attention_mask, index_t batch, index_t count) {
  return detail::masked_tokens(attention_mask, batch, count, -1, 0);
}

/// The same in RoBERTa's numbering for a learned table: real tokens get padding_idx + 1, padding_idx + 2, ..., padding
/// gets padding_idx.
template <class M>
  requires std::is_arithmetic_v<M>
token_list roberta_positions(const M* attention_mask, index_t batch, index_t count, index_t padding_idx) {
  const auto padding = static_cast<double>(padding_idx);
  return detail::masked_tokens(attention_mask, batch, count, padding, padding);
}

/// The same in OPT's numbering: real tokens from 0, padding -1; its table has two more rows, so read it with
/// `learned_positions` and row_offset 2.
template <class M>
  requires std::is_arithmetic_v<M>
token_list opt_positions(const M* attention_mask, index_t batch, index_t count) {
  return detail::masked_tokens(attention_mask, batch, count, -1, -1);
}

/// Positions of text and images on three axes (time, height, width), as Qwen2-VL's M-RoPE counts them: text advances all
/// axes together; a grid starts where the text ended and spreads its cells over the axes; what follows starts one past
/// the largest position so far (arXiv:2409.12191, section 2.1). The order is the token index, so that a causal mask stays
/// causal within an image; `same_order_in_grid` lets the tokens of a grid see each other.
/// What follows cached tokens, a prompt's next piece or a decoding step, starts from `next_position` and `past`: images take
/// fewer positions than tokens, so neither tells the other.
class mrope_builder {
 public:
  struct options {
    bool same_order_in_grid = false;
    double next_position = 0;  ///< where the first token stands: `next_position()` of the tokens before
    index_t past = 0;          ///< how many tokens come before, a cache's length: the order goes on from there
  };

  mrope_builder() = default;
  /// Errors: invalid_value for a past outside of 0 to 2^48 and a position beyond +-2^53; mismatch for one of the two alone.
  explicit mrope_builder(const options& o) : options_(o), next_(o.next_position) {
    if (o.past < 0 || o.past > detail::most_tokens)
      raise(make_error(errc::invalid_value, "past", "is %td; allowed: 0 to 2^48", o.past));
    if (!detail::is_position(o.next_position))
      raise(make_error(errc::invalid_value, "next_position", "is %g; allowed: finite numbers within +-2^53",
                       o.next_position));
    if ((o.past == 0) != (o.next_position == 0))
      raise(
          make_error(errc::mismatch, "next_position",
                     "is %g and past %td; allowed: both from the tokens before, or both 0 (images take fewer positions "
                     "than tokens)",
                     o.next_position, o.past));
  }

  mrope_builder& text(index_t count) {
    for (index_t i = 0; i < count; ++i) {
      add(next_, next_, next_, next_order());
      next_ += 1;
    }
    return *this;
  }

  /// An image or video of `frames` x `rows` x `columns` cells, in that order.
  mrope_builder& grid(index_t frames, index_t rows, index_t columns) {
    if (frames < 0 || rows < 0 || columns < 0)
      raise(make_error(errc::invalid_shape, "grid", "is %td x %td x %td; allowed: 0 and more", frames, rows, columns));
    const double start = next_, order = next_order();
    for (index_t t = 0; t < frames; ++t)
      for (index_t h = 0; h < rows; ++h)
        for (index_t w = 0; w < columns; ++w)
          add(start + static_cast<double>(t), start + static_cast<double>(h), start + static_cast<double>(w),
              options_.same_order_in_grid ? order : next_order());
    if (frames * rows * columns > 0) next_ = start + static_cast<double>((std::max)({frames, rows, columns}));
    return *this;
  }

  token_list build() const {
    const std::size_t count = time_.size();
    token_list result = detail::blank_tokens(3, 1, static_cast<index_t>(count), true, false, 0);
    for (std::size_t t = 0; t < count; ++t) {
      result.positions[t] = time_[t];
      result.positions[count + t] = height_[t];
      result.positions[2 * count + t] = width_[t];
      result.order[t] = order_[t];
    }
    return result;
  }

 private:
  double next_order() const noexcept { return static_cast<double>(options_.past) + static_cast<double>(time_.size()); }
  void add(double t, double h, double w, double order) {
    time_.push_back(t);
    height_.push_back(h);
    width_.push_back(w);
    order_.push_back(order);
  }

  options options_{};
  double next_ = 0;
  detail::number_list<double> time_, height_, width_, order_;
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_CORE_TOKEN_BUILDERS_HPP
