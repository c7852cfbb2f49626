// SPDX-License-Identifier: Apache-2.0
#include <posenc/core/eigen.hpp>
#include <posenc/encoding/alibi.hpp>
#include <posenc/encoding/any_encoding.hpp>
#include <posenc/encoding/combine.hpp>
#include <posenc/encoding/concepts.hpp>
#include <posenc/encoding/diagnostics.hpp>
#include <posenc/encoding/learned.hpp>
#include <posenc/encoding/nope.hpp>
#include <posenc/encoding/per_head.hpp>
#include <posenc/encoding/query_temperature.hpp>
#include <posenc/encoding/rotated.hpp>
#include <posenc/encoding/sinusoidal.hpp>
#include <posenc/encoding/t5_bucket.hpp>

#include "encoding/encoding_support.hpp"

// Models and non-models of the concepts. The sentences that a compiler prints for non-models are tests of their own.
namespace {

using namespace encoding_test;
using namespace posenc;

// ---- models: everything that the library has ----

template <class E>
constexpr bool for_inputs = encoding<E> && input_encoding<E> && !attention_encoding<E> && !rotary_encoding<E> &&
                            !score_encoding<E> && detail::check_input_encoding<E>();
template <class E, bool Rotates, bool Biases>
constexpr bool for_attention =
    encoding<E> && attention_encoding<E> && rotary_encoding<E> == Rotates && score_encoding<E> == Biases &&
    !input_encoding<E> && detail::check_attention_encoding<E>();

using turning_alibi = decltype(combine(turn{}, alibi(1)));

static_assert(for_inputs<sinusoidal>);
static_assert(for_inputs<learned_positions>);
static_assert(for_inputs<combined<sinusoidal, learned_positions>>);
static_assert(for_attention<nope, false, false>);
static_assert(for_attention<alibi, false, true>);
static_assert(for_attention<t5_bucket, false, true>);
static_assert(for_attention<query_temperature, true, false>);
static_assert(for_attention<turning_alibi, true, true>);
static_assert(for_attention<combined<>, false, false>);
static_assert(for_attention<rotated_encoding<turning_alibi>, false, true>);
static_assert(for_attention<rotated_encoding<turn>, false, false>);
static_assert(for_attention<rotated_keys_encoding<turning_alibi>, true, true>);
static_assert(for_attention<per_head_encoding<turning_alibi>, true, true>);
static_assert(for_attention<any_encoding, true, true>);
static_assert(for_attention<combined<any_encoding, alibi>, true, true>);
static_assert(detail::check_rotary_encoding<turn>());

// What holds a run-time choice is converted to implicitly, but only from encodings.
static_assert(std::is_convertible_v<alibi, any_encoding> && !std::is_convertible_v<int, any_encoding>);

// ---- a user's own, as small as it gets ----

struct own_bias {
  using acts_on = places<on_scores>;
  template <class Keys>
  auto bias(const Keys& keys, index_t) const {
    return keys.map([](double distance) { return -std::log1p(std::fabs(distance)); });
  }
};
static_assert(for_attention<own_bias, false, true>);

struct final_bias final {
  using acts_on = places<on_scores>;
  template <class Keys>
  auto bias(const Keys& keys, index_t) const {
    return -simd::abs(keys.distance());
  }
};
static_assert(for_attention<final_bias, false, true>);

/// Acts on two places itself.
struct own_both : turn {
  using acts_on = places<on_queries_keys, on_scores>;
  template <class Keys>
  auto bias(const Keys& keys, index_t) const {
    return keys.distance() * -0.5;
  }
};
static_assert(for_attention<own_both, true, true>);

// ---- non-models ----

struct no_list {
  template <class Keys>
  auto bias(const Keys& keys, index_t) const {
    return keys.distance();
  }
};
struct missing_hook {
  using acts_on = places<on_scores>;
};
struct misspelt_hook {
  using acts_on = places<on_scores>;
  template <class Keys>
  auto biases(const Keys& keys, index_t) const {
    return keys.distance();
  }
};
struct wrong_arguments {
  using acts_on = places<on_scores>;
  template <class Keys>
  auto bias(const Keys& keys) const {
    return keys.distance();
  }
};
struct wrong_result {
  using acts_on = places<on_scores>;
  template <class Keys>
  const char* bias(const Keys&, index_t) const {
    return "";
  }
};
struct float_only {
  using acts_on = places<on_inputs>;
  void add_position(position_span, std::span<float>) const {}
};
struct not_const {
  using acts_on = places<on_inputs>;
  template <class Real>
  void add_position(position_span, std::span<Real>) {}
};
struct half_a_rotation {
  using acts_on = places<on_queries_keys>;
  index_t rotation_size(rotation_shape) const { return 0; }
};

static_assert(!encoding<int> && !encoding<no_list> && !encoding<missing_hook> && !encoding<misspelt_hook>);
static_assert(!encoding<wrong_arguments> && !encoding<float_only> && !encoding<not_const> &&
              !encoding<half_a_rotation>);
static_assert(!score_encoding<wrong_result> && !encoding<wrong_result>);
static_assert(!score_encoding<no_list>);  // the member alone does not make one
static_assert(has_check<alibi> && !has_check<turn>);

// ---- members that are there but not listed are seen whatever their signature ----

struct unlisted_bias {
  using acts_on = places<>;
  int bias = 0;
};
static_assert(detail::names_bias<unlisted_bias>() && detail::names_bias<no_list>() && detail::names_bias<alibi>());
static_assert(!detail::names_bias<turn>() && !detail::names_bias<decltype(combine(turn{}))>());
static_assert(!detail::names_rotation_size<decltype(combine(alibi(1)))>());
static_assert(!detail::names_add_position<turning_alibi>() && detail::names_apply_rotation<turning_alibi>());
static_assert(!detail::names_bias<int>());

TEST(EncodingConcepts, OwnBiasesReachTheScores) {
  const auto bias = bias_row<double>(own_bias{}, {3}, {{3.0, 4.5, 0.0}}, 0, false);
  EXPECT_LE(largest_difference(bias, numbers{0, -std::log1p(1.5), -std::log1p(3)}), 1e-15);
  EXPECT_EQ((bias_row<float>(final_bias{}, {3}, {range(0, 5)}, 0, true)), (std::vector<float>{-3, -2, -1, 0, -1}));
  const any_encoding any = own_both{};
  EXPECT_EQ((bias_row<float>(any, {3}, {range(0, 3)}, 0, true)), (std::vector<float>{1.5F, 1, 0.5F}));
  EXPECT_TRUE(any.rotates());
}

}  // namespace
