// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <posenc/core/token_builders.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "support/expect_error.hpp"

namespace {

using posenc::errc;
using posenc::index_t;
using posenc::token_list;
using posenc::token_view;
using doubles = std::vector<double>;
using ids = std::vector<std::int64_t>;

TEST(CuSeqlens, RunningSumOfLengths) {
  EXPECT_EQ(posenc::cu_seqlens_of(std::vector<int>{3, 2, 5}), (ids{0, 3, 5, 10}));
  EXPECT_EQ(posenc::cu_seqlens_of(std::vector<index_t>{}), (ids{0}));
  EXPECT_EQ(posenc::cu_seqlens_of(std::vector<unsigned>{0, 4, 0}), (ids{0, 0, 4, 4}));
  POSENC_EXPECT_ERROR(posenc::cu_seqlens_of(std::vector<int>{3, -2}), errc::invalid_value, "lengths: has -2");
}

TEST(PackedDocuments, PositionsStartAgain) {
  const token_list tokens = posenc::packed_documents(std::vector<int>{3, 2, 4});
  EXPECT_EQ(tokens.positions, (doubles{0, 1, 2, 0, 1, 0, 1, 2, 3}));
  EXPECT_EQ(tokens.documents, (ids{0, 0, 0, 1, 1, 2, 2, 2, 2}));
  EXPECT_EQ(tokens.count, 9);
  EXPECT_EQ(tokens.batch, 1);
  EXPECT_TRUE(tokens.cu_seqlens.empty()) << "documents are one row, not ragged sequences";
  EXPECT_FALSE(tokens.view().has_order());
  EXPECT_EQ(posenc::packed_documents(std::vector<int>{0, 2, 0}).documents, (ids{1, 1})) << "empty documents count";
  // Any row of integers will do.
  const int lengths[] = {3, 2, 4};
  const std::array<std::int64_t, 3> same = {3, 2, 4};
  for (const token_list& other : {posenc::packed_documents(lengths), posenc::packed_documents(same),
                                  posenc::packed_documents(std::span(lengths)), posenc::packed_documents({3, 2, 4})})
    EXPECT_EQ(other.positions, tokens.positions);
  EXPECT_EQ(posenc::cu_seqlens_of({3, 2, 4}), (ids{0, 3, 5, 9}));
  POSENC_EXPECT_ERROR(posenc::packed_documents(std::vector<int>{-1}), errc::invalid_value, "lengths: has -1");
}

// Counting what a causal query sees of packed documents: sum of n (n + 1) / 2.
TEST(PackedDocuments, CausalPairs) {
  const token_list list = posenc::packed_documents(std::vector<int>{3, 2, 5});
  const token_view tokens = list;
  int pairs = 0;
  for (index_t i = 0; i < tokens.count(); ++i)
    for (index_t j = 0; j < tokens.count(); ++j)
      pairs += tokens.document(0, i) == tokens.document(0, j) && tokens.order(0, j) <= tokens.order(0, i);
  EXPECT_EQ(pairs, 24);
}

TEST(RaggedSequences, PositionsFollowTheBounds) {
  const token_list tokens = posenc::ragged_sequences(std::vector<std::int32_t>{0, 3, 3, 5});
  EXPECT_EQ(tokens.positions, (doubles{0, 1, 2, 0, 1}));
  EXPECT_EQ(tokens.cu_seqlens, (ids{0, 3, 3, 5}));
  EXPECT_EQ(tokens.view().sequences(), 3);
  EXPECT_EQ(tokens.count, 5);
  EXPECT_TRUE(tokens.documents.empty());
}

TEST(RaggedSequences, OffsetsAreWhatIsCached) {
  const token_list step =
      posenc::ragged_sequences(std::vector<std::int64_t>{0, 1, 2, 4}, std::vector<std::int64_t>{7, 0, 100});
  EXPECT_EQ(step.positions, (doubles{7, 0, 100, 101}));
}

TEST(RaggedSequences, Errors) {
  using bounds = std::vector<std::int64_t>;
  POSENC_EXPECT_ERROR(posenc::ragged_sequences(bounds{}), errc::invalid_shape, "cu_seqlens: is empty");
  POSENC_EXPECT_ERROR((posenc::ragged_sequences(bounds{1, 3})), errc::invalid_value, "cu_seqlens: has 1 at 0");
  POSENC_EXPECT_ERROR((posenc::ragged_sequences(bounds{0, 5, 3})), errc::invalid_value, "cu_seqlens: has 3 at 2");
  POSENC_EXPECT_ERROR((posenc::ragged_sequences(bounds{0, 5, 6}, bounds{1})), errc::invalid_shape,
                      "offsets: has 1 entries for 2 sequences");
}

// Left and right padding, and the position of the next token: decoding goes on after the real tokens.
TEST(AttentionMask, PaddingDoesNotCount) {
  const std::vector<int> mask = {0, 0, 1, 1, 1,  //
                                 1, 1, 1, 1, 1,  //
                                 1, 1, 0, 0, 0,  //
                                 0, 1, 0, 1, 0,  //
                                 0, 0, 0, 0, 0};
  const token_list tokens = posenc::from_attention_mask(mask.data(), 5, 5);
  EXPECT_EQ(tokens.batch, 5);
  EXPECT_EQ(tokens.count, 5);
  const std::vector<int> expected = {-1, -1, 0,  1, 2,  0, 1,  2,  3,  4,  0,  1, -1,
                                     -1, -1, -1, 0, -1, 1, -1, -1, -1, -1, -1, -1};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(tokens.documents[i], mask[i] == 1 ? 0 : -1) << i;
    if (mask[i] == 1) {
      EXPECT_EQ(tokens.positions[i], expected[i]) << i;
    } else {
      EXPECT_EQ(tokens.positions[i], 0) << i;
    }
  }
  const double next[] = {3, 5, 2, 2, 0};
  for (index_t row = 0; row < 5; ++row) EXPECT_EQ(tokens.next_position(row), next[row]) << row;
  const token_view view = tokens;
  EXPECT_EQ(view.document(0, 1), -1);
  EXPECT_EQ(view.position(0, 1, 4), 4);
}

TEST(AttentionMask, AnyArithmeticType) {
  const bool bits[] = {false, true};
  EXPECT_EQ(posenc::from_attention_mask(bits, 1, 2).documents, (ids{-1, 0}));
  const float numbers[] = {1.0f, 0.0f};
  EXPECT_EQ(posenc::from_attention_mask(numbers, 1, 2).documents, (ids{0, -1}));
  const std::uint8_t bytes[] = {1, 1};
  EXPECT_EQ(posenc::from_attention_mask(bytes, 2, 1).positions, (doubles{0, 0}));
  POSENC_EXPECT_ERROR(posenc::from_attention_mask(static_cast<const int*>(nullptr), 1, 2), errc::invalid_layout,
                      "attention_mask: is null");
  EXPECT_EQ(posenc::from_attention_mask(static_cast<const int*>(nullptr), 0, 2).positions, doubles{});
}

TEST(AttentionMask, CountsThatCannotBeAreErrors) {
  const int mask[] = {1};
  POSENC_EXPECT_ERROR(posenc::from_attention_mask(mask, -1, 1), errc::invalid_shape, "batch: is -1");
  POSENC_EXPECT_ERROR(posenc::from_attention_mask(mask, 1, -2), errc::invalid_shape, "count: is -2");
  constexpr posenc::index_t huge = posenc::index_t{1} << 62;
  POSENC_EXPECT_ERROR(posenc::opt_positions(mask, huge, huge), errc::invalid_shape, "count: is 4611686018427387904");
  const posenc::index_t bounds[] = {0, huge};
  POSENC_EXPECT_ERROR(posenc::ragged_sequences(bounds), errc::invalid_value,
                      "cu_seqlens: has 4611686018427387904 at 1");
}

TEST(RobertaPositions, CountFromPaddingIndexPlusOne) {
  const int mask[] = {1, 1, 1, 0, 0, 0, 1, 1, 0, 1};
  const token_list tokens = posenc::roberta_positions(mask, 2, 5, 1);
  EXPECT_EQ(tokens.positions, (doubles{2, 3, 4, 1, 1, 1, 2, 3, 1, 4}));
  EXPECT_EQ(tokens.documents, (ids{0, 0, 0, -1, -1, -1, 0, 0, -1, 0}));
  EXPECT_EQ(tokens.next_position(0), 5);
}

// The table rows are these plus 2 (reported: rows -1, 0, 1, 2 without the offset).
TEST(OptPositions, PaddingIsMinusOne) {
  const int mask[] = {0, 1, 1, 1};
  const token_list tokens = posenc::opt_positions(mask, 1, 4);
  EXPECT_EQ(tokens.positions, (doubles{-1, 0, 1, 2}));
  doubles rows = tokens.positions;
  for (double& row : rows) row += 2;
  EXPECT_EQ(rows, (doubles{1, 2, 3, 4}));
  EXPECT_EQ(tokens.next_position() + 2, 5);
}

TEST(NextPosition, OneMoreThanTheLargest) {
  token_list tokens;
  tokens.axes = 2;
  tokens.batch = 2;
  tokens.count = 2;
  tokens.positions = {0, 1, 2, 3, 9, 0, 4, 5};
  EXPECT_EQ(tokens.next_position(0), 10) << "over all axes";
  EXPECT_EQ(tokens.next_position(1), 6);
  tokens.documents = {-1, 0, 0, 0};
  EXPECT_EQ(tokens.next_position(0), 2) << "padding left out";
  EXPECT_EQ(token_list{}.next_position(), 0) << "no tokens";
}

TEST(NextPosition, NegativePositions) {
  token_list tokens;
  tokens.count = 2;
  tokens.positions = {-5, -4};
  EXPECT_EQ(tokens.next_position(), -3);
}

// ---- M-RoPE, against the rule as the paper states it, written another way ----

struct cell {
  double t, h, w;
};

TEST(Mrope, TextImageText) {
  const token_list tokens = posenc::mrope_builder().text(2).grid(1, 2, 3).text(2).build();
  const doubles time = {0, 1, 2, 2, 2, 2, 2, 2, 5, 6};
  const doubles height = {0, 1, 2, 2, 2, 3, 3, 3, 5, 6};
  const doubles width = {0, 1, 2, 3, 4, 2, 3, 4, 5, 6};
  doubles all = time;
  all.insert(all.end(), height.begin(), height.end());
  all.insert(all.end(), width.begin(), width.end());
  EXPECT_EQ(tokens.axes, 3);
  EXPECT_EQ(tokens.count, 10);
  EXPECT_EQ(tokens.positions, all);
  EXPECT_EQ(tokens.order, (doubles{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(tokens.next_position(), 7);
  EXPECT_FALSE(posenc::detail::check_tokens(tokens, 1, 10, "tokens"));
}

TEST(Mrope, RandomSegments) {
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    posenc::mrope_builder builder;
    std::vector<cell> expected;
    for (int segment = 0; segment < 4; ++segment) {
      const auto pick = [&](index_t low, index_t high) {
        return std::uniform_int_distribution<index_t>(low, high)(random);
      };
      // Where a segment starts: one past the largest number used so far on any axis.
      double start = 0;
      for (const cell& c : expected) start = (std::max)({start, c.t + 1, c.h + 1, c.w + 1});
      if (pick(0, 1) == 0) {
        const index_t n = pick(0, 4);
        builder.text(n);
        for (index_t k = 0; k < n; ++k) {
          const double p = start + static_cast<double>(k);
          expected.push_back({p, p, p});
        }
      } else {
        const index_t frames = pick(1, 3), rows = pick(1, 4), columns = pick(0, 4);
        builder.grid(frames, rows, columns);
        for (index_t k = 0; k < frames * rows * columns; ++k)
          expected.push_back({start + static_cast<double>(k / (rows * columns)),
                              start + static_cast<double>(k / columns % rows),
                              start + static_cast<double>(k % columns)});
      }
    }
    const token_list list = builder.build();
    const token_view tokens = list;
    ASSERT_EQ(tokens.count(), static_cast<index_t>(expected.size()));
    for (index_t t = 0; t < tokens.count(); ++t) {
      const cell& c = expected[static_cast<std::size_t>(t)];
      EXPECT_EQ(tokens.position(0, 0, t), c.t);
      EXPECT_EQ(tokens.position(1, 0, t), c.h);
      EXPECT_EQ(tokens.position(2, 0, t), c.w);
      EXPECT_EQ(tokens.order(0, t), static_cast<double>(t));
    }
  }
}

TEST(Mrope, CellsOfAGridMaySeeEachOther) {
  const token_list tokens =
      posenc::mrope_builder({.same_order_in_grid = true}).text(1).grid(2, 1, 2).text(1).grid(1, 1, 2).build();
  EXPECT_EQ(tokens.order, (doubles{0, 1, 1, 1, 1, 5, 6, 6}));
}

// In pieces, as prompts come that are longer than a call: the numbers are those of the whole.
TEST(Mrope, PiecesAreTheWhole) {
  using builder = posenc::mrope_builder;
  const std::vector<void (*)(builder&)> segments = {
      [](builder& b) { b.text(3); }, [](builder& b) { b.grid(1, 2, 5); }, [](builder& b) { b.grid(3, 1, 1); },
      [](builder& b) { b.text(1); }, [](builder& b) { b.grid(2, 2, 2); }, [](builder& b) { b.text(1); }};
  for (const bool same_order : {false, true}) {
    builder all({.same_order_in_grid = same_order});
    for (const auto segment : segments) segment(all);
    const token_list whole = all.build();
    for (std::size_t step : {1u, 2u, 4u}) {
      index_t past = 0;
      double next = 0;
      for (std::size_t at = 0; at < segments.size(); at += step) {
        builder some({.same_order_in_grid = same_order, .next_position = next, .past = past});
        for (std::size_t i = at; i < (std::min)(segments.size(), at + step); ++i) segments[i](some);
        const token_list list = some.build();
        const token_view piece = list;
        for (index_t t = 0; t < piece.count(); ++t) {
          for (index_t axis = 0; axis < 3; ++axis)
            EXPECT_EQ(piece.position(axis, 0, t), whole.view().position(axis, 0, past + t));
          EXPECT_EQ(piece.order(0, t), whole.view().order(0, past + t));
        }
        past += piece.count();
        next = list.next_position();
      }
      EXPECT_EQ(past, whole.count);
    }
  }
}

TEST(Mrope, Errors) {
  posenc::mrope_builder builder;
  POSENC_EXPECT_ERROR(builder.grid(1, -2, 3), errc::invalid_shape, "grid: is 1 x -2 x 3");
  EXPECT_EQ(builder.build().count, 0) << "nothing was added";
  using posenc::mrope_builder;
  POSENC_EXPECT_ERROR(mrope_builder({.next_position = 3, .past = -1}), errc::invalid_value, "past: is -1");
  POSENC_EXPECT_ERROR(mrope_builder({.next_position = 1e16, .past = 1}), errc::invalid_value,
                      "next_position: is 1e+16");
  POSENC_EXPECT_ERROR(mrope_builder({.next_position = 12}), errc::mismatch, "next_position: is 12 and past 0");
  POSENC_EXPECT_ERROR(mrope_builder({.past = 40}), errc::mismatch, "next_position: is 0 and past 40");
}

TEST(TokenList, ConvertsToViewAndPair) {
  token_list tokens = posenc::packed_documents(std::vector<int>{2, 1});
  tokens.order = {5, 6, 7};
  const posenc::token_pair both = tokens;
  EXPECT_EQ(both.q.order(0, 2), 7);
  EXPECT_EQ(both.k.position(0, 0, 2), 0);
  EXPECT_EQ(both.k.document(0, 2), 1);
}

}  // namespace
