// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "attention/mask_support.hpp"
#include "support/expect_error.hpp"

namespace {

using mask_test::index_t;
using posenc::errc;
using posenc::mask_use;
using posenc::token;

template <class Mask>
bool sees(const Mask& mask, double query, double key) {
  return mask.visible(token{.order = query}, token{.order = key});
}

TEST(MaskVisible, CausalIncludesEqualOrders) {
  EXPECT_TRUE(sees(posenc::causal{}, 3, 2));
  EXPECT_TRUE(sees(posenc::causal{}, 3, 3));
  EXPECT_FALSE(sees(posenc::causal{}, 3, 3.25));
  EXPECT_FALSE(sees(posenc::causal{}, -3, -2));
}

TEST(MaskVisible, BidirectionalSeesAll) {
  EXPECT_TRUE(sees(posenc::bidirectional{}, 3, 1e15));
  EXPECT_TRUE(sees(posenc::bidirectional{}, 1e15, -3));
}

TEST(MaskVisible, WindowEndsAreIncluded) {
  constexpr posenc::sliding_window window{.left = 2, .right = 1};
  for (double key = -3; key <= 5; ++key) EXPECT_EQ(sees(window, 2, key), key >= 0 && key <= 3) << key;
  EXPECT_FALSE(sees(window, 2, -0.25));
  EXPECT_FALSE(sees(window, 2, 3.25));
  EXPECT_TRUE(sees(posenc::sliding_window{}, 5, 5)) << "an empty window sees its own order";
  EXPECT_FALSE(sees(posenc::sliding_window{}, 5, 4));
}

TEST(MaskVisible, NamedWindows) {
  // A model's window of W keeps W keys, the query's own among them.
  int seen = 0;
  for (double key = 0; key < 100; ++key) seen += sees(posenc::window_of(4), 50, key);
  EXPECT_EQ(seen, 4);
  EXPECT_TRUE(sees(posenc::window_of(4), 50, 47));
  EXPECT_FALSE(sees(posenc::window_of(4), 50, 51));
  seen = 0;
  for (double key = 0; key < 100; ++key) seen += sees(posenc::symmetric_window(4), 50, key);
  EXPECT_EQ(seen, 9);
}

TEST(MaskVisible, PrefixIsTheKeysAlone) {
  for (const double query : {-7.0, 0.0, 100.0}) {
    EXPECT_TRUE(sees(posenc::prefix{.length = 3}, query, 2));
    EXPECT_TRUE(sees(posenc::prefix{.length = 3}, query, 2.75));
    EXPECT_FALSE(sees(posenc::prefix{.length = 3}, query, 3));
  }
  EXPECT_FALSE(sees(posenc::prefix{}, 0, 0));
}

TEST(MaskVisible, ChunksByFloorDivision) {
  constexpr posenc::chunk four{.size = 4};
  EXPECT_TRUE(sees(four, 4, 7));
  EXPECT_FALSE(sees(four, 4, 3));
  EXPECT_TRUE(sees(four, -1, -4)) << "negative orders have chunks of their own";
  EXPECT_FALSE(sees(four, -1, 0));
  EXPECT_FALSE(sees(four, -4, -5));
  EXPECT_TRUE(sees(four, 3.75, 0));
  EXPECT_TRUE(sees(posenc::chunk{.size = 0.5}, 1.25, 1));
  EXPECT_FALSE(sees(posenc::chunk{.size = 0.5}, 1.5, 1.25));
}

TEST(MaskVisible, Documents) {
  const auto pair = [](std::int64_t q, std::int64_t k) {
    return posenc::documents{}.visible(token{.document = q}, token{.document = k});
  };
  EXPECT_TRUE(pair(3, 3));
  EXPECT_FALSE(pair(3, 4));
  EXPECT_FALSE(pair(-1, -1)) << "padding is of no document";
}

TEST(MaskVisible, Algebra) {
  const auto prefix_lm = posenc::causal{} | posenc::prefix{.length = 3};
  EXPECT_TRUE(sees(prefix_lm, 0, 2));
  EXPECT_FALSE(sees(prefix_lm, 0, 3));
  EXPECT_TRUE(sees(prefix_lm, 5, 5));
  const auto local = posenc::causal{} & posenc::chunk{.size = 4};
  EXPECT_TRUE(sees(local, 6, 5));
  EXPECT_FALSE(sees(local, 6, 7));
  EXPECT_FALSE(sees(local, 6, 3));
  EXPECT_TRUE(sees(!posenc::causal{}, 6, 7));
  EXPECT_FALSE(sees(!posenc::causal{}, 6, 6));
}

TEST(MaskVisible, PerHeadIsPassedOn) {
  const unsigned char cell = 1;
  const posenc::dense_mask<unsigned char> dense(&cell, 1, 1);
  static_assert(!posenc::is_per_head<posenc::causal>);
  static_assert(posenc::is_per_head<posenc::dense_mask<unsigned char>>);
  static_assert(posenc::is_per_head<decltype(posenc::causal{} & dense)>);
  static_assert(posenc::is_per_head<decltype(dense | posenc::causal{})>);
  static_assert(posenc::is_per_head<decltype(!dense)>);
  static_assert(!posenc::is_per_head<decltype(posenc::causal{} & posenc::prefix{})>);
  EXPECT_TRUE(dense.visible(token{}, token{}));
}

// ---- parameters ----

template <class Mask>
void expect_refused(const Mask& mask, const char* argument, const char* text) {
  const mask_use use{.batch = 1, .heads = 1, .q_tokens = 1, .k_tokens = 1};
  const posenc::any_mask erased = mask;
  const auto combined = posenc::causal{} & ((!mask) | posenc::bidirectional{});
  for (const posenc::maybe_error& e : {mask.check(use), erased.check(use), combined.check(use)}) {
    ASSERT_TRUE(e.has_value()) << argument;
    EXPECT_EQ(e->code(), errc::invalid_value);
    EXPECT_STREQ(e->argument(), argument);
    EXPECT_NE(std::string(e->what()).find(text), std::string::npos) << e->what();
  }
}

TEST(MaskCheck, ParametersOutOfRange) {
  const double nan = std::bit_cast<double>(std::uint64_t{0x7ff8'0000'0000'0000});
  const double infinity = std::bit_cast<double>(std::uint64_t{0x7ff0'0000'0000'0000});
  const double bad[] = {nan, infinity, -infinity, -1};
  for (const double& x : bad) {
    posenc::sliding_window left, right;
    left.left = x;
    right.right = x;
    expect_refused(left, "sliding_window.left", "allowed: finite, 0 and more");
    expect_refused(right, "sliding_window.right", "allowed: finite, 0 and more");
    posenc::chunk chunk;
    chunk.size = x;
    expect_refused(chunk, "chunk.size", "allowed: finite and above 0");
  }
  expect_refused(posenc::chunk{}, "chunk.size", "is 0");
  expect_refused(posenc::window_of(0), "sliding_window.left", "is -1");
  for (int i = 0; i < 3; ++i) {
    posenc::prefix prefix;
    prefix.length = bad[i];
    expect_refused(prefix, "prefix.length", "allowed: finite");
  }
}

TEST(MaskCheck, ParametersInRange) {
  const mask_use use{};
  EXPECT_FALSE(posenc::sliding_window{}.check(use));
  EXPECT_FALSE(posenc::prefix{.length = -5}.check(use));
  EXPECT_FALSE(posenc::chunk{.size = 0.25}.check(use));
  EXPECT_FALSE(posenc::any_mask(posenc::causal{}).check(use));
}

// ---- dense masks ----

TEST(DenseMask, ContiguousForAllRowsAndHeads) {
  const int cells[] = {1, 0, 2, 0, 0, -1};  // not zero is visible
  const posenc::dense_mask mask(cells, 2, 3);
  for (index_t b = 0; b < 2; ++b)
    for (index_t h = 0; h < 3; ++h)
      for (index_t q = 0; q < 2; ++q)
        for (index_t k = 0; k < 3; ++k)
          EXPECT_EQ(mask.visible(token{.index = q, .batch = b, .head = h}, token{.index = k, .batch = b, .head = h}),
                    cells[q * 3 + k] != 0);
}

TEST(DenseMask, AnyStrides) {
  // [2 batch][3 heads][4 queries][5 keys], keys outermost and queries running backwards.
  std::vector<unsigned char> cells(2 * 3 * 4 * 5);
  mask_test::random_engine random(3);
  for (unsigned char& c : cells) c = static_cast<unsigned char>(mask_test::pick(random, 0, 1));
  const posenc::dense_mask<unsigned char> mask(cells.data() + 3, {2, 3, 4, 5}, {4, 8, -1, 24});
  for (index_t b = 0; b < 2; ++b)
    for (index_t h = 0; h < 3; ++h)
      for (index_t q = 0; q < 4; ++q)
        for (index_t k = 0; k < 5; ++k)
          EXPECT_EQ(mask.visible(token{.index = q, .batch = b, .head = h}, token{.index = k}),
                    cells[static_cast<std::size_t>(3 + b * 4 + h * 8 - q + k * 24)] != 0);
}

TEST(DenseMask, ExtentOneIsShared) {
  const bool cells[] = {true, false, false, true};
  // Two heads share nothing, three batch rows share everything; the stride of a shared axis is never used.
  const posenc::dense_mask<bool> mask(cells, {1, 2, 1, 2}, {1000, 2, 2, 1});
  EXPECT_TRUE(mask.visible(token{.batch = 2, .head = 0}, token{.index = 0}));
  EXPECT_FALSE(mask.visible(token{.batch = 2, .head = 1}, token{.index = 0}));
  EXPECT_TRUE(mask.visible(token{.batch = 1, .head = 1}, token{.index = 1}));
  const posenc::dense_mask<bool> rows(cells, {2, 1, 1, 2}, {2, 1000, 2, 1});
  EXPECT_FALSE(rows.visible(token{.batch = 1, .head = 7}, token{.index = 0}));
}

TEST(DenseMask, ShapeErrors) {
  const unsigned char cells[24] = {};
  using dense = posenc::dense_mask<unsigned char>;
  const mask_use use{.batch = 2, .heads = 3, .q_tokens = 2, .k_tokens = 2};
  const auto expect = [&](const dense& mask, errc code, const char* text) {
    const posenc::maybe_error e = mask.check(use);
    ASSERT_TRUE(e.has_value()) << text;
    EXPECT_EQ(e->code(), code);
    EXPECT_STREQ(e->argument(), "dense_mask");
    EXPECT_NE(std::string(e->what()).find(text), std::string::npos) << e->what();
  };
  EXPECT_FALSE(dense(cells, {2, 3, 2, 2}, {12, 4, 2, 1}).check(use));
  EXPECT_FALSE(dense(cells, 2, 2).check(use));
  expect(dense(cells, {3, 1, 2, 2}, {0, 0, 2, 1}), errc::invalid_shape, "has extent 3 for batch; allowed: 2 or 1");
  expect(dense(cells, {1, 2, 2, 2}, {0, 0, 2, 1}), errc::invalid_shape, "has extent 2 for heads; allowed: 3 or 1");
  expect(dense(cells, {1, 1, 1, 2}, {0, 0, 2, 1}), errc::invalid_shape, "has extent 1 for queries; allowed: 2");
  expect(dense(cells, 2, 3), errc::invalid_shape, "has extent 3 for keys; allowed: 2");
  expect(dense(nullptr, 2, 2), errc::invalid_layout, "is null for 2 x 2 entries");
  EXPECT_FALSE(dense(nullptr, 2, 0).check({.batch = 1, .heads = 1, .q_tokens = 2, .k_tokens = 0}));
}

TEST(PredicateMask, SeesWholeTokens) {
  const posenc::predicate_mask mask(
      [](const token& q, const token& k) { return q.position[1] == k.position[0] && q.head == 2 && k.document == 7; });
  const double qp[] = {1, 2}, kp[] = {2, 5};
  EXPECT_TRUE(mask.visible(token{.head = 2, .position = qp}, token{.document = 7, .position = kp}));
  EXPECT_FALSE(mask.visible(token{.head = 1, .position = qp}, token{.document = 7, .position = kp}));
  EXPECT_FALSE(mask.visible(token{.head = 2, .position = kp}, token{.document = 7, .position = qp}));
  EXPECT_EQ(mask.classify({}, {}), posenc::visibility::some);
}

}  // namespace
