// SPDX-License-Identifier: Apache-2.0
// Faults that people reported in other projects (tests/data/attention_user_reports.json): the right value must come
// out, and the test must be able to tell it from what the fault would give.
#include <posenc/attention/cached_attention.hpp>
#include <posenc/attention/kv_cache.hpp>
#include <posenc/attention/merge.hpp>
#include <posenc/encoding/alibi.hpp>
#include <posenc/encoding/rope.hpp>
#include <posenc/ladder/frequency_ladder.hpp>

#include "attention/simple_call.hpp"
#include "support/expect_error.hpp"

namespace {

using attention_test::call_with_dots;
using attention_test::index_t;
using attention_test::matrix;
using attention_test::simple_call;
using nlohmann::json;
using posenc::token_range;

json report(const std::string& id) {
  static const json cases = attention_test::json_cases("attention_user_reports.json");
  for (const json& c : cases)
    if (c.at("id") == id) return c;
  ADD_FAILURE() << "there is no case " << id;
  return {};
}

matrix rows_of(const json& values) { return values.get<matrix>(); }
std::vector<double> list_of(const json& values) { return values.get<std::vector<double>>(); }

/// Whether numbers agree to a bound. Words ("nan", "error") agree with nothing.
bool agree(const json& expected, const std::vector<double>& actual, double bound) {
  if (!expected.is_array() || expected.size() != actual.size()) return false;
  for (std::size_t i = 0; i < actual.size(); ++i)
    if (!expected[i].is_number() || !attention_test::within(actual[i], expected[i].get<double>(), bound)) return false;
  return true;
}

template <class T>
class UserReports : public testing::Test {
 protected:
  static double bound(const json& c) {
    return c.at("tolerance").at(std::is_same_v<T, double> ? "abs_f64" : "abs_f32").template get<double>();
  }

  /// `key` names a list of numbers in the report's expected and wrong values.
  static void expect(const json& c, const char* key, const std::vector<double>& actual) {
    EXPECT_TRUE(agree(c.at("expected").at(key), actual, bound(c)))
        << c.at("id") << ": expected " << c.at("expected").at(key) << ", got " << json(actual);
    if (c.at("wrong").contains(key)) {
      EXPECT_FALSE(agree(c.at("wrong").at(key), actual, bound(c))) << c.at("id") << ": this is what the fault gives";
    }
  }
  static void expect_rows(const json& c, const char* key, const matrix& actual) {
    const json& expected = c.at("expected").at(key);
    ASSERT_EQ(expected.size(), actual.size());
    bool as_the_fault = true;
    for (std::size_t i = 0; i < actual.size(); ++i) {
      EXPECT_TRUE(agree(expected[i], actual[i], bound(c)))
          << c.at("id") << " row " << i << ": expected " << expected[i] << ", got " << json(actual[i]);
      as_the_fault =
          as_the_fault && c.at("wrong").contains(key) && agree(c.at("wrong").at(key)[i], actual[i], bound(c));
    }
    EXPECT_FALSE(as_the_fault) << c.at("id");
  }
};
using reals = testing::Types<float, double>;
TYPED_TEST_SUITE(UserReports, reals);

posenc::rope rope_of(index_t head_dim) { return posenc::rope(posenc::frequency_ladder(head_dim)); }

// ---- positions of cached keys ----

// The scores of a decode query come back as log weight + lse.
TYPED_TEST(UserReports, DecodeQueryAtItsOwnPosition) {
  const json c = report("BR-007");
  simple_call<TypeParam> call;
  call.q = {list_of(c["inputs"]["q"])};
  call.k = matrix(4, list_of(c["inputs"]["k_each"]));
  call.tokens = posenc::token_pair(token_range(1, 3), token_range(4));
  call.encoding = rope_of(4);
  call.options.scale = 1;
  std::vector<double> scores;
  const matrix weights = call.weights();
  const double lse = call.run().lse[0];
  for (const double w : weights[0]) scores.push_back(std::log(w) + lse);
  this->expect(c, "scores", scores);
}

TYPED_TEST(UserReports, ChunkedPrefillEqualsOneCall) {
  const json c = report("BR-008");
  const matrix q = rows_of(c["inputs"]["q"]), k = rows_of(c["inputs"]["k"]), v = rows_of(c["inputs"]["v"]);
  for (const json& chunking : c["inputs"]["chunkings"]) {
    matrix from_tensors, from_cache;
    posenc::kv_cache<TypeParam> cache({.kv_heads = 1, .head_dim = 2});
    index_t done = 0;
    for (const index_t n : chunking.get<std::vector<index_t>>()) {
      simple_call<TypeParam> call;
      call.q = matrix(q.begin() + done, q.begin() + done + n);
      call.k = matrix(k.begin(), k.begin() + done + n);
      call.v = matrix(v.begin(), v.begin() + done + n);
      call.tokens = posenc::token_pair(token_range(n, static_cast<double>(done)), token_range(done + n));
      call.encoding = rope_of(2);
      call.mask = posenc::causal{};
      call.options.scale = c["inputs"]["scale"].get<double>();
      for (const auto& row : call.run().out) from_tensors.push_back(row);

      const auto tokens = token_range(n, static_cast<double>(done));
      const auto as_buffer = [&](const matrix& m) {
        return simple_call<TypeParam>::buffer_of(matrix(m.begin() + done, m.begin() + done + n));
      };
      const auto qb = as_buffer(q), kb = as_buffer(k), vb = as_buffer(v);
      const auto out = attention_test::make_buffer<TypeParam>(1, 1, n, 2);
      cache.append(kb.view, vb.view, tokens, rope_of(2));
      posenc::attention(qb.view, cache, out.view, tokens, rope_of(2), posenc::causal{}, call.options);
      for (index_t t = 0; t < n; ++t)
        from_cache.push_back({static_cast<double>(out.view(0, 0, t, 0)), static_cast<double>(out.view(0, 0, t, 1))});
      done += n;
    }
    this->expect_rows(c, "out", from_tensors);
    this->expect_rows(c, "out", from_cache);
  }
}

// ---- packed documents ----

TYPED_TEST(UserReports, PackedDocumentsDoNotSeeEachOther) {
  const json c = report("BR-017");
  const posenc::token_list tokens = posenc::packed_documents(c["inputs"]["lengths"].get<std::vector<int>>());
  simple_call<TypeParam> call;
  call.q = matrix(5, list_of(c["inputs"]["q_each"]));
  call.k = matrix(5, list_of(c["inputs"]["k_each"]));
  call.v = rows_of(c["inputs"]["v"]);
  call.tokens = tokens;
  call.encoding = rope_of(2);
  call.mask = posenc::causal{};
  call.options.scale = 1;
  const matrix out = call.run().out;
  this->expect_rows(c, "out", out);
  // What another document holds does not reach a bit of the rest.
  call.v[0] = {-3e30};
  call.v[1] = {7e30};
  const matrix other = call.run().out;
  for (std::size_t i = 2; i < 5; ++i) EXPECT_EQ(out[i], other[i]);
  EXPECT_NE(out[1], other[1]);
}

// ---- ALiBi ----

TYPED_TEST(UserReports, AlibiOfADecodeQuery) {
  for (const char* id : {"BR-064", "BR-065"}) {
    const json c = report(id);
    const double slopes[] = {c["inputs"]["slope"].get<double>()};
    auto call = call_with_dots<TypeParam>(std::vector<double>(c["inputs"]["k_positions"].size(), 0.0));
    call.encoding = posenc::alibi(std::span<const double>(slopes));
    this->expect(c, "weights", call.weights()[0]);
  }
}

// The biases come back from the weights of each row: log weight + lse.
TYPED_TEST(UserReports, AlibiOfBothDirections) {
  const json c = report("BR-066");
  const double slopes[] = {c["inputs"]["slope"].get<double>()};
  simple_call<TypeParam> call;
  call.q = call.k = matrix(4, {0});
  call.tokens = token_range(4);
  call.encoding = posenc::alibi(std::span<const double>(slopes));
  matrix biases = call.weights();
  const auto lse = call.run().lse;
  const double bound = std::is_same_v<TypeParam, double> ? 1e-15 : 5e-7;  // the logarithm costs some digits
  for (std::size_t i = 0; i < 4; ++i) {
    for (double& x : biases[i]) x = std::log(x) + lse[i];
    EXPECT_TRUE(agree(c["expected"]["bias"][i], biases[i], bound)) << json(biases[i]);
  }
  EXPECT_FALSE(agree(c["wrong"]["bias"][1], biases[1], bound));
}

// ---- scale ----

// The bias is not scaled. ALiBi with slope 2 gives the nearer key 0 and the other one -2.
TYPED_TEST(UserReports, BiasesAreNotScaled) {
  const json c = report("BR-072");
  const double slopes[] = {2};
  auto call = call_with_dots<TypeParam>(list_of(c["inputs"]["dots"]));
  call.tokens = posenc::token_pair(token_range(1), token_range(2));
  call.encoding = posenc::alibi(std::span<const double>(slopes));
  call.options.scale = c["inputs"]["scale"].get<double>();
  this->expect(c, "weights", call.weights()[0]);
}

TYPED_TEST(UserReports, DefaultScaleIsThere) {
  const json c = report("BR-074");
  simple_call<TypeParam> call;
  call.q = {list_of(c["inputs"]["q"])};
  call.k = rows_of(c["inputs"]["k"]);
  call.tokens = posenc::token_pair(token_range(1), token_range(2));
  this->expect(c, "weights", call.weights()[0]);
}

TYPED_TEST(UserReports, OwnScaleReplacesTheDefault) {
  const json c = report("BR-075");
  simple_call<TypeParam> call;
  call.q = {std::vector<double>(128, 0.0)};
  call.k = matrix(2, std::vector<double>(128, 0.0));
  call.q[0][5] = 1;
  call.k[0][5] = 24;
  call.tokens = posenc::token_pair(token_range(1), token_range(2));
  call.options.scale = 1 / std::sqrt(c["inputs"]["config"]["query_pre_attn_scalar"].get<double>());
  this->expect(c, "weights", call.weights()[0]);
}

// ---- masked softmax ----

TYPED_TEST(UserReports, RowThatSeesNothingIsZero) {
  const json c = report("BR-076");
  std::vector<int> cells;
  for (const json& row : c["inputs"]["mask"])
    for (const json& cell : row) cells.push_back(cell.get<int>());
  simple_call<TypeParam> call;
  call.q = matrix(2, {1});
  call.k = matrix(3, {0});
  call.v = rows_of(c["inputs"]["v"]);
  call.tokens = posenc::token_pair(token_range(2), token_range(3));
  call.mask = posenc::dense_mask<int>(cells.data(), 2, 3);
  const auto result = call.run();
  this->expect_rows(c, "out", result.out);
  EXPECT_TRUE(posenc::detail::is_minus_infinity(result.lse[0]));
}

TYPED_TEST(UserReports, VeryNegativeLogits) {
  const json c = report("BR-078");
  for (std::size_t i = 0; i < 2; ++i) {
    auto call = call_with_dots<TypeParam>(list_of(c["inputs"]["dots_list"][i]));
    const auto weights = call.weights()[0];
    EXPECT_TRUE(agree(c["expected"]["weights_list"][i], weights, this->bound(c))) << json(weights);
    EXPECT_FALSE(agree(c["wrong"]["weights_list"][i], weights, this->bound(c)));
  }
}

template <class T>
std::vector<double> weights_masked_twice(const json& c) {
  auto call = call_with_dots<T>(list_of(c["inputs"]["dots"]));
  static const std::vector<int> a = c["inputs"]["mask_a"].get<std::vector<int>>();
  static const std::vector<int> b = c["inputs"]["mask_b"].get<std::vector<int>>();
  call.mask = posenc::dense_mask<int>(a.data(), 1, 3) & posenc::dense_mask<int>(b.data(), 1, 3);
  return call.weights()[0];
}

TYPED_TEST(UserReports, MasksAreNotAdded) {
  const json c = report("BR-079");
  const auto weights = weights_masked_twice<TypeParam>(c), in_half = weights_masked_twice<posenc::half>(c),
             in_bfloat16 = weights_masked_twice<posenc::bfloat16>(c);
  this->expect(c, "weights", weights);
  EXPECT_TRUE(agree(c["expected"]["weights"], in_half, 2e-3)) << json(in_half);
  EXPECT_TRUE(agree(c["expected"]["weights"], in_bfloat16, 1e-2)) << json(in_bfloat16);
  for (const double w : {weights[1], in_half[1], in_bfloat16[1]}) EXPECT_EQ(w, 0);
}

TYPED_TEST(UserReports, MergeOfEmptyParts) {
  const json c = report("BR-081");
  for (std::size_t i = 0; i < 3; ++i) {
    const json& pair = c["inputs"]["pairs"][i];
    TypeParam outs[2], lses[2];
    for (std::size_t part = 0; part < 2; ++part) {
      outs[part] = pair[part][0].get<TypeParam>();
      if (pair[part][1].is_string()) {
        posenc::detail::set_minus_infinity(lses[part]);
      } else {
        lses[part] = pair[part][1].get<TypeParam>();
      }
    }
    TypeParam out = -1;
    double lse = -1;
    const auto view = [](TypeParam* x) { return posenc::view_bhtd(x, 1, 1, 1, 1); };
    posenc::attention_options options;
    options.lse = posenc::lse_view(&lse, 1, 1, 1);
    posenc::merge<TypeParam>({{view(&outs[0]), &lses[0]}, {view(&outs[1]), &lses[1]}}, view(&out), options);
    const json& expected = c["expected"]["merged"][i];
    EXPECT_TRUE(attention_test::within(out, expected[0].get<double>(), this->bound(c))) << i << ": " << out;
    if (expected[1].is_string()) {
      EXPECT_TRUE(posenc::detail::is_minus_infinity(lse)) << i;
    } else {
      EXPECT_TRUE(attention_test::within(lse, expected[1].get<double>(), this->bound(c))) << i << ": " << lse;
    }
    const json& wrong = c["wrong"]["merged"][i];
    if (wrong != expected) {
      EXPECT_FALSE(wrong[0].is_number() && attention_test::within(out, wrong[0].get<double>(), this->bound(c)));
    }
  }
}

// ---- which keys a query sees ----

TYPED_TEST(UserReports, CausalOfTheLastQueries) {
  const json c = report("BR-082");
  simple_call<TypeParam> call;
  call.q = matrix(2, {0});
  call.k = matrix(5, {0});
  call.v = rows_of(c["inputs"]["v"]);
  call.tokens = posenc::token_pair(token_range(2, 3), token_range(5));
  call.mask = posenc::causal{};
  this->expect_rows(c, "out", call.run().out);
  // Without the offset these are two queries at the start, and the caller said so.
  call.tokens = posenc::token_pair(token_range(2), token_range(5));
  EXPECT_TRUE(agree(c["wrong"]["out"][1], call.run().out[1], this->bound(c)));
}

TYPED_TEST(UserReports, SlidingWindowInChunks) {
  const json c = report("BR-085");
  const matrix v = rows_of(c["inputs"]["v"]);
  for (const json& chunking : c["inputs"]["chunkings"]) {
    matrix all;
    index_t done = 0;
    for (const index_t n : chunking.get<std::vector<index_t>>()) {
      simple_call<TypeParam> call;
      call.q = matrix(static_cast<std::size_t>(n), {0});
      call.k = matrix(static_cast<std::size_t>(done + n), {0});
      call.v = matrix(v.begin(), v.begin() + done + n);
      call.tokens = posenc::token_pair(token_range(n, static_cast<double>(done)), token_range(done + n));
      call.mask = posenc::window_of(c["inputs"]["sliding_window"].get<double>());
      for (const auto& row : call.run().out) all.push_back(row);
      done += n;
    }
    this->expect_rows(c, "out", all);
  }
}

// ---- softcap: with one key, lse is its score ----

template <class T>
double only_score(double dot, double cap) {
  auto call = call_with_dots<T>({dot});
  call.v = {{1}};
  call.options.softcap = cap;
  return call.run().lse[0];
}

TYPED_TEST(UserReports, SoftcapIsATanh) {
  const json c = report("BR-088");
  const double cap = c["inputs"]["cap"].get<double>();
  std::vector<double> y;
  for (const double x : list_of(c["inputs"]["x"])) y.push_back(only_score<TypeParam>(x, cap));
  this->expect(c, "y", y);
}

TYPED_TEST(UserReports, SoftcapZeroIsNone) {
  const json c = report("BR-090");
  const double y = only_score<TypeParam>(7, 0);
  EXPECT_TRUE(
      attention_test::within(y, c["expected"]["y"][0].get<double>(), attention_test::tolerance<TypeParam>() * 8))
      << y;
  POSENC_EXPECT_ERROR(only_score<TypeParam>(7, -1), posenc::errc::invalid_value, "options.softcap: is -1");
}

TYPED_TEST(UserReports, SoftcapBeforeBiasAndMask) {
  const json c = report("BR-091");
  static const int first_only[] = {1, 0};
  auto masked = call_with_dots<TypeParam>(list_of(c["inputs"]["dots"]));
  masked.options.softcap = c["inputs"]["cap"].get<double>();
  masked.mask = posenc::dense_mask<int>(first_only, 1, 2);
  this->expect(c, "weights", masked.weights()[0]);
  auto biased = call_with_dots<TypeParam>(list_of(c["inputs"]["dots"]));
  biased.options.softcap = c["inputs"]["cap"].get<double>();
  const double slopes[] = {3};
  biased.tokens = posenc::token_pair(token_range(1), token_range(2));
  biased.encoding = posenc::alibi(std::span<const double>(slopes));
  this->expect(c, "weights_bias", biased.weights()[0]);
}

// ---- sinks ----

TYPED_TEST(UserReports, SinkOnlyInTheDenominator) {
  for (const char* id : {"BR-092", "BR-093"}) {
    const json c = report(id);
    auto call = call_with_dots<TypeParam>(list_of(c["inputs"]["dots"]));
    const std::vector<double> sink = {c["inputs"]["sink"].get<double>()};
    call.options.sinks = sink;
    this->expect(c, "weights", call.weights()[0]);
    if (!c["inputs"].contains("v")) continue;
    call.v.clear();
    for (const double v : list_of(c["inputs"]["v"])) call.v.push_back({v});
    const double out = call.run().out[0][0];
    EXPECT_TRUE(attention_test::within(out, c["expected"]["out"].get<double>(), this->bound(c) * 5)) << out;
    EXPECT_FALSE(attention_test::within(out, c["wrong"]["out"].get<double>(), this->bound(c) * 5));
  }
}

TYPED_TEST(UserReports, SinkFactorIsNotClamped) {
  const json c = report("BR-095");
  const double bound = c["tolerance"][std::is_same_v<TypeParam, double> ? "rel_f64" : "rel_f32"].template get<double>();
  for (std::size_t i = 0; i < 2; ++i) {
    TypeParam one = 1, lse = c["inputs"]["cases"][i][0].template get<TypeParam>(), out = 0;
    const std::vector<double> sink = {c["inputs"]["cases"][i][1].template get<double>()};
    posenc::attention_options options;
    options.sinks = sink;
    const auto view = [](TypeParam* x) { return posenc::view_bhtd(x, 1, 1, 1, 1); };
    posenc::merge<TypeParam>({{view(&one), &lse}}, view(&out), options);
    const double expected = c["expected"]["factor"][i].template get<double>();
    EXPECT_TRUE(attention_test::within(out, expected, bound * expected)) << out << " for " << expected;
  }
  EXPECT_FALSE(attention_test::within(c["expected"]["factor"][1].template get<double>(),
                                      c["wrong"]["factor"][1].template get<double>(), 1e-12));
}

// ---- heads ----

TYPED_TEST(UserReports, NeighbouringHeadsShareAKvHead) {
  const json c = report("BR-096");
  const index_t heads = c["inputs"]["n_head"], kv_heads = c["inputs"]["n_head_kv"];
  const auto q = attention_test::make_buffer<TypeParam>(1, heads, 1, 1);
  const auto k = attention_test::make_buffer<TypeParam>(1, kv_heads, 1, 1);
  const auto v = attention_test::make_buffer<TypeParam>(1, kv_heads, 1, 1);
  const auto out = attention_test::make_buffer<TypeParam>(1, heads, 1, 1);
  for (index_t h = 0; h < heads; ++h) q.view(0, h, 0, 0) = 1;
  for (index_t h = 0; h < kv_heads; ++h) {
    k.view(0, h, 0, 0) = 1;
    v.view(0, h, 0, 0) = c["inputs"]["v_per_kv_head"][static_cast<std::size_t>(h)].get<TypeParam>();
  }
  posenc::attention(q.view, k.view, v.view, out.view, token_range(1), posenc::nope{}, posenc::causal{});
  EXPECT_EQ(json(out.numbers()), c["expected"]["out_per_head"]);
  EXPECT_NE(json(out.numbers()), c["wrong"]["out_per_head"]);
}

}  // namespace
