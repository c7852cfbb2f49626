// SPDX-License-Identifier: Apache-2.0
// What masks say of whole blocks, against what they say of single pairs; and both against their meaning, which
// mask_support.hpp states without them.
#include <gtest/gtest.h>

#include <algorithm>

#include "attention/mask_support.hpp"

namespace {

using mask_test::index_t;
using mask_test::known_mask;
using mask_test::orders;
using mask_test::pick;
using mask_test::random_engine;
using posenc::token;
using posenc::token_block;
using posenc::visibility;

struct some_tokens {
  std::vector<double> order;
  std::vector<std::int64_t> document;

  index_t count() const { return static_cast<index_t>(order.size()); }
  token_block block() const {
    return {
        *std::min_element(order.begin(), order.end()), *std::max_element(order.begin(), order.end()), 0, count(), 0, 0};
  }
  token at(index_t i) const {
    const auto j = static_cast<std::size_t>(i);
    return {.order = order[j], .document = document[j], .index = i};
  }
};

some_tokens random_tokens(random_engine& random, orders kind, index_t most) {
  some_tokens result;
  result.order = mask_test::random_orders(random, kind, pick(random, 1, most));
  const bool one = pick(random, 0, 1) == 0;
  for (index_t i = 0; i < result.count(); ++i) result.document.push_back(one ? 0 : pick(random, -1, 2));
  return result;
}

struct counts {
  int none = 0, some = 0, all = 0;
};

void expect_consistent(const known_mask& mask, const some_tokens& q, const some_tokens& k, counts& seen) {
  index_t visible = 0;
  for (index_t i = 0; i < q.count(); ++i)
    for (index_t j = 0; j < k.count(); ++j) {
      const token a = q.at(i), b = k.at(j);
      const bool truth = mask.visible(a.order, b.order, a.document, b.document);
      visible += truth;
      ASSERT_EQ(mask.mask.visible(a, b), truth) << mask.name << " for query " << a.order << " and key " << b.order;
    }
  const visibility said = mask.mask.classify(q.block(), k.block());
  if (said == visibility::none) {
    ASSERT_EQ(visible, 0) << mask.name << " said none";
    ++seen.none;
  } else if (said == visibility::all) {
    ASSERT_EQ(visible, q.count() * k.count()) << mask.name << " said all";
    ++seen.all;
  } else {
    ++seen.some;
  }
}

TEST(MaskBlock, ClassifyAgreesWithVisible) {
  random_engine random(11);
  counts seen;
  for (int i = 0; i < 6000; ++i) {
    const known_mask mask = mask_test::random_leaf(random);
    const orders kind = mask_test::all_orders[i % 5];
    expect_consistent(mask, random_tokens(random, kind, 12), random_tokens(random, kind, 64), seen);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(seen.none, 500);
  EXPECT_GT(seen.some, 500);
  EXPECT_GT(seen.all, 500);
}

TEST(MaskBlock, CompositionsAgreeToo) {
  random_engine random(12);
  counts seen;
  for (int i = 0; i < 6000; ++i) {
    const known_mask mask = mask_test::random_tree(random, 4);
    const orders kind = mask_test::all_orders[i % 5];
    expect_consistent(mask, random_tokens(random, kind, 8), random_tokens(random, kind, 24), seen);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(seen.none, 500);
  EXPECT_GT(seen.some, 500);
  EXPECT_GT(seen.all, 500);
}

// Blocks whose orders run by one are settled whenever they can be: otherwise nothing would be skipped.
TEST(MaskBlock, ConsecutiveOrdersAreSettledExactly) {
  random_engine random(13);
  for (int i = 0; i < 4000; ++i) {
    const auto whole = [&](index_t low, index_t high) { return static_cast<double>(pick(random, low, high)); };
    known_mask mask = mask_test::causal_mask();
    switch (i % 5) {
      case 0: mask = mask_test::window_mask(whole(0, 30), whole(0, 30)); break;
      case 1: mask = mask_test::prefix_mask(whole(-40, 60)); break;
      case 2: mask = mask_test::chunk_mask(std::exp2(whole(0, 6))); break;
      case 3: mask = mask_test::causal_mask() & mask_test::window_mask(whole(0, 30), 0); break;
      default: break;
    }
    some_tokens q, k;
    q.order = mask_test::random_orders(random, orders::consecutive, pick(random, 1, 20));
    k.order = mask_test::random_orders(random, orders::consecutive, pick(random, 1, 20));
    index_t visible = 0;
    for (const double a : q.order)
      for (const double b : k.order) visible += mask.visible(a, b, 0, 0);
    const index_t pairs = q.count() * k.count();
    const visibility truth = visible == 0 ? visibility::none : visible == pairs ? visibility::all : visibility::some;
    ASSERT_EQ(mask.mask.classify(q.block(), k.block()), truth)
        << mask.name << ", queries from " << q.order[0] << " (" << q.count() << "), keys from " << k.order[0] << " ("
        << k.count() << ")";
  }
}

// ---- bits of one query against a block ----

posenc::detail::key_tokens key_block(const std::vector<double>& order, std::vector<double>& storage) {
  storage.assign(64, 0.0);
  posenc::detail::key_tokens keys;
  const auto n = static_cast<index_t>(order.size());
  keys.append(posenc::token_range(n).with_order(order.data()), 0, 0, n, storage.data());
  return keys;
}

template <class Mask>
void expect_bits(const Mask& mask, const mask_test::rule& rule, double query, const std::vector<double>& order) {
  std::vector<double> storage;
  const posenc::detail::key_tokens keys = key_block(order, storage);
  const double position[] = {query};
  std::uint64_t expected = 0;
  for (std::size_t j = 0; j < order.size(); ++j)
    expected |= static_cast<std::uint64_t>(rule(query, order[j], 0, 0)) << j;
  const token q{.order = query, .position = position};
  const posenc::any_mask erased = mask;
  const posenc::detail::mask_policy policy = erased.erased();
  // All keys of the block, or only some of them.
  const std::uint64_t all = posenc::detail::low_bits(keys.count);
  for (const std::uint64_t among : {all, all & 0x9249'2492'4924'9249u, std::uint64_t{0}}) {
    ASSERT_EQ(posenc::detail::mask_row_bits(mask, q, keys, among), expected & among)
        << std::hex << "query " << query << ", keys from " << order.front() << " to " << order.back();
    ASSERT_EQ(policy.functions->row_bits(policy.mask, q, keys, among), expected & among);
  }
  if constexpr (posenc::interval_mask<Mask>) {
    const posenc::order_interval see = mask.interval(query);
    for (const double k : order) ASSERT_EQ(k >= see.first && k <= see.last, rule(query, k, 0, 0));
  }
}

TEST(MaskBits, EveryOrderKind) {
  random_engine random(14);
  for (int i = 0; i < 3000; ++i) {
    const orders kind = mask_test::all_orders[i % 5];
    const std::vector<double> keys = mask_test::random_orders(random, kind, pick(random, 1, 64));
    const double query = static_cast<double>(pick(random, -200, 600)) / (i % 2 == 0 ? 4 : 1);
    const double left = static_cast<double>(pick(random, 0, 100)) / (i % 3 == 0 ? 4 : 1);
    const double right = static_cast<double>(pick(random, 0, 40)) / (i % 3 == 1 ? 4 : 1);
    expect_bits(posenc::causal{}, mask_test::causal_mask().visible, query, keys);
    expect_bits(posenc::bidirectional{}, mask_test::bidirectional_mask().visible, query, keys);
    const posenc::sliding_window window{.left = left, .right = right};
    expect_bits(window, mask_test::window_mask(left, right).visible, query, keys);
    const auto both = mask_test::causal_mask() & mask_test::window_mask(left, right);
    expect_bits(posenc::causal{} & window, both.visible, query, keys);
    const auto prefix_lm = mask_test::causal_mask() | mask_test::prefix_mask(left);
    expect_bits(posenc::causal{} | posenc::prefix{.length = left}, prefix_lm.visible, query, keys);
    if (HasFatalFailure()) return;
  }
}

// Orders so large that sums with the window's sides round: then the rounded ends decide, in both ways alike.
TEST(MaskBits, FarOrders) {
  random_engine random(15);
  for (int i = 0; i < 500; ++i) {
    const double base = std::exp2(static_cast<double>(pick(random, 30, 52))) * (i % 2 == 0 ? 1 : -1);
    std::vector<double> keys;
    for (int j = 0; j < 40; ++j) keys.push_back(base + j);
    const posenc::sliding_window window{.left = static_cast<double>(pick(random, 0, 200)) / 8,
                                        .right = static_cast<double>(pick(random, 0, 200)) / 8};
    const double query = base + static_cast<double>(pick(random, -20, 60));
    const mask_test::rule rule = [&](double q, double k, auto, auto) {
      return window.visible(token{.order = q}, token{.order = k});
    };
    expect_bits(window, rule, query, keys);
    expect_bits(posenc::causal{}, mask_test::causal_mask().visible, query, keys);
    if (HasFatalFailure()) return;
  }
}

TEST(MaskBits, IntervalsAreOfferedWhereTheyExist) {
  static_assert(posenc::interval_mask<posenc::causal>);
  static_assert(posenc::interval_mask<posenc::bidirectional>);
  static_assert(posenc::interval_mask<posenc::sliding_window>);
  static_assert(posenc::interval_mask<decltype(posenc::causal{} & posenc::sliding_window{})>);
  static_assert(!posenc::interval_mask<decltype(posenc::causal{} | posenc::prefix{})>);
  static_assert(!posenc::interval_mask<decltype(!posenc::causal{})>);
  const auto empty =
      posenc::causal{} & posenc::sliding_window{.left = -3, .right = 9};  // sees nothing below, nothing above
  EXPECT_GT(empty.interval(0).first, empty.interval(0).last);
}

TEST(KeyTokens, SummaryAndPadding) {
  const std::vector<double> order = {5, 6, 7, 100, -9};
  const std::vector<std::int64_t> documents = {4, 4, 2, -1, -1};
  std::vector<double> storage(64);
  posenc::detail::key_tokens keys;
  keys.first_index = 10;
  const posenc::token_view tokens = posenc::token_range(5).with_order(order.data()).with_documents(documents.data());
  keys.append(tokens, 0, 0, 3, storage.data());
  EXPECT_TRUE(keys.consecutive_orders);
  EXPECT_FALSE(keys.consecutive_positions) << "lanes behind the last key would run on";
  EXPECT_FALSE(keys.has_padding || keys.one_document() || keys.all_padding());
  keys.append(tokens, 0, 3, 2, storage.data());
  EXPECT_EQ(keys.count, 5);
  EXPECT_FALSE(keys.consecutive_orders);
  EXPECT_TRUE(keys.has_padding);
  EXPECT_FALSE(keys.all_padding());
  EXPECT_EQ(keys.first_order, 5);
  EXPECT_EQ(keys.last_order, 7) << "padding does not count";
  EXPECT_EQ(keys.first_document, 2);
  EXPECT_EQ(keys.last_document, 4);
  const token_block block = keys.summary(3);
  EXPECT_EQ(block.begin, 10);
  EXPECT_EQ(block.end, 15);
  EXPECT_EQ(block.batch, 3);
  EXPECT_EQ(posenc::detail::document_bits(4, keys), 0b00011u);
  EXPECT_EQ(posenc::detail::document_bits(2, keys), 0b00100u);
  EXPECT_EQ(posenc::detail::document_bits(-1, keys), 0u);
  posenc::detail::key_tokens padding;
  padding.append(tokens, 0, 3, 2, storage.data());
  EXPECT_TRUE(padding.all_padding());
  EXPECT_EQ(posenc::detail::low_bits(64), ~std::uint64_t{0});
  EXPECT_EQ(posenc::detail::low_bits(3), 7u);
  EXPECT_EQ(posenc::detail::low_bits(0), 0u);
}

}  // namespace
