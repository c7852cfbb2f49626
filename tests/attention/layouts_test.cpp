// SPDX-License-Identifier: Apache-2.0
// The same numbers in every layout that callers have give the same bits.
#include <posenc/attention/attention.hpp>
#include <posenc/encoding/any_encoding.hpp>
#include <posenc/encoding/rope.hpp>
#include <posenc/ladder/frequency_ladder.hpp>

#include "attention/attention_support.hpp"
#include "attention/mask_support.hpp"

/// A user's own matrix type, which attention takes by its view_traits.
namespace toy {
struct heads_in_rows {
  std::vector<float> data;
  posenc::index_t heads, tokens, dim;
};
}  // namespace toy

template <>
struct posenc::view_traits<toy::heads_in_rows> {
  static tensor_view<float> view(toy::heads_in_rows& x) noexcept {
    return view_bthd(x.data.data(), 1, x.tokens, x.heads, x.dim);
  }
};
template <>
struct posenc::view_traits<const toy::heads_in_rows> {
  static tensor_view<const float> view(const toy::heads_in_rows& x) noexcept {
    return view_bthd(x.data.data(), 1, x.tokens, x.heads, x.dim);
  }
};

namespace {

using attention_test::buffer;
using attention_test::index_t;
using attention_test::make_buffer;
using attention_test::random_buffer;
using posenc::any_encoding;
using posenc::any_mask;
using posenc::tensor_view;
using posenc::token_range;

template <class T, std::size_t Rank>
struct mdspan_toy {
  using element_type = T;
  T* data;
  std::array<index_t, Rank> extents, strides;
  static constexpr std::size_t rank() { return Rank; }
  constexpr index_t extent(std::size_t i) const { return extents[i]; }
  constexpr index_t stride(std::size_t i) const { return strides[i]; }
  constexpr T* data_handle() const { return data; }
};

class Layouts : public testing::Test {
 protected:
  static constexpr index_t tokens = 37, dim = 10;
  const any_encoding encoding = posenc::rope(posenc::frequency_ladder(dim));
  const any_mask mask = posenc::causal{};

  template <class Q, class K, class V, class Out>
  void attend(const Q& q, const K& k, const V& v, Out&& out) {
    posenc::attention(q, k, v, out, token_range(tokens), encoding, mask);
  }
  buffer<float> expected(const buffer<float>& q, const buffer<float>& k, const buffer<float>& v) {
    auto out = make_buffer<float>(q.view.batch(), q.view.heads(), tokens, v.view.dim());
    attend(q.view, k.view, v.view, out.view);
    return out;
  }
  attention_test::random_engine random_{1};
};

// One buffer [batch, tokens, (q heads + k heads + v heads) x dim], and the output in another row of the same allocation.
TEST_F(Layouts, FusedProjection) {
  constexpr index_t batch = 2, heads = 4, kv_heads = 2, width = (heads + 2 * kv_heads) * dim + 3;
  const auto q = random_buffer<float>(random_, batch, heads, tokens, dim),
             k = random_buffer<float>(random_, batch, kv_heads, tokens, dim),
             v = random_buffer<float>(random_, batch, kv_heads, tokens, dim);
  std::vector<float> fused(static_cast<std::size_t>(batch * tokens * width), 77.0f);
  const auto part = [&](index_t first, index_t count) {
    return posenc::view_fused(fused.data(), batch, tokens, width, first * dim, count, dim);
  };
  const auto copy = [](const buffer<float>& from, const tensor_view<float>& to) {
    from.for_each([&](index_t b, index_t h, index_t t, index_t d) { to(b, h, t, d) = from.view(b, h, t, d); });
  };
  copy(q, part(0, heads));
  copy(k, part(heads, kv_heads));
  copy(v, part(heads + kv_heads, kv_heads));
  const auto wanted = expected(q, k, v);
  const auto out = make_buffer<float>(batch, heads, tokens, dim);
  attend(part(0, heads), part(heads, kv_heads), part(heads + kv_heads, kv_heads), out.view);
  EXPECT_TRUE(attention_test::same_elements(wanted, out));
  // In place of the queries: k and v stay as they are, and so does what fills up the rows.
  const std::vector<float> before = fused;
  attend(part(0, heads), part(heads, kv_heads), part(heads + kv_heads, kv_heads), part(0, heads));
  for (index_t b = 0; b < batch; ++b)
    for (index_t t = 0; t < tokens; ++t)
      for (index_t c = 0; c < width; ++c) {
        const auto i = static_cast<std::size_t>((b * tokens + t) * width + c);
        EXPECT_EQ(fused[i], c < heads * dim ? wanted.view(b, c / dim, t, c % dim) : before[i]);
      }
}

TEST_F(Layouts, EigenInBothOrders) {
  using row_major = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const auto q = random_buffer<float>(random_, 1, 1, tokens, dim), k = random_buffer<float>(random_, 1, 1, tokens, dim),
             v = random_buffer<float>(random_, 1, 1, tokens, dim);
  const auto wanted = expected(q, k, v);
  const Eigen::Map<const row_major> qr(q.memory.data(), tokens, dim), kr(k.memory.data(), tokens, dim),
      vr(v.memory.data(), tokens, dim);
  row_major out = row_major::Zero(tokens, dim);
  attend(qr, kr, vr, out);
  const Eigen::Map<const row_major> w(wanted.memory.data(), tokens, dim);
  EXPECT_EQ(out, w);
  // Column-major is dim x tokens.
  const Eigen::MatrixXf qc = qr.transpose(), kc = kr.transpose(), vc = vr.transpose();
  Eigen::MatrixXf outc(dim, tokens);
  attend(qc, kc, vc, outc);
  EXPECT_EQ(outc.transpose(), w);
  // Blocks of wider matrices, in a mix of orders; the output is a temporary block.
  row_major wide = row_major::Constant(tokens + 4, 3 * dim, 5.0f);
  wide.block(2, dim, tokens, dim) = kr;
  attend(qc, wide.block(2, dim, tokens, dim), vr, wide.block(1, 2 * dim, tokens, dim));
  EXPECT_EQ(wide.block(1, 2 * dim, tokens, dim), w);
  EXPECT_EQ(wide.leftCols(dim), row_major::Constant(tokens + 4, dim, 5.0f));
}

TEST_F(Layouts, MdspanLikeObjects) {
  constexpr index_t heads = 3;
  const auto q = random_buffer<float>(random_, 1, heads, tokens, dim),
             k = random_buffer<float>(random_, 1, 1, tokens, dim), v = random_buffer<float>(random_, 1, 1, tokens, dim);
  const auto wanted = expected(q, k, v);
  const auto out = make_buffer<float>(1, heads, tokens, dim);
  const mdspan_toy<const float, 3> q3{q.memory.data(), {heads, tokens, dim}, {tokens * dim, dim, 1}};
  const mdspan_toy<const float, 2> k2{k.memory.data(), {tokens, dim}, {dim, 1}};
  const mdspan_toy<float, 4> v4{v.view.data_handle(), {1, 1, tokens, dim}, {0, 0, dim, 1}};
  const mdspan_toy<float, 3> o3{out.view.data_handle(), {heads, tokens, dim}, {tokens * dim, dim, 1}};
  attend(q3, k2, v4, o3);
  EXPECT_TRUE(attention_test::same_elements(wanted, out));
}

TEST_F(Layouts, UsersOwnType) {
  const auto q = random_buffer<float>(random_, 1, 2, tokens, dim), k = random_buffer<float>(random_, 1, 2, tokens, dim),
             v = random_buffer<float>(random_, 1, 2, tokens, dim);
  const auto wanted = expected(q, k, v);
  const auto own = [](const buffer<float>& from) {
    toy::heads_in_rows x{std::vector<float>(static_cast<std::size_t>(2 * tokens * dim)), 2, tokens, dim};
    const auto to = posenc::as_view(x);
    from.for_each([&](index_t b, index_t h, index_t t, index_t d) { to(b, h, t, d) = from.view(b, h, t, d); });
    return x;
  };
  const toy::heads_in_rows oq = own(q), ok = own(k), ov = own(v);
  toy::heads_in_rows out = own(q);
  attend(oq, ok, ov, out);
  wanted.for_each([&](index_t b, index_t h, index_t t, index_t d) {
    EXPECT_EQ(posenc::as_view(out)(b, h, t, d), wanted.view(b, h, t, d));
  });
}

// Stride 0 shares keys and values between batch rows or heads without a copy.
TEST_F(Layouts, SharedByStrideZero) {
  const auto q = random_buffer<float>(random_, 3, 4, tokens, dim),
             one = random_buffer<float>(random_, 1, 1, tokens, dim), copies = make_buffer<float>(3, 2, tokens, dim),
             out = make_buffer<float>(3, 4, tokens, dim);
  copies.for_each([&](index_t b, index_t h, index_t t, index_t d) { copies.view(b, h, t, d) = one.view(0, 0, t, d); });
  const tensor_view<const float> shared(one.memory.data(), {3, 2, tokens, dim}, {0, 0, dim, 1});
  attend(q.view, shared, shared, out.view);
  EXPECT_TRUE(attention_test::same_elements(expected(q, copies, copies), out));
  // All queries are one.
  const tensor_view<const float> same_query(q.memory.data(), {1, 1, tokens, dim}, {0, 0, 0, 1});
  const auto repeated = make_buffer<float>(1, 1, tokens, dim), a = make_buffer<float>(1, 1, tokens, dim);
  repeated.for_each([&](index_t, index_t, index_t t, index_t d) { repeated.view(0, 0, t, d) = q.view(0, 0, 0, d); });
  attend(same_query, one.view, one.view, a.view);
  EXPECT_TRUE(attention_test::same_elements(expected(repeated, one, one), a));
}

TEST_F(Layouts, SixteenBitNumbersInIntegerBuffers) {
  const auto q = random_buffer<posenc::half>(random_, 1, 1, tokens, dim);
  const auto k = random_buffer<posenc::bfloat16>(random_, 1, 1, tokens, dim);
  const auto a = make_buffer<posenc::half>(1, 1, tokens, dim);
  attend(q.view, k.view, k.view, a.view);
  const auto n = static_cast<std::size_t>(tokens * dim);
  std::vector<std::uint16_t> q_bits(n), k_bits(n), out(n);
  std::memcpy(q_bits.data(), q.memory.data(), 2 * n);
  std::memcpy(k_bits.data(), k.memory.data(), 2 * n);
  const std::uint16_t *const q_in = q_bits.data(), *const k_in = k_bits.data();
  const auto view = [](auto* p) { return posenc::view_bhtd(p, 1, 1, tokens, dim); };
  attend(view(posenc::as_half(q_in)), view(posenc::as_bfloat16(k_in)), view(posenc::as_bfloat16(k_in)),
         view(posenc::as_half(out.data())));
  EXPECT_EQ(std::memcmp(out.data(), a.memory.data(), 2 * n), 0);
}

}  // namespace
