// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <posenc/core/tokens.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace {

using posenc::errc;
using posenc::index_t;
using posenc::maybe_error;
using posenc::token_view;

double from_bits(std::uint64_t bits) {
  double x = 0;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
const double not_a_number = from_bits(0x7ff8'0000'0000'0000), infinity = from_bits(0x7ff0'0000'0000'0000);

// ---- what a view says ----

TEST(TokenRange, CountsUpFromTheOffset) {
  const token_view tokens = posenc::token_range(5, 100);
  EXPECT_EQ(tokens.count(), 5);
  EXPECT_EQ(tokens.batch(), 1);
  EXPECT_EQ(tokens.axes(), 1);
  EXPECT_EQ(tokens.sequences(), 1);
  EXPECT_EQ(tokens.sequence_begin(0), 0);
  EXPECT_EQ(tokens.sequence_begin(1), 5);
  EXPECT_FALSE(tokens.has_order() || tokens.has_documents() || tokens.has_cu_seqlens());
  for (index_t row = 0; row < 3; ++row)  // any row of a batch
    for (index_t t = 0; t < 5; ++t) {
      EXPECT_EQ(tokens.position(0, row, t), 100.0 + static_cast<double>(t));
      EXPECT_EQ(tokens.order(row, t), 100.0 + static_cast<double>(t));
      EXPECT_EQ(tokens.document(row, t), 0);
    }
  double several[3];
  tokens.read_positions(0, 0, 2, 3, several);
  EXPECT_EQ(several[0], 102);
  EXPECT_EQ(several[2], 104);
  EXPECT_EQ(posenc::token_range(2, -0.5).position(0, 0, 1), 0.5);
}

template <class P>
class TokenPositions : public testing::Test {};
using position_types = testing::Types<std::int32_t, std::int64_t, float, double>;
TYPED_TEST_SUITE(TokenPositions, position_types);

TYPED_TEST(TokenPositions, SharedByAllRows) {
  const std::vector<TypeParam> positions = {TypeParam(3), TypeParam(-1), TypeParam(70000)};
  const token_view tokens = posenc::token_positions(std::span<const TypeParam>(positions));
  EXPECT_EQ(tokens.count(), 3);
  EXPECT_EQ(tokens.batch(), 1);
  EXPECT_EQ(tokens.position(0, 0, 2), 70000);
  EXPECT_EQ(tokens.position(0, 9, 1), -1);
  EXPECT_EQ(tokens.order(9, 1), -1);
}

TYPED_TEST(TokenPositions, OneARowAndAxis) {
  // [axes = 2][batch = 2][count = 3]
  std::vector<TypeParam> positions(12);
  for (std::size_t i = 0; i < 12; ++i) positions[i] = static_cast<TypeParam>(i);
  const token_view tokens = posenc::token_positions(positions.data(), 3, 2, 2);
  for (index_t axis = 0; axis < 2; ++axis)
    for (index_t b = 0; b < 2; ++b) {
      double row[3];
      tokens.read_positions(axis, b, 0, 3, row);
      for (index_t t = 0; t < 3; ++t) {
        EXPECT_EQ(tokens.position(axis, b, t), static_cast<double>((axis * 2 + b) * 3 + t));
        EXPECT_EQ(row[t], tokens.position(axis, b, t));
      }
    }
}

TYPED_TEST(TokenPositions, OrderIsItsOwnAndLaidOutLikeRows) {
  const std::vector<double> positions(6, 7.0);
  const std::vector<TypeParam> order = {TypeParam(0),  TypeParam(1),  TypeParam(2),
                                        TypeParam(10), TypeParam(11), TypeParam(12)};
  const token_view rows = posenc::token_positions(positions.data(), 3, 2).with_order(order.data());
  EXPECT_TRUE(rows.has_order());
  EXPECT_EQ(rows.position(0, 1, 2), 7);
  EXPECT_EQ(rows.order(0, 2), 2);
  EXPECT_EQ(rows.order(1, 2), 12);
  double read[2];
  rows.read_order(1, 1, 2, read);
  EXPECT_EQ(read[0], 11);
  const token_view shared = posenc::token_range(3).with_order(order.data());
  EXPECT_EQ(shared.order(1, 2), 2) << "one row serves all";
  EXPECT_EQ(shared.position(0, 1, 2), 2);
}

TEST(TokenView, DocumentsKeepAll64Bits) {
  constexpr std::int64_t large = (std::int64_t{1} << 53) + 1;  // no double
  const std::vector<std::int64_t> ids = {large, -1, large - 1, 5};
  const token_view tokens = posenc::token_positions(std::vector<double>(4).data(), 2, 2).with_documents(ids.data());
  EXPECT_EQ(tokens.document(0, 0), large);
  EXPECT_EQ(tokens.document(0, 1), -1);
  EXPECT_EQ(tokens.document(1, 0), large - 1);
  const std::vector<std::int32_t> narrow = {3, -1};
  EXPECT_EQ(posenc::token_range(2).with_documents(narrow.data()).document(5, 1), -1);
}

TEST(TokenView, SequenceBounds) {
  const std::vector<std::int32_t> bounds = {0, 3, 3, 7};
  const token_view tokens = posenc::token_range(7).with_cu_seqlens(std::span<const std::int32_t>(bounds));
  EXPECT_TRUE(tokens.has_cu_seqlens());
  EXPECT_EQ(tokens.sequences(), 3);
  EXPECT_EQ(tokens.sequence_begin(0), 0);
  EXPECT_EQ(tokens.sequence_begin(2), 3);
  EXPECT_EQ(tokens.sequence_begin(3), 7);
  const std::vector<std::int64_t> wide = {0, 7};
  EXPECT_EQ(posenc::token_range(7).with_cu_seqlens(wide.data(), 1).sequence_begin(1), 7);
}

TEST(TokenView, BuildersLeaveTheOriginalAlone) {
  const double order[2] = {1, 0};
  const std::int64_t ids[2] = {0, 1};
  const token_view tokens = posenc::token_range(2);
  const token_view more = tokens.with_order(order).with_documents(ids);
  EXPECT_FALSE(tokens.has_order());
  EXPECT_TRUE(more.has_order() && more.has_documents());
  EXPECT_EQ(more.order(0, 0), 1);
}

TEST(TokenPair, OneDescriptionServesBothSides) {
  const token_view tokens = posenc::token_range(4, 2);
  const posenc::token_pair both = tokens;
  EXPECT_EQ(both.q.position(0, 0, 0), 2);
  EXPECT_EQ(both.k.position(0, 0, 3), 5);
  const posenc::token_pair two(posenc::token_range(1, 5), posenc::token_range(6));
  EXPECT_EQ(two.q.count(), 1);
  EXPECT_EQ(two.k.count(), 6);
}

// ---- check_tokens ----

void expect_error(const maybe_error& e, errc code, const char* argument, std::initializer_list<const char*> texts) {
  ASSERT_TRUE(e.has_value());
  EXPECT_EQ(e->code(), code) << e->what();
  EXPECT_STREQ(e->argument(), argument);
  for (const char* text : texts)
    EXPECT_NE(std::string(e->what()).find(text), std::string::npos) << e->what() << "\nlacks: " << text;
}

maybe_error check(const token_view& tokens, index_t batch = 1, index_t count = 3) {
  return posenc::detail::check_tokens(tokens, batch, count, "tokens.q");
}

TEST(CheckTokens, AcceptsWhatFits) {
  EXPECT_FALSE(check(posenc::token_range(3)));
  EXPECT_FALSE(check(posenc::token_range(3), 5)) << "one row serves all rows of a batch";
  EXPECT_FALSE(check(posenc::token_range(3), 0)) << "an empty batch";
  EXPECT_FALSE(check(posenc::token_range(0), 1, 0));
  EXPECT_FALSE(check(posenc::token_positions(static_cast<const double*>(nullptr), 0), 1, 0)) << "null, but empty";
  EXPECT_FALSE(check(posenc::token_range(3, -2e9)));
  const double order[3] = {0.5, -1, 0.5};
  EXPECT_FALSE(check(posenc::token_range(3).with_order(order)));
}

TEST(CheckTokens, Counts) {
  expect_error(check(posenc::token_range(4)), errc::invalid_shape, "tokens.q",
               {"tokens.q", "4 tokens", "tensor has 3"});
  const std::vector<double> positions(12);
  expect_error(check(posenc::token_positions(positions.data(), 3, 2), 3), errc::invalid_shape, "tokens.q",
               {"2 batch rows", "allowed: 1 or the tensor's 3"});
  EXPECT_FALSE(check(posenc::token_positions(positions.data(), 3, 2), 2));
}

TEST(CheckTokens, Axes) {
  const std::vector<double> numbers(100);
  expect_error(check(posenc::token_positions(numbers.data(), 3, 1, 0)), errc::invalid_shape, "tokens.q",
               {"0 position axes", "1 to 8"});
  expect_error(check(posenc::token_positions(numbers.data(), 3, 1, 9).with_order(numbers.data())), errc::invalid_shape,
               "tokens.q", {"9 position axes", "1 to 8"});
  const token_view eight = posenc::token_positions(numbers.data(), 3, 1, 8);
  expect_error(check(eight), errc::mismatch, "tokens.q", {"8 position axes and no order", "with_order"});
  EXPECT_FALSE(check(eight.with_order(numbers.data())));
}

TEST(CheckTokens, NullPointers) {
  const double* const no_double = nullptr;
  const std::int32_t* const no_int = nullptr;
  expect_error(check(posenc::token_positions(no_double, 3)), errc::invalid_layout, "tokens.q", {"null", "3 tokens"});
  expect_error(check(posenc::token_range(3).with_order(no_double)), errc::invalid_layout, "tokens.q", {"null"});
  expect_error(check(posenc::token_range(3).with_documents(no_int)), errc::invalid_layout, "tokens.q", {"null"});
  expect_error(check(posenc::token_range(3).with_cu_seqlens(no_int, 1)), errc::invalid_layout, "tokens.q",
               {"null", "cu_seqlens"});
}

TEST(CheckTokens, SequenceBounds) {
  const auto with = [](const std::vector<std::int32_t>& bounds) {
    return check(posenc::token_range(3).with_cu_seqlens(std::span<const std::int32_t>(bounds)));
  };
  EXPECT_FALSE(with({0, 3}));
  EXPECT_FALSE(with({0, 0, 1, 1, 3, 3})) << "empty sequences";
  expect_error(with({1, 3}), errc::invalid_value, "tokens.q", {"cu_seqlens[0] = 1", "starting at 0"});
  expect_error(with({0, 2, 1, 3}), errc::invalid_value, "tokens.q", {"cu_seqlens[2] = 1", "never falling"});
  expect_error(with({0, 4}), errc::invalid_value, "tokens.q", {"cu_seqlens[1] = 4", "3 tokens"});
  expect_error(with({0, -1, 3}), errc::invalid_value, "tokens.q", {"cu_seqlens[1] = -1"});
  expect_error(with({0, 2}), errc::invalid_value, "tokens.q", {"ending at 2", "3 tokens"});
  ASSERT_TRUE(with({}).has_value()) << "not even one bound";
  const std::vector<std::int32_t> bounds = {0, 3};
  expect_error(check(posenc::token_range(3).with_cu_seqlens(bounds.data(), -1)), errc::invalid_shape, "tokens.q",
               {"cu_seqlens of length 0"});
  expect_error(check(posenc::token_range(3).with_cu_seqlens(bounds.data(), 1), 2), errc::mismatch, "tokens.q",
               {"cu_seqlens", "2 batch rows"});
}

// NaN, infinity and numbers that doubles cannot tell apart, wherever they stand.
TEST(CheckTokens, PositionsAndOrders) {
  const double bad[] = {not_a_number, infinity, -infinity, 1e16, -1e16};
  for (const double& value : bad)
    for (const std::size_t at : {0u, 63u, 64u, 129u}) {
      std::vector<double> numbers(130, 1.0);
      std::memcpy(&numbers[at], &value, sizeof value);
      const std::string token = "token " + std::to_string(at) + " of row 0";
      expect_error(check(posenc::token_positions(numbers.data(), 130), 1, 130), errc::invalid_value, "tokens.q",
                   {"position", token.c_str(), "2^53"});
      expect_error(check(posenc::token_range(130).with_order(numbers.data()), 1, 130), errc::invalid_value, "tokens.q",
                   {"order", token.c_str()});
    }
  // The second axis of the second row.
  std::vector<double> numbers(2 * 2 * 3, 0.0);
  std::memcpy(&numbers[10], &not_a_number, sizeof not_a_number);
  expect_error(check(posenc::token_positions(numbers.data(), 3, 2, 2).with_order(std::vector<double>(6).data()), 2),
               errc::invalid_value, "tokens.q", {"position", "token 1 of row 1"});
  // The ends of a range stand for all of it.
  for (const index_t count : {1, 2, 3, 200}) {
    const auto n = static_cast<double>(count);
#if !defined(__FAST_MATH__)  // there, compilers may do anything with a NaN that is passed by value
    expect_error(check(posenc::token_range(count, not_a_number), 1, count), errc::invalid_value, "tokens.q",
                 {"position"});
#endif
    expect_error(check(posenc::token_range(count, 9007199254740992.0 - n + 4), 1, count), errc::invalid_value,
                 "tokens.q", {"9.0072e+15"});
    EXPECT_FALSE(check(posenc::token_range(count, 9007199254740992.0 - n), 1, count));
  }
}

TEST(CheckTokenPair, WhatBothSidesMustAgreeOn) {
  using posenc::detail::check_token_pair;
  const std::vector<double> numbers(20);
  const std::vector<std::int64_t> ids(20), bounds = {0, 1, 3}, one = {0, 3};
  const token_view plain = posenc::token_range(3);
  const token_view two_axes = posenc::token_positions(numbers.data(), 3, 1, 2).with_order(numbers.data());
  const token_view documents = plain.with_documents(ids.data());
  const token_view ragged = plain.with_cu_seqlens(bounds.data(), 2);
  EXPECT_FALSE(check_token_pair({plain, plain}));
  EXPECT_FALSE(check_token_pair({documents, documents}));
  EXPECT_FALSE(check_token_pair({ragged, ragged}));
  expect_error(check_token_pair({plain, two_axes}), errc::mismatch, "tokens",
               {"1 position axes for queries", "2 for keys"});
  expect_error(check_token_pair({documents, plain}), errc::mismatch, "tokens",
               {"document ids for queries only", "both sides"});
  expect_error(check_token_pair({plain, documents}), errc::mismatch, "tokens", {"document ids for keys only"});
  expect_error(check_token_pair({ragged, plain}), errc::mismatch, "tokens", {"2 sequences of queries", "1 of keys"});
  expect_error(check_token_pair({plain, plain.with_cu_seqlens(one.data(), 1)}), errc::mismatch, "tokens",
               {"cu_seqlens on both sides"});
}

}  // namespace
