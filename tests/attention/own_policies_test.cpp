// SPDX-License-Identifier: Apache-2.0
// Masks and encodings of a user's: what they are asked, and what they are given.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/cached_attention.hpp>
#include <posenc/attention/kv_cache.hpp>
#include <posenc/encoding/nope.hpp>

#include <set>

#include "attention/attention_support.hpp"
#include "attention/mask_support.hpp"
#include "support/small_oracle.hpp"

namespace {

using attention_test::buffer;
using attention_test::index_t;
using attention_test::make_buffer;
using attention_test::random_buffer;
using posenc::token;
using posenc::token_block;
using posenc::token_range;
using posenc::visibility;

/// Only what a mask must have.
struct every_third {
  bool visible(const token& q, const token& k) const { return static_cast<index_t>(q.order - k.order) % 3 == 0; }
  visibility classify(const token_block&, const token_block&) const { return visibility::some; }
};

/// Differs between heads, and says so.
struct even_heads_only {
  static constexpr bool per_head = true;
  bool visible(const token& q, const token&) const { return q.head % 2 == 0; }
  visibility classify(const token_block&, const token_block&) const { return visibility::some; }
};

/// The same, with a classifier that looks at the head that it is given.
struct even_heads_by_block {
  static constexpr bool per_head = true;
  bool visible(const token& q, const token&) const { return q.head % 2 == 0; }
  visibility classify(const token_block& q, const token_block&) const {
    return q.head % 2 == 0 ? visibility::all : visibility::none;
  }
};

/// Attention of zero queries over values 1, 2, 3, ...: a row is the mean of the keys that it sees.
template <class Mask>
std::vector<double> means(const Mask& mask, index_t heads, index_t kv_heads, index_t q_len, index_t kv_len) {
  const auto q = make_buffer<float>(1, heads, q_len, 2), k = make_buffer<float>(1, kv_heads, kv_len, 2),
             v = make_buffer<float>(1, kv_heads, kv_len, 1), out = make_buffer<float>(1, heads, q_len, 1);
  for (const auto* b : {&q, &k})
    b->for_each([&](index_t i, index_t h, index_t t, index_t d) { b->view(i, h, t, d) = 0; });
  v.for_each([&](index_t, index_t h, index_t t, index_t) { v.view(0, h, t, 0) = static_cast<float>(t + 1); });
  posenc::attention(q.view, k.view, v.view, out.view, {token_range(q_len), token_range(kv_len)}, posenc::nope{}, mask);
  return out.numbers();
}

TEST(OwnMask, OnlyWhatItMustHave) {
  const std::vector<double> out = means(every_third{}, 1, 1, 4, 7);
  // Query 0 sees keys 0, 3, 6; query 1 sees 1, 4; query 2 sees 2, 5; query 3 again 0, 3, 6.
  const double expected[] = {4, 3.5, 4.5, 4};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(out[i], expected[i], 1e-5) << i;
}

TEST(OwnMask, PerHead) {
  const std::vector<double> out = means(even_heads_only{}, 4, 1, 2, 3);
  for (std::size_t h = 0; h < 4; ++h)
    for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(out[h * 2 + i], h % 2 == 0 ? 2 : 0, 1e-6) << h;
}

// Heads of a group share a tile. A classifier that answers for one head must not speak for the others.
TEST(OwnMask, PerHeadClassifierInAGroup) {
  for (const index_t kv_heads : {4, 1}) {
    const std::vector<double> out = means(even_heads_by_block{}, 4, kv_heads, 2, 3);
    for (std::size_t h = 0; h < 4; ++h)
      for (std::size_t i = 0; i < 2; ++i)
        EXPECT_NEAR(out[h * 2 + i], h % 2 == 0 ? 2 : 0, 1e-6) << "head " << h << " of " << 4 / kv_heads << " a group";
  }
}

/// Causal, and calls the library again on the same thread.
struct calls_attention {
  const buffer<float>* q;
  const buffer<float>* k;
  const buffer<float>* v;
  const buffer<float>* out;

  bool visible(const token& query, const token& key) const {
    if (query.index % 16 == 0 && key.index == 0)
      posenc::attention(q->view, k->view, v->view, out->view, token_range(q->view.tokens()), posenc::nope{},
                        posenc::causal{});
    return key.order <= query.order;
  }
  visibility classify(const token_block&, const token_block&) const { return visibility::some; }
};

// Registers that a call uses, a matrix unit's too, are not left changed by a call in the middle of it.
TEST(OwnMask, MayCallAttention) {
  constexpr index_t tokens = 70, dim = 32;
  attention_test::random_engine random(10);
  const auto q = random_buffer<float>(random, 1, 2, tokens, dim), k = random_buffer<float>(random, 1, 1, tokens, dim),
             v = random_buffer<float>(random, 1, 1, tokens, dim);
  const auto out = make_buffer<float>(1, 2, tokens, dim), inner = make_buffer<float>(1, 2, tokens, dim),
             expected = make_buffer<float>(1, 2, tokens, dim);
  posenc::attention(q.view, k.view, v.view, expected.view, token_range(tokens), posenc::nope{}, posenc::causal{});
  posenc::attention(q.view, k.view, v.view, out.view, token_range(tokens), posenc::nope{},
                    calls_attention{&q, &k, &v, &inner});
  EXPECT_EQ(out.numbers(), expected.numbers());
  EXPECT_EQ(inner.numbers(), expected.numbers());
}

// What a predicate gets to know of both tokens.
TEST(OwnMask, PredicateSeesWholeTokens) {
  constexpr index_t batch = 2, heads = 4, kv_heads = 2, q_len = 3, kv_len = 70, axes = 2;
  attention_test::random_engine random(8);
  posenc::token_list q_list, k_list;
  const auto fill_list = [&](posenc::token_list& list, index_t count) {
    list.axes = axes;
    list.batch = batch;
    list.count = count;
    for (index_t i = 0; i < axes * batch * count; ++i)
      list.positions.push_back(static_cast<double>(attention_test::pick(random, -100, 100)) / 4);
    for (index_t i = 0; i < batch * count; ++i) {
      list.order.push_back(static_cast<double>(attention_test::pick(random, 0, 99)));
      list.documents.push_back(attention_test::pick(random, 7, 8));
    }
  };
  fill_list(q_list, q_len);
  fill_list(k_list, kv_len);
  const auto q = random_buffer<float>(random, batch, heads, q_len, 4),
             k = random_buffer<float>(random, batch, kv_heads, kv_len, 4),
             v = random_buffer<float>(random, batch, kv_heads, kv_len, 4),
             out = make_buffer<float>(batch, heads, q_len, 4);
  int asked = 0, wrong = 0, of_other_documents = 0;
  std::set<index_t> seen_heads, seen_keys;
  const auto right = [&](const posenc::token_list& list, const token& t) {
    bool good = t.order == small_oracle::order_of(list, t.batch, t.index) &&
                t.document == small_oracle::document_of(list, t.batch, t.index) && t.position.size() == axes;
    for (index_t axis = 0; good && axis < axes; ++axis)
      good = t.position[static_cast<std::size_t>(axis)] == small_oracle::position_of(list, axis, t.batch, t.index);
    return good;
  };
  const posenc::predicate_mask mask([&](const token& a, const token& b) {
    ++asked;
    wrong += !right(q_list, a) || !right(k_list, b) || a.batch != b.batch || a.head != b.head;
    of_other_documents += a.document != b.document;
    seen_heads.insert(a.head);
    seen_keys.insert(b.index);
    return true;
  });
  posenc::attention(q.view, k.view, v.view, out.view, {q_list, k_list}, posenc::nope{}, mask);
  EXPECT_EQ(wrong, 0) << "of " << asked;
  EXPECT_EQ(of_other_documents, 0) << "of " << asked << ": it is asked for pairs that documents allow";
  EXPECT_EQ(seen_heads.size(), 4u);
  EXPECT_GT(seen_keys.size(), 60u);
}

// ---- encodings ----

/// Adds what a function says of the distance, and remembers which distances it was asked about.
struct remembering_bias {
  using acts_on = posenc::places<posenc::on_scores>;
  std::set<double>* asked;

  template <class Keys>
  auto bias(const Keys& keys, index_t) const {
    return keys.map([this](double distance) {
      asked->insert(distance);
      return -0.125 * distance * distance / 1000;
    });
  }
};

/// All distances between the given tokens.
std::set<double> true_distances(const std::vector<double>& q, const std::vector<double>& k) {
  std::set<double> all;
  for (const double a : q)
    for (const double b : k) all.insert(b - a);
  return all;
}

std::string distances_outside(const std::set<double>& asked, const std::set<double>& truth) {
  std::string text;
  for (const double d : asked)
    if (truth.count(d) == 0) text += " " + std::to_string(d);
  return text;
}

// A function of one's own may read a table, so it must never be asked about keys that do not exist: the last block of a
// sequence is rarely full.
TEST(OwnEncoding, IsAskedAboutRealKeysOnly) {
  attention_test::random_engine random(9);
  for (const index_t kv_len : {1, 5, 63, 64, 70, 130}) {
    for (const bool consecutive : {true, false}) {
      std::vector<double> q_positions = {100, 103}, k_positions;
      for (index_t j = 0; j < kv_len; ++j)
        k_positions.push_back(static_cast<double>(consecutive ? 20 + j : 20 + j / 2 * 3));
      const auto q = random_buffer<float>(random, 1, 1, 2, 4), k = random_buffer<float>(random, 1, 1, kv_len, 4),
                 v = random_buffer<float>(random, 1, 1, kv_len, 4), out = make_buffer<float>(1, 1, 2, 4);
      std::set<double> asked;
      const remembering_bias encoding{&asked};
      // Memory that was used before, by something else.
      posenc::workspace memory;
      std::memset(memory.take(1 << 20), 0xc3, 1 << 20);
      posenc::attention_options options;
      options.memory = &memory;
      const posenc::token_pair tokens(posenc::token_positions(q_positions.data(), 2),
                                      posenc::token_positions(k_positions.data(), kv_len));
      posenc::attention(q.view, k.view, v.view, out.view, tokens, encoding, posenc::bidirectional{}, options);
      const std::set<double> truth = true_distances(q_positions, k_positions);
      EXPECT_GT(asked.size(), 0u);
      EXPECT_EQ(distances_outside(asked, truth), "") << kv_len << " keys" << (consecutive ? ", consecutive" : "");

      asked.clear();
      posenc::kv_cache<float> cache({.kv_heads = 1, .head_dim = 4});
      cache.append(k.view, v.view, tokens.k, posenc::nope{});
      posenc::attention(q.view, cache, out.view, tokens.q, encoding, posenc::bidirectional{});
      EXPECT_EQ(distances_outside(asked, truth), "")
          << kv_len << " cached keys" << (consecutive ? ", consecutive" : "");
    }
  }
}

/// Distances by all three ways that keys offer them, on the second axis.
struct distance_bias {
  using acts_on = posenc::places<posenc::on_scores>;
  template <class Keys>
  auto bias(const Keys& keys, index_t head) const {
    using number = typename Keys::value_type;
    const number half(0.5), factor(static_cast<typename Keys::real_type>(head + 1) / 64);
    number by_hand = keys.distance(1);
    return half * factor * (keys.distance(1) + by_hand) + keys.map([&](double) { return 0.0; }, 0);
  }
};

TEST(OwnEncoding, ReadsTheAxisItNames) {
  constexpr index_t heads = 2, q_len = 3, kv_len = 75;
  attention_test::random_engine random(10);
  for (const bool consecutive : {true, false}) {
    small_oracle::problem p;
    p.heads = heads;
    p.q_len = q_len;
    p.kv_len = kv_len;
    p.head_dim = p.value_dim = 4;
    const auto q = random_buffer<double>(random, 1, heads, q_len, 4),
               k = random_buffer<double>(random, 1, 1, kv_len, 4), v = random_buffer<double>(random, 1, 1, kv_len, 4),
               out = make_buffer<double>(1, heads, q_len, 4);
    p.q = q.numbers();
    p.k = k.numbers();
    p.v = v.numbers();
    p.scale = 0.5;
    p.mask = [](index_t, index_t, index_t, index_t) { return true; };
    p.positions.linear = {{.slopes = {1.0 / 64, 2.0 / 64}, .is_signed = true, .axis = 1}};
    const auto fill_list = [&](posenc::token_list& list, index_t count, double start) {
      list.axes = 2;
      list.count = count;
      for (index_t axis = 0; axis < 2; ++axis)
        for (index_t t = 0; t < count; ++t)
          list.positions.push_back(consecutive ? start + static_cast<double>(axis * 30 + t)
                                               : static_cast<double>(attention_test::pick(random, 0, 300)) / 4);
      list.order.assign(static_cast<std::size_t>(count), 0.0);
    };
    fill_list(p.q_tokens, q_len, 40);
    fill_list(p.k_tokens, kv_len, 3);
    posenc::attention(q.view, k.view, v.view, out.view, {p.q_tokens, p.k_tokens}, distance_bias{},
                      posenc::bidirectional{});
    const small_oracle::result expected = small_oracle::attend(p);
    const std::vector<double> got = out.numbers();
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(attention_test::within(got[i], expected.out[i], 1e-12 * expected.largest_value)) << i;
  }
}

}  // namespace
