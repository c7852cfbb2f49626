// SPDX-License-Identifier: Apache-2.0
// The property checks on every encoding and on posenc::attention; and on encodings and kernels that are wrong in one
// way each, which the checks must find.
#include <gtest/gtest.h>
#include <posenc/encoding/alibi.hpp>
#include <posenc/encoding/any_encoding.hpp>
#include <posenc/encoding/combine.hpp>
#include <posenc/encoding/learned.hpp>
#include <posenc/encoding/nope.hpp>
#include <posenc/encoding/per_head.hpp>
#include <posenc/encoding/query_temperature.hpp>
#include <posenc/encoding/rope.hpp>
#include <posenc/encoding/sinusoidal.hpp>
#include <posenc/encoding/t5_bucket.hpp>
#include <posenc/ladder/yarn.hpp>
#include <posenc/testing/cache_properties.hpp>
#include <posenc/testing/properties.hpp>
#include <posenc/testing/reference.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace {

namespace props = posenc::testing;
using namespace posenc;

constexpr props::property_options usual{.heads = 4, .kv_heads = 2, .head_dim = 16, .tokens = 70};
constexpr index_t width = usual.heads * usual.head_dim;

std::vector<float> table_of(index_t rows, index_t columns) {
  std::vector<float> table;
  for (index_t i = 0; i < rows * columns; ++i)
    table.push_back(static_cast<float>(std::sin(0.7 * static_cast<double>(i))));
  return table;
}

/// Rounding errors of an element type, relative to the largest value or score.
template <class T>
constexpr double rounding() {
  switch (dtype_of<T>) {
    case dtype::float64: return 1e-12;
    case dtype::float32: return 3e-6;
    case dtype::half: return 4e-3;
    default: return 3e-2;
  }
}

/// An encoding for attention; held by any_encoding, which the kernel sees through, so that this file compiles in time.
struct named_encoding {
  const char* name;
  any_encoding encoding;
  props::property_options options = usual;
};

/// Encodings whose scores go by distance.
std::vector<named_encoding> relative_encodings() {
  props::property_options three_axes = usual;
  three_axes.axes = 3;
  return {
      {"nope", nope{}},
      {"rope", rope(frequency_ladder(16))},
      {"rope, interleaved and partial", rope(frequency_ladder(8), {.pairing = pairing::interleaved, .offset = 4})},
      {"rope with yarn", rope(frequency_ladder(16) | yarn{.factor = 4, .original_context = 512})},
      {"rope on three axes", rope(frequency_ladder(16), {.frequency_axis = mrope_sections({2, 3, 3})}), three_axes},
      {"alibi", alibi(4)},
      {"alibi, signed", alibi(4, {.is_signed = true})},
      {"t5", t5_bucket(table_of(32, 4).data(), 4)},
      {"rope and alibi", combine(rope(frequency_ladder(16)), alibi(4))},
      {"rope by head", per_head(2, [](index_t h) { return rope(frequency_ladder(16, {.base = h == 0 ? 1e4 : 5e5})); })},
  };
}

/// Calls f(name, encoding, options) for those whose scores depend on where the two stand.
template <class F>
void for_absolute_encodings(F&& f) {
  static const std::vector<float> table = table_of(1001, width);
  f("sinusoidal", sinusoidal(width), usual);
  f("learned", learned_positions(view_bhtd(table.data(), 1, 1, 1001, width)), usual);
  f("query_temperature", any_encoding(query_temperature{.coefficient = 0.5, .length = 64}), usual);
}

template <class F>
void for_all_encodings(F&& f) {
  for (const named_encoding& e : relative_encodings()) f(e.name, e.encoding, e.options);
  for_absolute_encodings(f);
}

template <class T>
class Properties : public ::testing::Test {};
using compute_types = ::testing::Types<double, float>;
TYPED_TEST_SUITE(Properties, compute_types);

TYPED_TEST(Properties, ScoresOfRelativeEncodingsGoByDistance) {
  for (const named_encoding& e : relative_encodings())
    EXPECT_LE(props::relative_position_error<TypeParam>(e.encoding, e.options), rounding<TypeParam>()) << e.name;
  for_absolute_encodings([](const char* name, const auto& encoding, const props::property_options& options) {
    EXPECT_GT(props::relative_position_error<TypeParam>(encoding, options), 0.01) << name;
  });
}

TYPED_TEST(Properties, WithoutPositionsOutputsFollowAPermutation) {
  const auto report = props::permutation_error<TypeParam>(any_encoding(nope{}), usual);
  EXPECT_LE(report.without_mask, rounding<TypeParam>());
  EXPECT_GT(report.causal, 0.1);  // a causal mask makes order visible by itself
  for_all_encodings([](const char* name, const auto& encoding, const props::property_options& options) {
    if (std::string(name) == "nope") return;
    const auto with_positions = props::permutation_error<TypeParam>(encoding, options);
    EXPECT_GT(with_positions.without_mask, 0.01) << name;
    EXPECT_GT(with_positions.causal, 0.1) << name;
  });
}

TYPED_TEST(Properties, DecodingIsPrefill) {
  for_all_encodings([](const char* name, const auto& encoding, const props::property_options& options) {
    EXPECT_LE(props::decode_against_prefill_error<TypeParam>(encoding, options), rounding<TypeParam>()) << name;
  });
}

TYPED_TEST(Properties, DecodingWithACacheIsPrefill) {
  for_all_encodings([](const char* name, const auto& encoding, const props::property_options& options) {
    EXPECT_LE(props::cached_decode_against_prefill_error<TypeParam>(encoding, options), rounding<TypeParam>()) << name;
  });
}

TYPED_TEST(Properties, PackedIsSeparate) {
  for_all_encodings([](const char* name, const auto& encoding, const props::property_options& options) {
    EXPECT_LE(props::packed_against_separate_error<TypeParam>(encoding, options), rounding<TypeParam>()) << name;
  });
}

TYPED_TEST(Properties, MergedPartsAreTheWhole) {
  for_all_encodings([](const char* name, const auto& encoding, const props::property_options& options) {
    EXPECT_LE(props::merge_against_whole_error<TypeParam>(encoding, options), rounding<TypeParam>()) << name;
  });
}

// 16-bit caches hold rotated keys, rounded once more than the whole text's.
TEST(SixteenBits, PropertiesHoldWithinTheirRounding) {
  const any_encoding turning = rope(frequency_ladder(16));
  EXPECT_LE(props::relative_position_error<half>(turning, usual), rounding<half>());
  EXPECT_LE(props::decode_against_prefill_error<bfloat16>(turning, usual), rounding<bfloat16>());
  EXPECT_LE(props::cached_decode_against_prefill_error<half>(turning, usual), rounding<half>());
  EXPECT_LE(props::cached_decode_against_prefill_error<bfloat16>(turning, usual), rounding<bfloat16>());
  EXPECT_LE(props::merge_against_whole_error<half>(turning, usual), rounding<half>());
}

TEST(Reference, HasTheProperties) {
  const props::reference_kernel kernel;
  const any_encoding encoding = combine(rope(frequency_ladder(16)), alibi(4)), none = nope{};
  EXPECT_LE(props::relative_position_error(encoding, usual, kernel), 1e-12);
  EXPECT_LE(props::permutation_error(none, usual, kernel).without_mask, 1e-12);
  EXPECT_LE(props::decode_against_prefill_error(encoding, usual, kernel), 1e-12);
  EXPECT_LE(props::packed_against_separate_error(encoding, usual, kernel), 1e-12);
  EXPECT_LE(props::merge_against_whole_error(encoding, usual, kernel), 1e-12);
  EXPECT_LE(props::cached_decode_against_prefill_error(encoding, usual, 10, kernel), 1e-12);
}

TEST(Permutation, IsAskedOfAttentionWithoutPositionsByDefault) {
  EXPECT_LE(props::permutation_error().without_mask, 1e-12);
}

TEST(Shift, SinusoidsTurnByAFixedRotation) {
  EXPECT_LE(props::shift_error(sinusoidal(64), 64), 1e-13);
  EXPECT_LE(props::shift_error(sinusoidal(64, {.layout = sinusoidal_layout::halves,
                                               .divisor = sinusoidal_divisor::half_width_minus_one,
                                               .scale = 0.125}),
                               64),
            1e-13);
  // The column of zeros of an odd width turns with the rest; a sine without its cosine does not.
  EXPECT_LE(props::shift_error(sinusoidal(7, {.odd_width = sinusoidal_odd_width::zero_column}), 7), 1e-13);
  EXPECT_GT(props::shift_error(sinusoidal(7), 7), 1e-3);
  // So does the one position whose vector is zero; and learned vectors have no such rotation at all.
  EXPECT_GT(props::shift_error(sinusoidal(8, {.padding_idx = 2}), 8, {.max_position = 4}), 0.1);
  const std::vector<float> table = table_of(1001, 8);
  EXPECT_GT(props::shift_error(learned_positions(view_bhtd(table.data(), 1, 1, 1001, 8)), 8), 0.01);
}

// ---- encodings that are wrong ----

/// Turns by a position that was rounded to a multiple of 2.
struct coarse_rope {
  using acts_on = places<on_queries_keys>;
  rope inner{frequency_ladder(16)};

  index_t rotation_size(rotation_shape shape) const { return inner.rotation_size(shape); }
  template <class Real>
  void prepare_rotation(rotation_shape shape, position_span position, rotation_use use, Real* row) const {
    const double coarse = 2 * std::floor(position[0] / 2);
    inner.prepare_rotation(shape, position_span(&coarse, 1), use, row);
  }
  template <class Real>
  void apply_rotation(rotation_shape shape, const Real* row, index_t kv_head, Real* x) const {
    inner.apply_rotation(shape, row, kv_head, x);
  }
};

/// Turns queries and keys by different frequencies.
struct uneven_rope {
  using acts_on = places<on_queries_keys>;
  rope of_queries{frequency_ladder(16)};
  rope of_keys{frequency_ladder(16, {.base = 10010})};

  index_t rotation_size(rotation_shape shape) const { return of_keys.rotation_size(shape); }
  template <class Real>
  void prepare_rotation(rotation_shape shape, position_span position, rotation_use use, Real* row) const {
    (use.role == token_role::query ? of_queries : of_keys).prepare_rotation(shape, position, use, row);
  }
  template <class Real>
  void apply_rotation(rotation_shape shape, const Real* row, index_t kv_head, Real* x) const {
    of_keys.apply_rotation(shape, row, kv_head, x);
  }
};

/// A bias by the key's index instead of its distance: right under a causal softmax, and no relative encoding.
struct key_index_bias {
  using acts_on = places<on_scores>;
  template <class Keys>
  auto bias(const Keys& keys, index_t) const {
    const double query = keys.query_position();
    return keys.map([query](double distance) { return 0.125 * (distance + query); });
  }
};

/// Sinusoids whose frequency drifts with the position.
struct drifting_sinusoid {
  using acts_on = places<on_inputs>;
  template <class Real>
  void add_position(position_span p, std::span<Real> x) const {
    for (std::size_t i = 0; i < x.size(); i += 2) {
      const double angle = p[0] * std::pow(10.0, -static_cast<double>(i) / 4) * (1 + 1e-6 * p[0]);
      x[i] += static_cast<Real>(std::sin(angle));
      x[i + 1] += static_cast<Real>(std::cos(angle));
    }
  }
};

TEST(WrongEncodings, AreFound) {
  EXPECT_GT(props::relative_position_error(coarse_rope{}, usual), 0.01);
  EXPECT_GT(props::relative_position_error(uneven_rope{}, usual), 0.001);
  EXPECT_GT(props::relative_position_error(key_index_bias{}, usual), 0.1);
  EXPECT_GT(props::shift_error(drifting_sinusoid{}, 8), 1e-4);
}

// ---- kernels that are wrong ----

/// attention after something was done to its arguments.
template <class F>
auto kernel_after(F f) {
  return [f](const auto& q, const auto& k, const auto& v, const auto& out, token_pair tokens, const auto& encoding,
             const auto& mask, attention_options options) {
    f(tokens, options);
    attention(q, k, v, out, tokens, encoding, mask, options);
  };
}

TEST(WrongKernels, QueriesThatAlwaysStandAtZero) {
  // The commonest mistake in decoding: the new token is rotated as if it were the first.
  const auto kernel = kernel_after([](token_pair& tokens, attention_options&) {
    static const double everything = 1e6;
    if (tokens.q.count() == 1) tokens.q = token_range(1).with_order(&everything);
  });
  EXPECT_GT(props::decode_against_prefill_error(any_encoding(rope(frequency_ladder(16))), usual, kernel), 0.01);
  EXPECT_LE(props::decode_against_prefill_error(any_encoding(nope{}), usual, kernel),
            1e-12);  // nothing to see without positions
}

TEST(WrongKernels, DocumentsThatDoNotRestrict) {
  const auto kernel = kernel_after([](token_pair& tokens, attention_options&) {
    static const std::vector<std::int64_t> one(1000, 0);
    if (tokens.q.has_documents()) tokens = {tokens.q.with_documents(one.data()), tokens.k.with_documents(one.data())};
  });
  EXPECT_GT(props::packed_against_separate_error(any_encoding(rope(frequency_ladder(16))), usual, kernel), 0.01);
}

TEST(WrongKernels, SinksInEveryPart) {
  static const std::vector<double> zeros(4, 0);
  const auto kernel = kernel_after([](token_pair&, attention_options& options) {
    if (options.sinks.size() == 0) options.sinks = zeros;
  });
  EXPECT_GT(props::merge_against_whole_error(any_encoding(nope{}), usual, kernel), 0.001);
}

TEST(WrongKernels, LseInOtherUnits) {
  const auto kernel = [](const auto& q, const auto& k, const auto& v, const auto& out, const token_pair& tokens,
                         const auto& encoding, const auto& mask, attention_options options) {
    std::vector<double> lse(static_cast<std::size_t>(q.heads() * q.tokens()));
    const lse_view wanted = options.lse;
    options.lse = lse_view(lse.data(), 1, q.heads(), q.tokens());
    attention(q, k, v, out, tokens, encoding, mask, options);
    for (index_t h = 0; h < q.heads(); ++h)
      for (index_t t = 0; t < q.tokens(); ++t)
        wanted.set(0, h, t, lse[static_cast<std::size_t>(h * q.tokens() + t)] * 1.4426950408889634);
  };
  EXPECT_GT(props::merge_against_whole_error(any_encoding(nope{}), usual, kernel), 0.001);
}

TEST(WrongKernels, KeysInTheWrongPlace) {
  // Positions of keys count from 1: the distance is off by one.
  const auto kernel = kernel_after([](token_pair& tokens, attention_options&) {
    static std::vector<double> from_one;
    from_one.clear();
    std::vector<double> order;
    for (index_t t = 0; t < tokens.k.count(); ++t)
      from_one.push_back(tokens.k.position(0, 0, t) + (t % 2 == 0 ? 1 : 0));
    static std::vector<double> orders;
    orders.clear();
    for (index_t t = 0; t < tokens.k.count(); ++t) orders.push_back(tokens.k.order(0, t));
    tokens.k = token_positions(from_one.data(), tokens.k.count()).with_order(orders.data());
  });
  // Prefill and decoding are wrong alike, which only a comparison with another kernel tells.
  const any_encoding encoding = rope(frequency_ladder(16));
  EXPECT_GT(props::cached_decode_against_prefill_error(encoding, usual, 10, kernel), 0.01);
}

TEST(WrongKernels, NaNIsNoSmallDeviation) {
  const auto kernel = [](const auto& q, const auto&, const auto&, const auto& out, const token_pair&, const auto&,
                         const auto&, const attention_options&) {
    const double nan = std::bit_cast<double>(std::uint64_t{0x7ff8000000000000});
    for (index_t t = 0; t < q.tokens(); ++t) out(0, 0, t, 0) = nan;
  };
  EXPECT_GT(props::decode_against_prefill_error(nope{}, usual, kernel), 1);
  EXPECT_GT(props::permutation_error(nope{}, usual, kernel).without_mask, 1);
}

}  // namespace
