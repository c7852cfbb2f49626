// SPDX-License-Identifier: Apache-2.0
// The kernel against posenc::testing::attention, the reference that users have, with the policies named in the source.
#include <posenc/attention/attention.hpp>
#include <posenc/encoding/alibi.hpp>
#include <posenc/encoding/combine.hpp>
#include <posenc/encoding/nope.hpp>
#include <posenc/encoding/rope.hpp>
#include <posenc/encoding/t5_bucket.hpp>
#include <posenc/ladder/frequency_ladder.hpp>
#include <posenc/ladder/yarn.hpp>
#include <posenc/testing/reference.hpp>

#include "attention/attention_support.hpp"
#include "attention/mask_support.hpp"

namespace {

using attention_test::index_t;
using attention_test::layout;
using attention_test::make_buffer;
using attention_test::one_of;
using attention_test::pick;
using posenc::token_range;

struct make_nope {
  static auto make(attention_test::random_engine&, index_t, index_t) { return posenc::nope{}; }
};
struct make_rope {
  static auto make(attention_test::random_engine& random, index_t, index_t dim) {
    return posenc::rope(posenc::frequency_ladder(dim) | posenc::yarn{.factor = 4, .original_context = 64},
                        {.pairing = one_of(random, {posenc::pairing::half, posenc::pairing::interleaved})});
  }
};
struct make_alibi {
  static auto make(attention_test::random_engine& random, index_t heads, index_t) {
    return posenc::alibi(heads, {.is_signed = attention_test::chance(random, 2)});
  }
};
struct make_t5 {
  static auto make(attention_test::random_engine& random, index_t heads, index_t) {
    std::vector<float> table(static_cast<std::size_t>(32 * heads));
    for (float& x : table) x = static_cast<float>(attention_test::random_number(random));
    return posenc::t5_bucket(table.data(), heads, {.bidirectional = attention_test::chance(random, 2)});
  }
};
struct make_both {
  static auto make(attention_test::random_engine& random, index_t heads, index_t dim) {
    return posenc::combine(make_rope::make(random, heads, dim), posenc::alibi(heads));
  }
};

template <class Maker>
class Reference : public testing::Test {};
using makers = testing::Types<make_nope, make_rope, make_alibi, make_t5, make_both>;
TYPED_TEST_SUITE(Reference, makers);

template <class T, class Maker, class Mask>
testing::AssertionResult compare(attention_test::random_engine& random, const Mask& mask) {
  const index_t batch = pick(random, 1, 2), kv_heads = pick(random, 1, 2), heads = kv_heads * pick(random, 1, 3);
  const index_t q_len = pick(random, 1, 40), kv_len = pick(random, 1, 140), dim = 2 * pick(random, 1, 20),
                value_dim = pick(random, 1, 40);
  const auto buffer_of = [&](index_t h, index_t t, index_t d) {
    auto b = make_buffer<T>(random, layout::scattered, batch, h, t, d);
    fill(b, random);
    return b;
  };
  const auto q = buffer_of(heads, q_len, dim), k = buffer_of(kv_heads, kv_len, dim),
             v = buffer_of(kv_heads, kv_len, value_dim);
  const auto out = make_buffer<T>(batch, heads, q_len, value_dim);
  const auto expected = make_buffer<double>(batch, heads, q_len, value_dim);
  const auto rows = static_cast<std::size_t>(batch * heads * q_len);
  std::vector<double> lse(rows), expected_lse(rows);
  std::vector<float> sinks(static_cast<std::size_t>(heads), 0.75f);
  const posenc::token_pair tokens(token_range(q_len, static_cast<double>(kv_len / 2)), token_range(kv_len));
  const auto encoding = Maker::make(random, heads, dim);
  posenc::attention_options options;
  if (attention_test::chance(random, 2)) options.sinks = sinks;
  if (attention_test::chance(random, 2)) options.softcap = 5;
  options.lse = posenc::lse_view(lse.data(), batch, heads, q_len);
  posenc::attention(q.view, k.view, v.view, out.view, tokens, encoding, mask, options);
  options.lse = posenc::lse_view(expected_lse.data(), batch, heads, q_len);
  posenc::testing::attention(q.view, k.view, v.view, expected.view, tokens, encoding, mask, options);
  testing::AssertionResult result = testing::AssertionSuccess();
  const double bound = 2 * attention_test::tolerance<T>();  // |v| is at most 2
  out.for_each([&](index_t b, index_t h, index_t t, index_t d) {
    if (result && !attention_test::within(out.view(b, h, t, d), expected.view(b, h, t, d), bound))
      result = testing::AssertionFailure() << "[" << b << ", " << h << ", " << t << ", " << d
                                           << "]: " << attention_test::to_double(out.view(b, h, t, d)) << ", expected "
                                           << expected.view(b, h, t, d);
  });
  for (std::size_t i = 0; i < rows; ++i) {
    const bool both = posenc::detail::is_minus_infinity(lse[i]) && posenc::detail::is_minus_infinity(expected_lse[i]);
    if (result && !both && !attention_test::within(lse[i], expected_lse[i], bound * (1 + std::fabs(expected_lse[i]))))
      result = testing::AssertionFailure() << "lse " << lse[i] << ", expected " << expected_lse[i];
  }
  return result;
}

TYPED_TEST(Reference, RandomCases) {
  for (std::uint64_t i = 0; i < 40; ++i) {
    auto random = attention_test::engine_of(31, i);
    const auto where = [&] {
      return "case " + std::to_string(i) + ", POSENC_TEST_SEED=" + std::to_string(attention_test::test_seed());
    };
    ASSERT_TRUE((compare<float, TypeParam>(random, posenc::causal{}))) << where();
    ASSERT_TRUE(
        (compare<float, TypeParam>(random, posenc::causal{} & (posenc::window_of(9) | posenc::prefix{.length = 5}))))
        << where();
    ASSERT_TRUE((compare<double, TypeParam>(random, posenc::symmetric_window(20)))) << where();
    ASSERT_TRUE((compare<posenc::bfloat16, TypeParam>(random, posenc::chunk{.size = 32}))) << where();
  }
}

}  // namespace
