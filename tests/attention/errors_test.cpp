// SPDX-License-Identifier: Apache-2.0
// Bad input: which error, which argument, which value and rule in its text; `check` says the same as a value; and not a
// bit of the output has changed.
#include <posenc/attention/attention.hpp>
#include <posenc/encoding/alibi.hpp>
#include <posenc/encoding/any_encoding.hpp>
#include <posenc/encoding/nope.hpp>
#include <posenc/encoding/per_head.hpp>
#include <posenc/encoding/query_temperature.hpp>
#include <posenc/encoding/rope.hpp>
#include <posenc/encoding/t5_bucket.hpp>
#include <posenc/ladder/frequency_ladder.hpp>

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <utility>

#include "attention/attention_support.hpp"
#include "attention/mask_support.hpp"
#include "support/expect_error.hpp"

namespace {

using attention_test::index_t;
using posenc::any_encoding;
using posenc::errc;
using posenc::tensor_view;
using posenc::token_range;
using posenc::view_bhtd;

const double not_a_number = std::bit_cast<double>(std::uint64_t{0x7ff8'0000'0000'0000});
const double infinity = std::bit_cast<double>(std::uint64_t{0x7ff0'0000'0000'0000});

/// A good call, of which each test spoils one thing.
class AttentionErrors : public testing::Test {
 protected:
  static constexpr index_t batch = 2, heads = 4, kv_heads = 2, q_len = 3, kv_len = 5, dim = 8, value_dim = 6;

  AttentionErrors() {
    attention_test::random_engine random(5);
    for (float& x : memory_) x = static_cast<float>(attention_test::random_number(random));
    before_ = memory_;
    lse_before_ = lse_;
    options.lse = posenc::lse_view(lse_.data(), batch, heads, q_len);
  }

  // All tensors lie in one buffer, one after another.
  static constexpr index_t q_size = batch * heads * q_len * dim, k_size = batch * kv_heads * kv_len * dim,
                           v_size = batch * kv_heads * kv_len * value_dim, out_size = batch * heads * q_len * value_dim;
  float* q_at() { return memory_.data(); }
  float* k_at() { return q_at() + q_size; }
  float* v_at() { return k_at() + k_size; }
  float* out_at() { return v_at() + v_size; }

  posenc::maybe_error check() const {
    static_assert(noexcept(posenc::check(q, k, v, out, tokens, encoding, mask, options)));
    return posenc::check(q, k, v, out, tokens, encoding, mask, options);
  }
  void attend() { posenc::attention(q, k, v, out, tokens, encoding, mask, options); }

  void expect_refused(errc code, const char* argument, std::initializer_list<const char*> texts) {
    const posenc::maybe_error value = check();
    ASSERT_TRUE(value.has_value()) << "check found nothing wrong";
    EXPECT_EQ(value->code(), code) << value->what();
    EXPECT_STREQ(value->argument(), argument) << value->what();
    for (const char* text : texts)
      EXPECT_NE(std::string(value->what()).find(text), std::string::npos) << value->what() << "\nlacks: " << text;
    const auto raised = posenc_test::error_of([this] { attend(); });
    ASSERT_TRUE(raised.has_value()) << "attention raised nothing";
    EXPECT_EQ(raised->code, code);
    EXPECT_EQ(raised->argument, argument);
    EXPECT_EQ(raised->text, value->what()) << "check and attention tell different things";
    EXPECT_EQ(std::memcmp(memory_.data(), before_.data(), memory_.size() * sizeof(float)), 0)
        << "something was written";
    EXPECT_EQ(std::memcmp(lse_.data(), lse_before_.data(), lse_.size() * sizeof(float)), 0) << "lse was written";
  }
  void expect_accepted() {
    const posenc::maybe_error value = check();
    EXPECT_FALSE(value.has_value()) << value->what();
    const auto raised = posenc_test::error_of([this] { attend(); });
    EXPECT_FALSE(raised.has_value()) << raised->text;
  }

  std::vector<float> memory_ = std::vector<float>(static_cast<std::size_t>(q_size + k_size + v_size + out_size + 1000));
  std::vector<float> before_, lse_ = std::vector<float>(static_cast<std::size_t>(batch * heads * q_len), 77.0f),
                              lse_before_;

  tensor_view<float> q = view_bhtd(q_at(), batch, heads, q_len, dim),
                     k = view_bhtd(k_at(), batch, kv_heads, kv_len, dim),
                     v = view_bhtd(v_at(), batch, kv_heads, kv_len, value_dim),
                     out = view_bhtd(out_at(), batch, heads, q_len, value_dim);
  posenc::token_pair tokens{token_range(q_len, 2), token_range(kv_len)};
  any_encoding encoding = posenc::nope{};
  posenc::any_mask mask = posenc::causal{};
  posenc::attention_options options;
};

TEST_F(AttentionErrors, TheGoodCallIsGood) {
  expect_accepted();
  EXPECT_NE(std::memcmp(memory_.data(), before_.data(), memory_.size() * sizeof(float)), 0);
}

// ---- shapes ----

TEST_F(AttentionErrors, ZeroSizes) {
  q = view_bhtd(q_at(), batch, heads, q_len, 0);
  k = view_bhtd(k_at(), batch, kv_heads, kv_len, 0);
  expect_refused(errc::invalid_shape, "q", {"head_dim 0", "allowed: 1 and more"});
}
TEST_F(AttentionErrors, NoQueryHeads) {
  q = view_bhtd(q_at(), batch, 0, q_len, dim);
  expect_refused(errc::invalid_shape, "q", {"0 heads"});
}
TEST_F(AttentionErrors, NoKeyHeads) {
  k = view_bhtd(k_at(), batch, 0, kv_len, dim);
  expect_refused(errc::invalid_shape, "k", {"0 heads"});
}
TEST_F(AttentionErrors, NoValueDim) {
  v = view_bhtd(v_at(), batch, kv_heads, kv_len, 0);
  expect_refused(errc::invalid_shape, "v", {"dim 0"});
}
// There is work for each row of a batch, even where it has no tokens.
TEST_F(AttentionErrors, ExtentsBeyondAnyMachine) {
  for (auto* x : {&q, &k, &v, &out}) *x = view_bhtd(x->data_handle(), index_t{1} << 58, 1, 0, 8);
  expect_refused(errc::invalid_shape, "q", {"[288230376151711744, 1, 0, 8]", "up to 2^48"});
}
TEST_F(AttentionErrors, NegativeExtent) {
  k = view_bhtd(k_at(), batch, kv_heads, -1, dim);
  expect_refused(errc::invalid_shape, "k", {"extent -1", "0 and more"});
}
TEST_F(AttentionErrors, HeadsThatDoNotGroup) {
  k = view_bhtd(k_at(), batch, 3, kv_len, dim);
  expect_refused(errc::invalid_shape, "q", {"4 heads", "multiple of the 3 heads of k"});
}
TEST_F(AttentionErrors, KeyBatch) {
  k = view_bhtd(k_at(), 1, kv_heads, kv_len, dim);
  expect_refused(errc::invalid_shape, "k", {"1 batch rows", "allowed: 2", "like q"});
}
TEST_F(AttentionErrors, KeyDim) {
  k = view_bhtd(k_at(), batch, kv_heads, kv_len, 7);
  expect_refused(errc::invalid_shape, "k", {"7 dim", "allowed: 8", "like q"});
}
TEST_F(AttentionErrors, ValueBatch) {
  v = view_bhtd(v_at(), 1, kv_heads, kv_len, value_dim);
  expect_refused(errc::invalid_shape, "v", {"1 batch rows", "allowed: 2", "like q"});
}
TEST_F(AttentionErrors, ValueHeads) {
  v = view_bhtd(v_at(), batch, 1, kv_len, value_dim);
  expect_refused(errc::invalid_shape, "v", {"1 heads", "allowed: 2", "like k"});
}
TEST_F(AttentionErrors, ValueTokens) {
  v = view_bhtd(v_at(), batch, kv_heads, 4, value_dim);
  expect_refused(errc::invalid_shape, "v", {"4 tokens", "allowed: 5", "like k"});
}
TEST_F(AttentionErrors, OutBatch) {
  out = view_bhtd(out_at(), 1, heads, q_len, value_dim);
  expect_refused(errc::invalid_shape, "out", {"1 batch rows", "allowed: 2", "like q"});
}
TEST_F(AttentionErrors, OutHeads) {
  out = view_bhtd(out_at(), batch, 2, q_len, value_dim);
  expect_refused(errc::invalid_shape, "out", {"2 heads", "allowed: 4", "like q"});
}
TEST_F(AttentionErrors, OutTokens) {
  out = view_bhtd(out_at(), batch, heads, 2, value_dim);
  expect_refused(errc::invalid_shape, "out", {"2 tokens", "allowed: 3", "like q"});
}
TEST_F(AttentionErrors, OutDim) {
  out = view_bhtd(out_at(), batch, heads, q_len, 5);
  expect_refused(errc::invalid_shape, "out", {"5 dim", "allowed: 6", "like v"});
}

// ---- layouts ----

TEST_F(AttentionErrors, NullData) {
  const auto null = [](tensor_view<float>& x) {
    x = tensor_view<float>(nullptr, {x.extent(0), x.extent(1), x.extent(2), x.extent(3)},
                           {x.stride(0), x.stride(1), x.stride(2), 1});
  };
  const auto good_q = q, good_k = k, good_v = v;
  null(q);
  expect_refused(errc::invalid_layout, "q", {"null", "[2, 4, 3, 8]"});
  q = good_q;
  null(k);
  expect_refused(errc::invalid_layout, "k", {"null"});
  k = good_k;
  null(v);
  expect_refused(errc::invalid_layout, "v", {"null"});
  v = good_v;
  null(out);
  expect_refused(errc::invalid_layout, "out", {"null"});
}

TEST_F(AttentionErrors, StrideOfDim) {
  for (const index_t stride : {2, 0, -1}) {
    tensor_view<float>* const all[] = {&q, &k, &v, &out};
    const char* const names[] = {"q", "k", "v", "out"};
    for (int i = 0; i < 4; ++i) {
      const tensor_view<float> good = *all[i];
      *all[i] = tensor_view<float>(good.data_handle(), {good.extent(0), good.extent(1), good.extent(2), good.extent(3)},
                                   {good.stride(0), good.stride(1), good.stride(2), stride});
      const std::string text = "stride " + std::to_string(stride);
      expect_refused(errc::invalid_layout, names[i], {text.c_str(), "allowed: 1"});
      *all[i] = good;
    }
  }
}

TEST_F(AttentionErrors, OutputRowsThatShareMemory) {
  const auto with = [&](std::array<index_t, 4> strides) {
    out = tensor_view<float>(out_at(), {batch, heads, q_len, value_dim}, strides);
  };
  with({0, 18, 6, 1});
  expect_refused(errc::invalid_layout, "out", {"stride 0", "axis 0"});
  with({72, 0, 6, 1});
  expect_refused(errc::invalid_layout, "out", {"stride 0", "axis 1"});
  with({72, 18, 0, 1});
  expect_refused(errc::invalid_layout, "out", {"stride 0", "axis 2"});
}

// Strides that are too small make rows run into each other without any stride being 0.
TEST_F(AttentionErrors, OutputRowsThatRunIntoEachOther) {
  out = tensor_view<float>(out_at(), {batch, heads, q_len, value_dim}, {72, 18, 4, 1});
  expect_refused(errc::invalid_layout, "out", {"rows"});
  out = tensor_view<float>(out_at(), {batch, heads, q_len, value_dim}, {72, 12, 6, 1});
  expect_refused(errc::invalid_layout, "out", {"rows"});
}

TEST_F(AttentionErrors, OutOverlapsAnInput) {
  out = view_bhtd(k_at(), batch, heads, q_len, value_dim);
  expect_refused(errc::invalid_layout, "out", {"overlaps k", "memory of its own"});
  out = view_bhtd(v_at() + 10, batch, heads, q_len, value_dim);
  expect_refused(errc::invalid_layout, "out", {"overlaps v"});
  // Inside of q, not q itself.
  memory_.resize(5000);
  before_ = memory_;
  q = view_bhtd(memory_.data() + 2000, batch, heads, q_len, dim);
  k = view_bhtd(memory_.data(), batch, kv_heads, kv_len, dim);
  v = view_bhtd(memory_.data() + 1000, batch, kv_heads, kv_len, value_dim);
  out = view_bhtd(memory_.data() + 2000, batch, heads, q_len, value_dim);
  expect_refused(errc::invalid_layout, "out", {"overlaps q", "or exactly q's"});
}

TEST_F(AttentionErrors, OutMayBeQ) {
  v = view_bhtd(v_at(), batch, kv_heads, kv_len, dim);
  out = q;
  memory_.resize(5000);
  k = view_bhtd(memory_.data() + 1000, batch, kv_heads, kv_len, dim);
  v = view_bhtd(memory_.data() + 2000, batch, kv_heads, kv_len, dim);
  q = out = view_bhtd(memory_.data(), batch, heads, q_len, dim);
  expect_accepted();
}

// ---- tokens ----

TEST_F(AttentionErrors, TokenCounts) {
  tokens = {token_range(4), token_range(kv_len)};
  expect_refused(errc::invalid_shape, "tokens.q", {"4 tokens", "has 3"});
  tokens = {token_range(q_len), token_range(6)};
  expect_refused(errc::invalid_shape, "tokens.k", {"6 tokens", "has 5"});
  tokens = token_range(q_len);  // one description for both sides
  expect_refused(errc::invalid_shape, "tokens.k", {"3 tokens", "has 5"});
}

TEST_F(AttentionErrors, TokenBatch) {
  const std::vector<double> positions(3 * 5);
  tokens = {token_range(q_len), posenc::token_positions(positions.data(), kv_len, 3)};
  expect_refused(errc::invalid_shape, "tokens.k", {"3 batch rows", "1 or the tensor's 2"});
}

TEST_F(AttentionErrors, SeveralAxesWithoutOrder) {
  const std::vector<double> positions(3 * 5), order(5);
  const auto q_tokens = posenc::token_positions(positions.data(), q_len, 1, 3);
  const auto k_tokens = posenc::token_positions(positions.data(), kv_len, 1, 3);
  tokens = {q_tokens, k_tokens};
  expect_refused(errc::mismatch, "tokens.q", {"3 position axes and no order", "with_order"});
  tokens = {q_tokens.with_order(order.data()), k_tokens};
  expect_refused(errc::mismatch, "tokens.k", {"3 position axes and no order"});
  tokens = {q_tokens.with_order(order.data()), token_range(kv_len)};
  expect_refused(errc::mismatch, "tokens", {"3 position axes for queries and 1 for keys"});
}

TEST_F(AttentionErrors, DocumentsOnOneSide) {
  const std::vector<std::int64_t> ids(5);
  tokens = {token_range(q_len), token_range(kv_len).with_documents(ids.data())};
  expect_refused(errc::mismatch, "tokens", {"document ids for keys only", "both sides"});
  tokens = {token_range(q_len).with_documents(ids.data()), token_range(kv_len)};
  expect_refused(errc::mismatch, "tokens", {"document ids for queries only"});
}

TEST_F(AttentionErrors, CuSeqlens) {
  const std::vector<std::int32_t> q_bounds = {0, 1, 3}, k_bounds = {0, 2, 5};
  tokens = {token_range(q_len).with_cu_seqlens(q_bounds.data(), 2),
            token_range(kv_len).with_cu_seqlens(k_bounds.data(), 2)};
  expect_refused(errc::mismatch, "tokens.q", {"cu_seqlens", "2 batch rows"});
}

TEST_F(AttentionErrors, NotANumberInPositions) {
  std::vector<double> positions(5, 1.0);
  std::memcpy(&positions[4], &not_a_number, sizeof(double));
  tokens = {token_range(q_len), posenc::token_positions(positions.data(), kv_len)};
  expect_refused(errc::invalid_value, "tokens.k", {"position", "token 4 of row 0", "finite"});
  tokens = {token_range(q_len).with_order(positions.data() + 2), token_range(kv_len)};
  expect_refused(errc::invalid_value, "tokens.q", {"order", "token 2 of row 0", "finite"});
}

// ---- encodings ----

TEST_F(AttentionErrors, RopeWiderThanTheHead) {
  encoding = posenc::rope(posenc::frequency_ladder(10));
  expect_refused(errc::invalid_shape, "encoding", {"rope", "heads have 8", "10 and more"});
  encoding = posenc::rope(posenc::frequency_ladder(6), {.offset = 3});
  expect_refused(errc::invalid_shape, "encoding", {"offset 3", "heads have 8", "9 and more"});
}
TEST_F(AttentionErrors, RopeAxisThatTokensLack) {
  encoding = posenc::rope(posenc::frequency_ladder(4), {.frequency_axis = {0, 1}});
  expect_refused(errc::mismatch, "encoding", {"position axis 1", "tokens.q has 1"});
}
TEST_F(AttentionErrors, AlibiHeads) {
  encoding = posenc::alibi(3);
  expect_refused(errc::invalid_shape, "encoding", {"3 heads", "4 query heads"});
}
TEST_F(AttentionErrors, PerHeadCounts) {
  encoding = posenc::per_head(4, [](index_t) { return posenc::rope(posenc::frequency_ladder(8)); });
  expect_refused(errc::invalid_shape, "encoding", {"made for 4 heads", "2 key and value heads"});
}
TEST_F(AttentionErrors, FractionalPositionsForT5) {
  const std::vector<float> table(32 * 4), wrong(32 * 2);
  encoding = posenc::t5_bucket(wrong.data(), 2);
  expect_refused(errc::invalid_shape, "encoding", {"2 heads", "4 query heads"});
  encoding = posenc::t5_bucket(table.data(), 4);
  expect_accepted();
  before_ = memory_;
  lse_before_ = lse_;
  const std::vector<double> positions = {0, 1, 2, 2.5, 4};
  tokens = {token_range(q_len), posenc::token_positions(positions.data(), kv_len)};
  expect_refused(errc::invalid_value, "tokens.k", {"2.5", "token 3 of row 0", "whole numbers"});
  tokens = {token_range(q_len, 0.5), token_range(kv_len)};
  expect_refused(errc::invalid_value, "tokens.q", {"0.5", "whole numbers"});
}
TEST_F(AttentionErrors, QueryTemperature) {
  posenc::query_temperature temperature;
  temperature.length = 0;
  encoding = temperature;
  expect_refused(errc::invalid_value, "length", {"is 0", "> 0"});
  temperature = {};
  temperature.coefficient = not_a_number;
  encoding = temperature;
  expect_refused(errc::invalid_value, "coefficient", {"nan", "finite"});
  encoding = posenc::query_temperature{};
  tokens = {token_range(q_len, -5), token_range(kv_len)};
  expect_refused(errc::invalid_value, "tokens.q", {"position -5", "token 0"});
}

// ---- masks ----

TEST_F(AttentionErrors, MaskParameters) {
  mask = posenc::window_of(0);
  expect_refused(errc::invalid_value, "sliding_window.left", {"is -1", "0 and more"});
  posenc::chunk chunk;
  chunk.size = not_a_number;
  mask = posenc::causal{} & chunk;
  expect_refused(errc::invalid_value, "chunk.size", {"nan", "above 0"});
  const std::vector<unsigned char> cells(100);
  mask = posenc::dense_mask<unsigned char>(cells.data(), q_len, 4);
  expect_refused(errc::invalid_shape, "dense_mask", {"extent 4 for keys", "allowed: 5"});
  mask = posenc::dense_mask<unsigned char>(nullptr, q_len, kv_len);
  expect_refused(errc::invalid_layout, "dense_mask", {"null"});
}

// ---- options ----

TEST_F(AttentionErrors, Scale) {
  for (const double& x : {not_a_number, infinity, -infinity}) {
    options.scale = x;
    expect_refused(errc::invalid_value, "options.scale", {"allowed: finite"});
  }
  for (const double x : {1e39, -1e39}) {
    options.scale = x;
    expect_refused(errc::invalid_value, "options.scale", {"-1e18 to 1e18"});
  }
  options.scale = -2;
  expect_accepted();
}
TEST_F(AttentionErrors, Softcap) {
  for (const double& x : {not_a_number, infinity, -1.0, 1e39, 1e-39}) {
    options.softcap = x;
    expect_refused(errc::invalid_value, "options.softcap", {"above 0, or 0 for none"});
  }
}
TEST_F(AttentionErrors, Sinks) {
  std::vector<double> sinks(5, 0.5);
  options.sinks = sinks;
  expect_refused(errc::invalid_shape, "options.sinks", {"5 entries", "4 heads"});
  sinks.pop_back();
  std::memcpy(&sinks[3], &not_a_number, sizeof(double));
  options.sinks = sinks;
  expect_refused(errc::invalid_value, "options.sinks", {"head 3", "finite"});
  options.sinks = std::span<const float>(static_cast<const float*>(nullptr), 4);
  expect_refused(errc::invalid_layout, "options.sinks", {"null for 4 heads"});
}
TEST_F(AttentionErrors, Lse) {
  options.lse = posenc::lse_view(lse_.data(), batch, heads, 4);
  expect_refused(errc::invalid_shape, "options.lse", {"[2, 4, 4]", "[2, 4, 3]"});
  options.lse = posenc::lse_view(lse_.data(), 1, heads, q_len);
  expect_refused(errc::invalid_shape, "options.lse", {"[1, 4, 3]"});
  options.lse = posenc::lse_view(static_cast<double*>(nullptr), batch, heads, q_len);
  expect_refused(errc::invalid_layout, "options.lse", {"null for 24 rows"});
  options.lse = posenc::lse_view(lse_.data(), {batch, heads, q_len}, {heads * q_len, 0, 1});
  expect_refused(errc::invalid_layout, "options.lse", {"stride 0 over 4 entries of axis 1"});
}
TEST_F(AttentionErrors, LseOverOtherMemory) {
  const std::pair<float*, const char*> places[] = {{out_at() + 5, "out"}, {q_at(), "q"}, {k_at(), "k"}, {v_at(), "v"}};
  for (const auto& [at, name] : places) {
    SCOPED_TRACE(name);
    options.lse = posenc::lse_view(at, batch, heads, q_len);
    expect_refused(errc::invalid_layout, "options.lse", {"overlaps ", name, "memory of its own"});
    options.lse =
        posenc::lse_view(reinterpret_cast<double*>(reinterpret_cast<std::uintptr_t>(at) / 8 * 8), batch, heads, q_len);
    expect_refused(errc::invalid_layout, "options.lse", {"overlaps "});
  }
}
// A row of out and its lse side by side are different places.
TEST_F(AttentionErrors, LseBetweenTheRowsOfOut) {
  constexpr index_t row = value_dim + 1;
  static_assert(batch * heads * q_len * row <= out_size + 1000);
  out = tensor_view<float>(out_at(), {batch, heads, q_len, value_dim}, {heads * q_len * row, q_len * row, row, 1});
  options.lse = posenc::lse_view(out_at() + value_dim, {batch, heads, q_len}, {heads * q_len * row, q_len * row, row});
  expect_accepted();
}

// ---- what is empty is good ----

TEST_F(AttentionErrors, LseOfNoQueries) {
  q = view_bhtd(q_at(), batch, heads, 0, dim);
  out = view_bhtd(out_at(), batch, heads, 0, value_dim);
  tokens = posenc::token_pair(token_range(0), token_range(kv_len));
  options.lse = posenc::lse_view(lse_.data(), batch, heads, 0);  // all strides but one are 0
  expect_accepted();
}
TEST_F(AttentionErrors, EmptyBatch) {
  options = {};
  for (float* const p : {q_at(), static_cast<float*>(nullptr)}) {
    q = view_bhtd(p, 0, heads, q_len, dim);
    k = view_bhtd(p, 0, kv_heads, kv_len, dim);
    v = view_bhtd(p, 0, kv_heads, kv_len, value_dim);
    out = view_bhtd(p, 0, heads, q_len, value_dim);
    expect_accepted();
  }
  EXPECT_EQ(memory_, before_);
}

TEST_F(AttentionErrors, NoQueries) {
  options = {};
  q = view_bhtd(static_cast<float*>(nullptr), batch, heads, 0, dim);
  out = view_bhtd(static_cast<float*>(nullptr), batch, heads, 0, value_dim);
  tokens = {token_range(0), token_range(kv_len)};
  expect_accepted();
  EXPECT_EQ(memory_, before_);
}

TEST_F(AttentionErrors, NoKeys) {
  k = view_bhtd(static_cast<float*>(nullptr), batch, kv_heads, 0, dim);
  v = view_bhtd(static_cast<float*>(nullptr), batch, kv_heads, 0, value_dim);
  tokens = {token_range(q_len), token_range(0)};
  expect_accepted();
  for (index_t i = 0; i < out_size; ++i) EXPECT_EQ(out_at()[i], 0.0f);
  for (const float& x : lse_) EXPECT_TRUE(posenc::detail::is_minus_infinity(x));
  const std::vector<float> sinks = {1, 2, 3, 4};
  options.sinks = sinks;
  expect_accepted();
  for (index_t b = 0; b < batch; ++b)
    for (index_t h = 0; h < heads; ++h)
      for (index_t i = 0; i < q_len; ++i)
        EXPECT_EQ(lse_[static_cast<std::size_t>((b * heads + h) * q_len + i)], sinks[static_cast<std::size_t>(h)]);
}

TEST_F(AttentionErrors, NoTokensOnEitherSide) {
  options = {};
  q = view_bhtd(static_cast<float*>(nullptr), batch, heads, 0, dim);
  k = view_bhtd(static_cast<float*>(nullptr), batch, kv_heads, 0, dim);
  v = view_bhtd(static_cast<float*>(nullptr), batch, kv_heads, 0, value_dim);
  out = view_bhtd(static_cast<float*>(nullptr), batch, heads, 0, value_dim);
  const std::vector<std::int64_t> none;
  for (const posenc::token_view& t : {token_range(0), token_range(0).with_documents(none.data())}) {
    tokens = t;
    encoding = posenc::rope(posenc::frequency_ladder(8));
    expect_accepted();
  }
}

// ---- column-major data that is meant as tokens x dim ----

// Tokens x dim in Eigen's default order is the most common slip: then all four matrices agree with each other, and only
// the description of the tokens shows it.
TEST(AttentionErrorsEigen, ColumnMajorGetsAHint) {
  const index_t n = 6, d = 4;
  Eigen::MatrixXf q = Eigen::MatrixXf::Ones(n, d), k = q, v = q, out = q;
  const posenc::maybe_error all = posenc::check(q, k, v, out, token_range(n), posenc::nope{}, posenc::causal{});
  ASSERT_TRUE(all.has_value());
  EXPECT_NE(std::string(all->what()).find("column-major"), std::string::npos) << all->what();

  const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> row_q = q, row_v = v;
  for (const posenc::maybe_error& e :
       {posenc::check(row_q, k, row_v, out, token_range(n), posenc::nope{}, posenc::causal{}),
        posenc::check(q, row_q, row_v, out, token_range(n), posenc::nope{}, posenc::causal{})}) {
    ASSERT_TRUE(e.has_value());
    EXPECT_EQ(e->code(), errc::invalid_shape);
    EXPECT_NE(std::string(e->what()).find("column-major"), std::string::npos) << e->what();
  }
}

}  // namespace
