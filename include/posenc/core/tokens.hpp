// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_CORE_TOKENS_HPP
#define POSENC_CORE_TOKENS_HPP

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>

#include "error.hpp"
#include "finite.hpp"
#include "platform.hpp"

namespace posenc::inline POSENC_ABI {

/// The types that positions and orders may have.
template <class P>
concept position_number =
    std::same_as<P, std::int32_t> || std::same_as<P, std::int64_t> || std::same_as<P, float> || std::same_as<P, double>;

/// A token has at most this many position axes.
inline constexpr index_t max_position_axes = 8;

namespace detail {
/// Positions and orders lie within +- this, 2^53: doubles hold every integer to there; beyond, distances would silently
/// round.
inline constexpr double largest_position = 9007199254740992.0;

/// Whether x can be a position.
constexpr bool is_position(const double& x) noexcept {
  return is_finite(x) && x >= -largest_position && x <= largest_position;
}
}  // namespace detail

/// The types that document ids and sequence bounds may have.
template <class P>
concept id_number = std::same_as<P, std::int32_t> || std::same_as<P, std::int64_t>;

namespace detail {

/// Numbers [axis][batch][token] of any of the types above in the caller's memory, or the range start, start + 1, ...
class number_view {
 public:
  constexpr number_view() noexcept = default;

  static constexpr number_view range(double start) noexcept {
    number_view result;
    result.kind_ = kind::range;
    result.start_ = start;
    return result;
  }

  template <position_number P>
  constexpr number_view(const P* data, index_t axis_stride, index_t batch_stride, index_t token_stride) noexcept
      : data_(data), axis_stride_(axis_stride), batch_stride_(batch_stride), token_stride_(token_stride) {
    if constexpr (std::same_as<P, std::int32_t>) kind_ = kind::int32;
    if constexpr (std::same_as<P, std::int64_t>) kind_ = kind::int64;
    if constexpr (std::same_as<P, float>) kind_ = kind::float32;
    if constexpr (std::same_as<P, double>) kind_ = kind::float64;
  }

  constexpr explicit operator bool() const noexcept { return kind_ != kind::none; }
  constexpr bool is_range() const noexcept { return kind_ == kind::range; }
  constexpr bool is_null() const noexcept { return !is_range() && data_ == nullptr; }

  /// Copies `count` numbers of one axis and row, from token `first` on, as doubles.
  void read(index_t axis, index_t batch, index_t first, index_t count, double* out) const noexcept {
    const index_t offset = axis * axis_stride_ + batch * batch_stride_ + first * token_stride_;
    switch (kind_) {
      case kind::range:
        for (index_t i = 0; i < count; ++i) out[i] = start_ + static_cast<double>(first + i);
        break;
      case kind::int32: read_as<std::int32_t>(offset, count, out); break;
      case kind::int64: read_as<std::int64_t>(offset, count, out); break;
      case kind::float32: read_as<float>(offset, count, out); break;
      case kind::float64: read_as<double>(offset, count, out); break;
      case kind::none: break;
    }
  }

  double at(index_t axis, index_t batch, index_t token) const noexcept {
    double value = 0;
    read(axis, batch, token, 1, &value);
    return value;
  }

  /// Integers stay integers beyond 2^53 here.
  std::int64_t id(index_t batch, index_t token) const noexcept {
    const index_t offset = batch * batch_stride_ + token * token_stride_;
    if (kind_ == kind::int64) return static_cast<const std::int64_t*>(data_)[offset];
    return static_cast<std::int64_t>(at(0, batch, token));
  }

 private:
  enum class kind : unsigned char { none, range, int32, int64, float32, float64 };

  template <class P>
  void read_as(index_t offset, index_t count, double* out) const noexcept {
    const P* from = static_cast<const P*>(data_) + offset;
    for (index_t i = 0; i < count; ++i) out[i] = static_cast<double>(from[i * token_stride_]);
  }

  const void* data_ = nullptr;
  index_t axis_stride_ = 0, batch_stride_ = 0, token_stride_ = 1;
  double start_ = 0;
  kind kind_ = kind::none;
};

}  // namespace detail

/// What is known of the tokens of one side (queries or keys), apart from their vectors, in the caller's memory:
/// - a position (one number an axis), which encodings read,
/// - an order, which masks read; it is the position unless given, and attention and caches want it given when there are
///   several axes,
/// - a document id (default: none); tokens see their own document only, and -1 is padding,
/// - the bounds of sequences that lie one after another (ragged batches), if any.
/// Rows of a batch share them (`batch() == 1`) or have their own. Build it with `token_range`, `token_positions`, or
/// as a `token_list` (posenc/core/token_builders.hpp).
class token_view {
 public:
  constexpr token_view() noexcept = default;

  constexpr token_view(detail::number_view positions, index_t axes, index_t batch, index_t count) noexcept
      : positions_(positions), axes_(axes), batch_(batch), count_(count) {}

  /// Rows described: 1 when all rows of the batch share the description.
  constexpr index_t batch() const noexcept { return batch_; }
  /// Tokens of a row; with sequence bounds, of all sequences together.
  constexpr index_t count() const noexcept { return count_; }
  constexpr index_t axes() const noexcept { return axes_; }
  constexpr bool has_order() const noexcept { return static_cast<bool>(order_); }
  constexpr bool has_documents() const noexcept { return static_cast<bool>(documents_); }
  constexpr bool has_cu_seqlens() const noexcept { return static_cast<bool>(cu_seqlens_); }

  /// Sequences in a row: those of the bounds, else one.
  constexpr index_t sequences() const noexcept { return has_cu_seqlens() ? sequences_ : 1; }
  /// First token of sequence s; `sequence_begin(sequences())` is the count.
  index_t sequence_begin(index_t s) const noexcept {
    if (!has_cu_seqlens()) return s == 0 ? 0 : count_;
    return static_cast<index_t>(cu_seqlens_.id(0, s));
  }

  double position(index_t axis, index_t batch, index_t token) const noexcept {
    return positions_.at(axis, row_of(batch), token);
  }
  double order(index_t batch, index_t token) const noexcept {
    return has_order() ? order_.at(0, row_of(batch), token) : position(0, batch, token);
  }
  /// 0 for every token when there are no documents.
  std::int64_t document(index_t batch, index_t token) const noexcept {
    return has_documents() ? documents_.id(row_of(batch), token) : 0;
  }

  /// Copies `count` positions of one axis, from token `first` on.
  void read_positions(index_t axis, index_t batch, index_t first, index_t count, double* out) const noexcept {
    positions_.read(axis, row_of(batch), first, count, out);
  }
  void read_order(index_t batch, index_t first, index_t count, double* out) const noexcept {
    if (has_order()) {
      order_.read(0, row_of(batch), first, count, out);
    } else {
      positions_.read(0, row_of(batch), first, count, out);
    }
  }

  /// The same tokens with the given order: [tokens] for every row, or [batch, tokens] where rows have their own.
  template <position_number P>
  constexpr token_view with_order(const P* order) const noexcept {
    token_view result = *this;
    result.order_ = detail::number_view(order, 0, batch_ == 1 ? 0 : count_, 1);
    return result;
  }
  /// The same tokens with document ids, laid out like orders; -1 is padding.
  template <id_number P>
  constexpr token_view with_documents(const P* documents) const noexcept {
    token_view result = *this;
    result.documents_ = detail::number_view(documents, 0, batch_ == 1 ? 0 : count_, 1);
    return result;
  }
  /// The same tokens as sequences one after another: sequence s is [cu_seqlens[s], cu_seqlens[s + 1]). The bounds start
  /// at 0, never fall and end at `count()`. A query sees keys of its own sequence only.
  template <id_number P>
  constexpr token_view with_cu_seqlens(const P* cu_seqlens, index_t sequences) const noexcept {
    token_view result = *this;
    result.cu_seqlens_ = detail::number_view(cu_seqlens, 0, 0, 1);
    result.sequences_ = sequences;
    return result;
  }
  template <id_number P>
  constexpr token_view with_cu_seqlens(std::span<const P> cu_seqlens) const noexcept {
    return with_cu_seqlens(cu_seqlens.data(), static_cast<index_t>(cu_seqlens.size()) - 1);
  }

  constexpr bool null() const noexcept {
    return count_ > 0 && batch_ > 0 &&
           (positions_.is_null() || (has_order() && order_.is_null()) || (has_documents() && documents_.is_null()));
  }
  constexpr bool null_bounds() const noexcept { return has_cu_seqlens() && cu_seqlens_.is_null(); }
  constexpr bool counts_up() const noexcept { return positions_.is_range(); }
  constexpr bool orders_count_up() const noexcept { return has_order() ? order_.is_range() : positions_.is_range(); }

 private:
  constexpr index_t row_of(index_t batch) const noexcept { return batch_ == 1 ? 0 : batch; }

  detail::number_view positions_ = detail::number_view::range(0), order_, documents_, cu_seqlens_;
  index_t axes_ = 1, batch_ = 1, count_ = 0, sequences_ = 1;
};

/// `count` tokens at positions offset, offset + 1, ...: a whole text, or what is decoded after `offset` cached tokens.
/// Keeps no memory.
constexpr token_view token_range(index_t count, double offset = 0) noexcept {
  return {detail::number_view::range(offset), 1, 1, count};
}
template <std::integral N>
constexpr token_view token_range(index_t count, N offset) noexcept {
  return token_range(count, static_cast<double>(offset));
}

/// An array, std::array, std::vector or std::span of positions.
template <class R>
concept contiguous_positions = requires(const R& r) {
  { *std::data(r) } -> std::convertible_to<double>;
  { std::size(r) } -> std::convertible_to<std::size_t>;
} && position_number<std::remove_cvref_t<decltype(*std::data(std::declval<const R&>()))>>;

namespace detail {
template <class R>
inline constexpr bool is_span = false;
template <class T, std::size_t N>
inline constexpr bool is_span<std::span<T, N>> = true;
}  // namespace detail

/// Tokens at the given positions, shared by all rows of a batch.
template <contiguous_positions R>
  requires(detail::is_span<R>)
constexpr token_view token_positions(R positions) noexcept {
  return {detail::number_view(positions.data(), 0, 0, 1), 1, 1, static_cast<index_t>(positions.size())};
}
template <contiguous_positions R>
  requires(!detail::is_span<R>)
constexpr token_view token_positions(const R& positions POSENC_LIFETIME_BOUND) noexcept {
  return {detail::number_view(std::data(positions), 0, 0, 1), 1, 1, static_cast<index_t>(std::size(positions))};
}

/// Tokens at the positions [axes][batch][count], contiguous.
template <position_number P>
constexpr token_view token_positions(const P* positions, index_t count, index_t batch = 1, index_t axes = 1) noexcept {
  return {detail::number_view(positions, batch * count, count, 1), axes, batch, count};
}

/// The tokens of both sides of an attention call. One description serves both where queries and keys are the same
/// tokens.
struct token_pair {
  token_view q, k;

  constexpr token_pair(const token_view& both) noexcept : q(both), k(both) {}  // NOLINT(google-explicit-constructor)
  constexpr token_pair(const token_view& q_tokens, const token_view& k_tokens) noexcept : q(q_tokens), k(k_tokens) {}
};

namespace detail {

/// Checks one side against a tensor with `batch` rows of `count` tokens, for calls that read no order, as rotations.
/// `side` is "tokens", "tokens.q" or "tokens.k". `hint` is added to the text where the counts differ.
inline maybe_error check_unordered_tokens(const token_view& tokens, index_t batch, index_t count, const char* side,
                                          const char* hint = "") noexcept {
  if (tokens.count() != count)
    return make_error(errc::invalid_shape, side, "describes %td tokens; the tensor has %td%s", tokens.count(), count,
                      hint);
  if (tokens.batch() != 1 && tokens.batch() != batch)
    return make_error(errc::invalid_shape, side, "describes %td batch rows; allowed: 1 or the tensor's %td",
                      tokens.batch(), batch);
  if (tokens.axes() < 1 || tokens.axes() > max_position_axes)
    return make_error(errc::invalid_shape, side, "has %td position axes; allowed: 1 to %td", tokens.axes(),
                      max_position_axes);
  if (tokens.null()) return make_error(errc::invalid_layout, side, "has a null pointer for %td tokens", count);
  if (tokens.has_cu_seqlens()) {
    if (tokens.null_bounds()) return make_error(errc::invalid_layout, side, "has a null pointer for cu_seqlens");
    if (tokens.sequences() < 0)
      return make_error(errc::invalid_shape, side, "has cu_seqlens of length 0; allowed: the number of sequences + 1");
    if (batch > 1)
      return make_error(errc::mismatch, side,
                        "has cu_seqlens and the tensor %td batch rows; sequences lie one after another in one row",
                        batch);
    index_t former = 0;
    for (index_t s = 0; s <= tokens.sequences(); ++s) {
      const index_t bound = tokens.sequence_begin(s);
      if ((s == 0 && bound != 0) || bound < former || bound > count)
        return make_error(errc::invalid_value, side,
                          "has cu_seqlens[%td] = %td; allowed: starting at 0, never falling, ending at the %td tokens",
                          s, bound, count);
      former = bound;
    }
    if (former != count)
      return make_error(errc::invalid_value, side, "has cu_seqlens ending at %td; allowed: the %td tokens", former,
                        count);
  }
  constexpr index_t chunk = 64;
  double values[chunk];
  const auto bad = [&](const char* what, index_t axis, index_t b, bool range) -> maybe_error {
    const index_t step = range && count > 1 ? count - 1 : 1;  // the ends of a range stand for all of it
    for (index_t first = 0; first < count; first += step == 1 ? chunk : step) {
      const index_t n = step == 1 ? (count - first < chunk ? count - first : chunk) : 1;
      if (what[0] == 'o') {
        tokens.read_order(b, first, n, values);
      } else {
        tokens.read_positions(axis, b, first, n, values);
      }
      for (index_t i = 0; i < n; ++i)
        if (!is_position(values[i]))
          return make_error(errc::invalid_value, side,
                            "has the %s %g at token %td of row %td; allowed: finite numbers within +-2^53", what,
                            values[i], first + i, b);
    }
    return {};
  };
  for (index_t b = 0; b < tokens.batch(); ++b) {
    for (index_t axis = 0; axis < tokens.axes(); ++axis)
      if (auto e = bad("position", axis, b, tokens.counts_up())) return e;
    if (tokens.has_order())
      if (auto e = bad("order", 0, b, false)) return e;
  }
  return {};
}

/// The same for calls that masks have a say in.
inline maybe_error check_tokens(const token_view& tokens, index_t batch, index_t count, const char* side,
                                const char* hint = "") noexcept {
  if (maybe_error e = check_unordered_tokens(tokens, batch, count, side, hint)) return e;
  if (tokens.axes() > 1 && !tokens.has_order() && count > 0)
    return make_error(errc::mismatch, side,
                      "has %td position axes and no order; with several axes masks cannot tell the order from the "
                      "position: add with_order(...)",
                      tokens.axes());
  return {};
}

/// Checks what the two sides of one attention call must agree on.
inline maybe_error check_token_pair(const token_pair& tokens) noexcept {
  if (tokens.q.axes() != tokens.k.axes())
    return make_error(errc::mismatch, "tokens", "has %td position axes for queries and %td for keys; allowed: equal",
                      tokens.q.axes(), tokens.k.axes());
  const bool both = tokens.q.count() > 0 && tokens.k.count() > 0;  // a side without tokens has nothing to say
  if (both && tokens.q.has_documents() != tokens.k.has_documents())
    return make_error(
        errc::mismatch, "tokens",
        "has document ids for %s only; give them to both sides (0 everywhere means one document) or to none",
        tokens.q.has_documents() ? "queries" : "keys");
  if (tokens.q.has_cu_seqlens() != tokens.k.has_cu_seqlens() || tokens.q.sequences() != tokens.k.sequences())
    return make_error(errc::mismatch, "tokens",
                      "has %td sequences of queries and %td of keys; allowed: cu_seqlens on both sides, equally many",
                      tokens.q.sequences(), tokens.k.sequences());
  return {};
}

}  // namespace detail

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_CORE_TOKENS_HPP
