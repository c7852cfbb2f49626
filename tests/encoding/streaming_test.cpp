// SPDX-License-Identifier: Apache-2.0
// Streaming stores give the same bits as others, aligned or not.
#include <gtest/gtest.h>
#include <posenc/encoding/cos_sin.hpp>
#include <posenc/encoding/cos_sin_tables.hpp>
#include <posenc/encoding/rotate.hpp>
#include <posenc/encoding/xpos.hpp>

#include <new>
#include <vector>

#include "encoding/rope_support.hpp"

namespace {

using namespace rope_test;
using posenc::store_mode;
using posenc::token_range;
using posenc::view_thd;

/// Memory from an address `skip` elements behind a cache line.
template <class T>
class aligned_memory {
 public:
  aligned_memory(index_t size, index_t skip) : data_(static_cast<T*>(allocate(size + skip))), from_(data_ + skip) {
    for (index_t i = 0; i < size + skip; ++i) new (data_ + i) T(static_cast<float>(-77));
  }
  ~aligned_memory() { ::operator delete(static_cast<void*>(data_), line); }
  aligned_memory(const aligned_memory&) = delete;
  aligned_memory& operator=(const aligned_memory&) = delete;
  T* data() const { return from_; }

 private:
  static constexpr std::align_val_t line{64};
  static void* allocate(index_t n) { return ::operator new(static_cast<std::size_t>(n) * sizeof(T), line); }
  T* data_;
  T* from_;
};

// The encodings that have the choice: a changed signature would lose it without a word.
template <class E>
constexpr bool streams = posenc::detail::has_streaming_heads<E, float, posenc::half, posenc::bfloat16> &&
                         posenc::detail::has_streaming_heads<E, double, double, double>;
static_assert(streams<rope> && streams<posenc::xpos> && streams<posenc::cos_sin_tables<float>>);

template <class T>
struct Streaming : testing::Test {};
TYPED_TEST_SUITE(Streaming, element_types, element_names);

TYPED_TEST(Streaming, GivesTheSameBits) {
  constexpr index_t tokens = 5, heads = 3;
  for (const pairing how : pairings)
    for (const index_t rotary : {index_t{64}, index_t{128}, index_t{40}})
      for (const index_t rest : {index_t{0}, index_t{64}, index_t{3}})
        for (const index_t skip : {index_t{0}, index_t{1}}) {
          const index_t dim = rotary + rest, size = tokens * heads * dim;
          const rope encoding(ladder_of(rotary, 1.25), {.pairing = how});
          std::vector<TypeParam> in = as_elements<TypeParam>(pattern(size));
          const aligned_memory<TypeParam> plain(size, skip), streamed(size, skip), q(size, skip), k(size, skip);
          const auto view = view_thd(in.data(), tokens, heads, dim);
          const auto of = [&](const auto& memory) { return view_thd(memory.data(), tokens, heads, dim); };
          posenc::rotate(view, of(plain), token_range(tokens, 9), encoding);
          posenc::rotate(view, of(streamed), token_range(tokens, 9), encoding, {.store = store_mode::streaming});
          posenc::rotate_qk(view, view, of(q), of(k), token_range(tokens, 9), encoding,
                            {.store = store_mode::streaming});
          for (index_t i = 0; i < size; ++i) {
            ASSERT_TRUE(same_bits(plain.data()[i], streamed.data()[i])) << i;
            ASSERT_TRUE(same_bits(plain.data()[i], q.data()[i])) << i;
            ASSERT_TRUE(same_bits(plain.data()[i], k.data()[i])) << i;
          }
          // In place nothing streams, and nothing changes.
          std::vector<TypeParam> same = in;
          posenc::rotate(view_thd(same.data(), tokens, heads, dim), token_range(tokens, 9), encoding,
                         {.store = store_mode::streaming});
          for (index_t i = 0; i < size; ++i)
            ASSERT_TRUE(same_bits(plain.data()[i], same[static_cast<std::size_t>(i)])) << i;
        }
}

// Tables of cosines and sines: positions that count up, and others.
TYPED_TEST(Streaming, WritesTheSameTables) {
  const numbers positions(150, 12.5);
  for (const auto form : {posenc::cos_sin_form::one_a_pair, posenc::cos_sin_form::twice_in_halves,
                          posenc::cos_sin_form::twice_neighbouring})
    for (const posenc::token_view& tokens :
         {posenc::token_view(token_range(150, 9)), posenc::token_view(posenc::token_positions(positions.data(), 150))})
      for (const index_t pairs : {index_t{64}, index_t{40}})
        for (const index_t skip : {index_t{0}, index_t{1}}) {
          const rope encoding(ladder_of(2 * pairs, 1.25));
          const index_t stride = 2 * pairs + 64, size = tokens.count() * stride;
          const aligned_memory<TypeParam> cos(size, skip), sin(size, skip), cos2(size, skip), sin2(size, skip);
          posenc::write_cos_sin(encoding, tokens, cos.data(), sin.data(), {.form = form, .row_stride = stride});
          posenc::write_cos_sin(encoding, tokens, cos2.data(), sin2.data(),
                                {.form = form, .row_stride = stride, .store = store_mode::streaming});
          for (index_t i = 0; i < size; ++i) {
            ASSERT_TRUE(same_bits(cos.data()[i], cos2.data()[i])) << i;
            ASSERT_TRUE(same_bits(sin.data()[i], sin2.data()[i])) << i;
          }
        }
}

// Types mix out of place.
TEST(StreamingTypes, Mix) {
  const rope encoding(ladder_of(64));
  std::vector<posenc::bfloat16> in = as_elements<posenc::bfloat16>(pattern(4 * 64));
  const aligned_memory<float> a(4 * 64, 0), b(4 * 64, 0);
  const auto view = view_thd(in.data(), 4, 1, 64);
  posenc::rotate(view, view_thd(a.data(), 4, 1, 64), token_range(4), encoding);
  posenc::rotate(view, view_thd(b.data(), 4, 1, 64), token_range(4), encoding, {.store = store_mode::streaming});
  for (index_t i = 0; i < 4 * 64; ++i) EXPECT_EQ(a.data()[i], b.data()[i]);
}

}  // namespace
