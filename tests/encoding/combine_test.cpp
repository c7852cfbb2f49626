// SPDX-License-Identifier: Apache-2.0
#include <posenc/encoding/alibi.hpp>
#include <posenc/encoding/any_encoding.hpp>
#include <posenc/encoding/combine.hpp>
#include <posenc/encoding/learned.hpp>
#include <posenc/encoding/nope.hpp>
#include <posenc/encoding/per_head.hpp>
#include <posenc/encoding/query_temperature.hpp>
#include <posenc/encoding/rotated.hpp>
#include <posenc/encoding/sinusoidal.hpp>
#include <posenc/encoding/t5_bucket.hpp>

#include <limits>

#include "encoding/encoding_support.hpp"

namespace {

using namespace encoding_test;
using posenc::alibi;
using posenc::any_encoding;
using posenc::combine;
using posenc::per_head;
using posenc::query_temperature;
using posenc::rotated;
using posenc::rotated_keys;
using posenc::rotation_op;
using posenc::rotation_shape;
using posenc::token_role;

template <class E, class... Places>
constexpr bool acts_exactly_on = (posenc::acts_on<E, Places> && ...) &&
                                 posenc::acts_on<E, posenc::on_inputs> + posenc::acts_on<E, posenc::on_queries_keys> +
                                         posenc::acts_on<E, posenc::on_scores> ==
                                     static_cast<int>(sizeof...(Places));

/// Equal but for what a compiler may do to the same arithmetic in two places.
template <class Real>
bool near_equal(const std::vector<Real>& a, const std::vector<Real>& b) {
  return largest_difference(a, b) <= 64 * static_cast<double>(std::numeric_limits<Real>::epsilon());
}

template <class Real>
class Combined : public testing::Test {};
TYPED_TEST_SUITE(Combined, real_types, real_names);

TYPED_TEST(Combined, RotationsTurnTheirOwnDimensions) {
  const turn a{0, 1.0, 2.0}, b{4, 0.25, 1.0};
  const auto both = combine(a, alibi(4), b);
  EXPECT_EQ(both.rotation_size(rotation_shape{6, 1}), 4);
  const std::vector<TypeParam> x{1, 2, 3, 4, 5, 6};
  for (const auto op : {rotation_op::rotate, rotation_op::transposed, rotation_op::inverse}) {
    const auto expected = turned(b, 3.0, turned(a, 3.0, x, token_role::key, op), token_role::key, op);
    EXPECT_TRUE(near_equal(turned(both, 3.0, x, token_role::key, op), expected));
  }
  const auto back = turned(both, 3.0, turned(both, 3.0, x), token_role::query, rotation_op::inverse);
  EXPECT_LE(largest_difference(back, x), 1e-5);
  EXPECT_EQ(both.rotated_dims({6, 1}).begin, 0);
  EXPECT_EQ(both.rotated_dims({6, 1}).end, 6);
}

TYPED_TEST(Combined, BiasesAdd) {
  std::vector<float> table(32 * 2);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i) / 8;
  const alibi slopes(2);
  const posenc::t5_bucket buckets(table.data(), 2);
  const numbers keys = range(30, 64);
  for (const bool consecutive : {true, false}) {
    const auto a = bias_row<TypeParam>(slopes, {50}, {keys}, 1, consecutive);
    const auto b = bias_row<TypeParam>(buckets, {50}, {keys}, 1, consecutive);
    const auto both = bias_row<TypeParam>(combine(slopes, posenc::nope{}, buckets), {50}, {keys}, 1, consecutive);
    for (std::size_t j = 0; j < keys.size(); ++j) EXPECT_EQ(both[j], a[j] + b[j]);
  }
}

TYPED_TEST(Combined, NestingFlattens) {
  const auto nested = combine(combine(turn{0}, alibi(4)), combine(combine(turn{2})), posenc::nope{});
  static_assert(std::is_same_v<decltype(nested), const posenc::combined<turn, alibi, turn, posenc::nope>>);
  const std::vector<TypeParam> x{1, 2, 3, 4};
  EXPECT_TRUE(near_equal(turned(nested, 2.0, x), turned(combine(turn{0}, turn{2}), 2.0, x)));
}

TYPED_TEST(Combined, TemperatureGoesWithARotationInAnyOrder) {
  const query_temperature temperature{.coefficient = 0.5, .length = 2, .shift = 0};
  const std::vector<TypeParam> x{1, 2, 3, 4};
  const auto expected = turned(turn{0}, 9.0, turned(temperature, 9.0, x));
  EXPECT_LE(largest_difference(turned(combine(temperature, turn{0}), 9.0, x), expected), 2e-6);
  EXPECT_LE(largest_difference(turned(combine(turn{0}, temperature), 9.0, x), expected), 2e-6);
  EXPECT_TRUE(near_equal(turned(combine(turn{0}, temperature), 9.0, x, token_role::key),
                         turned(turn{0}, 9.0, x, token_role::key)));
  const auto tokens = posenc::token_range(4);
  EXPECT_EQ(check_text(combine(temperature, turn{0}, temperature), tokens, 4, 2, 4), "");
}

/// A rotation that does not say what it turns.
struct whole_head_turn : turn {
  posenc::dim_range rotated_dims(rotation_shape) const = delete;
};
static_assert(!posenc::has_rotated_dims<whole_head_turn> && posenc::rotary_encoding<whole_head_turn>);

TEST(CombinedChecks, RotationsOfTheSameDimensionAreAnError) {
  const auto tokens = posenc::token_range(4);
  const auto text = [&](const auto& encoding) { return check_text(encoding, tokens, 4, 2, 8); };
  EXPECT_EQ(text(combine(turn{0}, turn{2}, turn{6}, alibi(4))), "");
  EXPECT_NE(text(combine(turn{0}, turn{4}, turn{1})).find("same dimensions: [0, 2) and [1, 3)"), std::string::npos);
  EXPECT_NE(text(combine(turn{4}, turn{4})).find("[4, 6) and [4, 6)"), std::string::npos);
  EXPECT_NE(text(combine(turn{4}, whole_head_turn{})).find("[4, 6) and [0, 8)"), std::string::npos);
  EXPECT_EQ(text(combine(whole_head_turn{}, alibi(4), query_temperature{})), "");
  // However they are wrapped.
  EXPECT_NE(text(combine(rotated_keys(turn{0}), turn{1})).find("[0, 2) and [1, 3)"), std::string::npos);
  EXPECT_NE(text(combine(any_encoding(turn{0}), turn{1})).find("[0, 2) and [1, 3)"), std::string::npos);
  EXPECT_EQ(text(combine(any_encoding(alibi(4)), turn{1})), "");
  const auto heads = per_head(2, [](index_t h) { return turn{2 * h}; });
  EXPECT_NE(text(combine(heads, turn{3})).find("[0, 4) and [3, 5)"), std::string::npos);
}

TEST(CombinedChecks, ThoseOfThePartsCount) {
  const auto tokens = posenc::token_range(4);
  EXPECT_NE(check_text(combine(turn{0}, alibi(8)), tokens, 4, 2, 8).find("alibi has slopes for 8 heads"),
            std::string::npos);
  EXPECT_NE(check_text(combine(turn{0}, combine(query_temperature{.length = -1})), tokens, 4, 2, 8).find("length"),
            std::string::npos);
}

TEST(CombinedPlaces, AreTheUnion) {
  using posenc::on_inputs;
  using posenc::on_queries_keys;
  using posenc::on_scores;
  const posenc::sinusoidal wave(4);
  static_assert(acts_exactly_on<decltype(combine())>);
  static_assert(acts_exactly_on<decltype(combine(posenc::nope{}))>);
  static_assert(acts_exactly_on<decltype(combine(wave, wave)), on_inputs>);
  static_assert(acts_exactly_on<decltype(combine(alibi(1), posenc::nope{})), on_scores>);
  static_assert(acts_exactly_on<decltype(combine(turn{})), on_queries_keys>);
  static_assert(acts_exactly_on<decltype(combine(turn{}, alibi(1))), on_queries_keys, on_scores>);
  static_assert(acts_exactly_on<decltype(rotated(combine(turn{}, alibi(1)))), on_scores>);
  static_assert(acts_exactly_on<decltype(rotated(turn{}))>);
  static_assert(acts_exactly_on<decltype(rotated_keys(turn{})), on_queries_keys>);
  static_assert(acts_exactly_on<decltype(rotated_keys(alibi(1))), on_scores>);
  static_assert(acts_exactly_on<decltype(per_head(1, [](index_t) { return turn{}; })), on_queries_keys>);
  // Turning differs between queries and keys as soon as one part says so.
  static_assert(!decltype(combine(alibi(1)))::rotation_depends_on_role);
  static_assert(decltype(combine(alibi(1), query_temperature{}))::rotation_depends_on_role);
}

TYPED_TEST(Combined, RotatedStripsRotationsAndKeepsBiases) {
  const auto encoding = combine(turn{0}, alibi(4));
  const numbers keys = range(0, 64);
  EXPECT_EQ((bias_row<TypeParam>(rotated(encoding), {9}, {keys}, 2, true)),
            (bias_row<TypeParam>(alibi(4), {9}, {keys}, 2, true)));
  EXPECT_EQ(posenc::detail::encoding_policy_of<TypeParam>(rotated(encoding)).rotation, nullptr);
  const any_encoding any = encoding;
  const auto stripped = posenc::detail::encoding_policy_of<TypeParam>(rotated(any));
  EXPECT_EQ(stripped.rotation, nullptr);
  EXPECT_NE(stripped.bias, nullptr);
  EXPECT_NE(check_text(rotated(encoding), posenc::token_range(4), 8, 2, 8).find("4 heads"), std::string::npos);
}

TYPED_TEST(Combined, RotatedKeysTurnsQueriesOnly) {
  const turn inner{2, 0.5, 3.0};
  const std::vector<TypeParam> x{1, 2, 3, 4};
  for (const auto op : {rotation_op::rotate, rotation_op::transposed, rotation_op::inverse}) {
    EXPECT_TRUE(near_equal(turned(rotated_keys(inner), 5.0, x, token_role::query, op),
                           turned(inner, 5.0, x, token_role::query, op)));
    EXPECT_EQ(turned(rotated_keys(inner), 5.0, x, token_role::key, op), x);
  }
  // Also where there is nothing to turn, known only at run time.
  EXPECT_EQ(turned(rotated_keys(any_encoding(alibi(4))), 5.0, x), x);
  EXPECT_EQ(rotated_keys(any_encoding(alibi(4))).rotation_size({4, 1}), 0);
  EXPECT_TRUE(
      near_equal(turned(combine(rotated_keys(inner), turn{0}), 5.0, x, token_role::key), turned(turn{0}, 5.0, x)));
  const numbers keys = range(0, 64);
  EXPECT_EQ((bias_row<TypeParam>(rotated_keys(combine(inner, alibi(4))), {9}, {keys}, 2, true)),
            (bias_row<TypeParam>(alibi(4), {9}, {keys}, 2, true)));
}

TYPED_TEST(Combined, PerHeadRotationIsThatOfTheKvHead) {
  std::vector<index_t> calls;
  const auto encoding = per_head(3, [&](index_t head) {
    calls.push_back(head);
    return turn{head, 0.5 + static_cast<double>(head), 1.0 + static_cast<double>(head)};
  });
  EXPECT_EQ(calls, (std::vector<index_t>{0, 1, 2}));
  const std::vector<TypeParam> x{1, 2, 3, 4};
  for (const index_t head : {0, 1, 2}) {
    const turn alone{head, 0.5 + static_cast<double>(head), 1.0 + static_cast<double>(head)};
    for (const auto op : {rotation_op::rotate, rotation_op::inverse})
      EXPECT_TRUE(near_equal(turned(encoding, 2.0, x, token_role::key, op, head, 3),
                             turned(alone, 2.0, x, token_role::key, op)));
  }
}

TYPED_TEST(Combined, PerHeadRotationsMayDifferInSize) {
  const auto encoding = per_head(
      2, [](index_t head) { return head == 0 ? any_encoding(combine(turn{0}, turn{2})) : any_encoding(turn{1}); });
  const std::vector<TypeParam> x{1, 2, 3, 4};
  EXPECT_TRUE(near_equal(turned(encoding, 2.0, x, token_role::key, rotation_op::rotate, 0, 2),
                         turned(combine(turn{0}, turn{2}), 2.0, x)));
  EXPECT_TRUE(
      near_equal(turned(encoding, 2.0, x, token_role::key, rotation_op::rotate, 1, 2), turned(turn{1}, 2.0, x)));
}

TYPED_TEST(Combined, PerHeadBiasIsThatOfTheQueryHead) {
  // Each encoding sees the head's own number.
  const auto encoding =
      per_head(4, [](index_t head) { return alibi(4, {.max_bias = 4.0 * static_cast<double>(head + 1)}); });
  const numbers keys = range(0, 64);
  for (const index_t head : {0, 1, 2, 3})
    EXPECT_EQ(
        (bias_row<TypeParam>(encoding, {9}, {keys}, head, true)),
        (bias_row<TypeParam>(alibi(4, {.max_bias = 4.0 * static_cast<double>(head + 1)}), {9}, {keys}, head, true)));
}

TEST(PerHeadChecks, CountsMustFit) {
  const auto tokens = posenc::token_range(4);
  const auto turns = per_head(2, [](index_t h) { return turn{h}; });
  EXPECT_EQ(check_text(turns, tokens, 8, 2, 8), "");
  EXPECT_NE(check_text(turns, tokens, 2, 1, 8).find("2 heads; it rotates, and the call has 1 key and value heads"),
            std::string::npos);
  const auto biases = per_head(4, [](index_t) { return alibi(4); });
  EXPECT_EQ(check_text(biases, tokens, 4, 2, 8), "");
  EXPECT_NE(check_text(biases, tokens, 8, 2, 8).find("it adds biases, and the call has 8 query heads"),
            std::string::npos);
  const auto both = per_head(4, [](index_t) { return combine(turn{}, alibi(4)); });
  EXPECT_EQ(check_text(both, tokens, 4, 4, 8), "");
  EXPECT_NE(check_text(both, tokens, 4, 2, 8), "");
  // Of encodings that are chosen at run time, what they do counts, not what they might do.
  const auto held_turns =
      per_head(2, [](index_t h) { return h == 0 ? any_encoding(turn{}) : any_encoding(posenc::nope{}); });
  EXPECT_EQ(check_text(held_turns, tokens, 8, 2, 8), "");
  EXPECT_NE(check_text(held_turns, tokens, 8, 4, 8), "");
  const auto held_biases = per_head(4, [](index_t) { return any_encoding(alibi(4)); });
  EXPECT_EQ(check_text(held_biases, tokens, 4, 2, 8), "");
  EXPECT_NE(check_text(held_biases, tokens, 2, 2, 8), "");
  const auto bad = per_head(2, [](index_t h) { return query_temperature{.length = static_cast<double>(1 - h)}; });
  EXPECT_NE(check_text(bad, tokens, 4, 2, 8).find("length: is 0"), std::string::npos);
  POSENC_EXPECT_ERROR(per_head(0, [](index_t) { return turn{}; }), posenc::errc::invalid_shape, "count: is 0");
}

TYPED_TEST(Combined, AnyEncodingReachesTheHeldOneDirectly) {
  const numbers keys = range(0, 64);
  const std::vector<TypeParam> x{1, 2, 3, 4};
  any_encoding any = posenc::nope{};
  EXPECT_FALSE(any.rotates());
  EXPECT_FALSE(any.biases());
  EXPECT_EQ(any.rotation_size({4, 1}), 0);
  EXPECT_EQ(turned(any, 3.0, x), x);
  EXPECT_EQ(posenc::detail::encoding_policy_of<TypeParam>(any).rotation, nullptr);
  EXPECT_EQ(posenc::detail::encoding_policy_of<TypeParam>(any).bias, nullptr);
  const any_encoding copy = any;
  any = combine(turn{0}, alibi(4));
  EXPECT_TRUE(any.rotates());
  EXPECT_TRUE(any.biases());
  EXPECT_FALSE(copy.rotates());
  EXPECT_TRUE(near_equal(turned(any, 3.0, x), turned(turn{0}, 3.0, x)));
  // The policy is the held encoding's own, not one that goes through any_encoding.
  const auto policy = posenc::detail::encoding_policy_of<TypeParam>(any);
  const auto held = posenc::detail::encoding_policy_of<TypeParam>(combine(turn{0}, alibi(4)));
  EXPECT_EQ(policy.rotation, held.rotation);
  EXPECT_EQ(policy.bias, held.bias);
  // Within others it adds its biases, on every kind of keys.
  for (const bool consecutive : {true, false}) {
    const auto once = bias_row<TypeParam>(alibi(4), {9}, {keys}, 2, consecutive);
    EXPECT_EQ((bias_row<TypeParam>(any, {9}, {keys}, 2, consecutive)), once);
    const auto twice =
        bias_row<TypeParam>(combine(any, any_encoding(posenc::nope{}), alibi(4)), {9}, {keys}, 2, consecutive);
    for (std::size_t j = 0; j < keys.size(); ++j) EXPECT_EQ(twice[j], 2 * once[j]);
  }
  EXPECT_NE(check_text(any, posenc::token_range(4), 8, 2, 8).find("alibi has slopes for 4 heads"), std::string::npos);
}

}  // namespace
