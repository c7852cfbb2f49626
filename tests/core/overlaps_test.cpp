// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <posenc/core/tensor_view.hpp>

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

// `overlaps` decides whether an output may be written while an input is read, so it may never miss a common element; and
// where both views have the same strides, as the parts of one fused buffer do, it must be exact.
namespace {

using posenc::index_t;
using posenc::tensor_view;

/// The addresses of all bytes of the elements.
template <class T>
std::set<const char*> bytes_of(const tensor_view<T>& v) {
  std::set<const char*> all;
  for (index_t b = 0; b < v.extent(0); ++b)
    for (index_t h = 0; h < v.extent(1); ++h)
      for (index_t t = 0; t < v.extent(2); ++t)
        for (index_t d = 0; d < v.extent(3); ++d)
          for (std::size_t byte = 0; byte < sizeof(T); ++byte)
            all.insert(reinterpret_cast<const char*>(&v(b, h, t, d)) + byte);
  return all;
}

template <class A, class B>
bool truly_meet(const tensor_view<A>& a, const tensor_view<B>& b) {
  const auto of_a = bytes_of(a);
  for (const char* p : bytes_of(b))
    if (of_a.count(p) != 0) return true;
  return false;
}

template <class T>
std::string describe(const char* name, const tensor_view<T>& v, const T* base) {
  std::string text = std::string(name) + " at " + std::to_string(v.data_handle() - base) + ", extents";
  for (std::size_t i = 0; i < 4; ++i) text += " " + std::to_string(v.extent(i));
  text += ", strides";
  for (std::size_t i = 0; i < 4; ++i) text += " " + std::to_string(v.stride(i));
  return text + "\n";
}

class OverlapsRandom : public testing::Test {
 protected:
  static constexpr index_t middle = 4096;
  std::vector<float> memory_ = std::vector<float>(2 * middle);
  std::mt19937 random_{20240607};

  index_t pick(index_t low, index_t high) { return std::uniform_int_distribution<index_t>(low, high)(random_); }

  tensor_view<float> view(const std::array<index_t, 4>& extents, const std::array<index_t, 4>& strides, index_t at) {
    return {memory_.data() + middle + at, extents, strides};
  }
  std::array<index_t, 4> extents() { return {pick(0, 8) == 0 ? 0 : pick(1, 3), pick(1, 4), pick(1, 5), pick(1, 4)}; }
};

TEST_F(OverlapsRandom, ExactForEqualStrides) {
  int met = 0, apart = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::array<index_t, 4> strides{pick(0, 40), pick(0, 25), pick(0, 12), 1};
    const auto a = view(extents(), strides, 0), b = view(extents(), strides, pick(-90, 90));
    const bool truth = truly_meet(a, b);
    ++(truth ? met : apart);
    ASSERT_EQ(posenc::detail::overlaps(a, b), truth)
        << describe("a", a, memory_.data() + middle) << describe("b", b, memory_.data() + middle);
    ASSERT_EQ(posenc::detail::overlaps(b, a), truth)
        << "the other way round\n"
        << describe("a", a, memory_.data() + middle) << describe("b", b, memory_.data() + middle);
  }
  EXPECT_GT(met, 2000);
  EXPECT_GT(apart, 2000);
}

// Strides of which none is a multiple of the others, such as 7 and 5: an element of one lattice can be reached by many
// steps forward on one axis and many back on another.
TEST_F(OverlapsRandom, ExactForStridesThatDoNotNest) {
  const auto a = view({1, 6, 6, 1}, {0, 7, 5, 1}, 0);
  const auto b = view({1, 6, 6, 1}, {0, 7, 5, 1}, 1);  // 7 * 3 = 5 * 4 + 1, 5 * 3 = 7 * 2 + 1
  ASSERT_TRUE(truly_meet(a, b));
  EXPECT_TRUE(posenc::detail::overlaps(a, b));
  for (int i = 0; i < 5000; ++i) {
    const std::array<index_t, 4> strides{pick(1, 17), pick(1, 17), pick(1, 17), 1};
    const auto c = view({pick(1, 6), pick(1, 6), pick(1, 6), pick(1, 2)}, strides, 0);
    const auto d = view({pick(1, 6), pick(1, 6), pick(1, 6), pick(1, 2)}, strides, pick(-200, 200));
    ASSERT_EQ(posenc::detail::overlaps(c, d), truly_meet(c, d))
        << describe("a", c, memory_.data() + middle) << describe("b", d, memory_.data() + middle);
  }
}

TEST_F(OverlapsRandom, NeverMissesForOtherStrides) {
  int apart = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::array<index_t, 4> one{pick(-40, 40), pick(-25, 25), pick(-12, 12), 1};
    const std::array<index_t, 4> two{pick(-40, 40), pick(-25, 25), pick(-12, 12), 1};
    const auto a = view(extents(), one, 0), b = view(extents(), two, pick(-200, 200));
    const bool said = posenc::detail::overlaps(a, b);
    if (!said) {
      ASSERT_FALSE(truly_meet(a, b)) << describe("a", a, memory_.data() + middle)
                                     << describe("b", b, memory_.data() + middle);
      ++apart;
    }
  }
  EXPECT_GT(apart, 2000) << "views that lie far apart must not be refused";
}

TEST(Overlaps, PartsOfAFusedBufferAreApart) {
  std::vector<float> buffer(2 * 5 * 24);
  const auto part = [&](index_t first, index_t heads) {
    return posenc::view_fused(buffer.data(), 2, 5, 24, first, heads, 3);
  };
  const auto q = part(0, 4), k = part(12, 2), v = part(18, 2);
  EXPECT_FALSE(posenc::detail::overlaps(q, k));
  EXPECT_FALSE(posenc::detail::overlaps(v, q));
  EXPECT_FALSE(posenc::detail::overlaps(v, k));
  EXPECT_TRUE(posenc::detail::overlaps(q, q));
  EXPECT_TRUE(posenc::detail::overlaps(part(11, 2), q));
}

TEST(Overlaps, OneStepFromEachOther) {
  std::vector<double> buffer(64);
  const auto a = posenc::view_bhtd(buffer.data(), 1, 2, 3, 4);
  EXPECT_FALSE(posenc::detail::overlaps(a, posenc::view_bhtd(buffer.data() + 24, 1, 2, 3, 4)));
  EXPECT_TRUE(posenc::detail::overlaps(a, posenc::view_bhtd(buffer.data() + 23, 1, 2, 3, 4)));
}

// Different element types over one buffer, at addresses that are no multiple of the larger one.
TEST(Overlaps, OtherElementTypes) {
  alignas(8) char buffer[128] = {};
  const auto at = [&](index_t byte) { return posenc::view_bhtd(reinterpret_cast<double*>(buffer + byte), 1, 1, 1, 4); };
  const auto small = posenc::view_bhtd(reinterpret_cast<float*>(buffer + 32), 1, 1, 1, 4);
  EXPECT_FALSE(posenc::detail::overlaps(at(0), small));
  EXPECT_TRUE(posenc::detail::overlaps(at(8), small));
  EXPECT_TRUE(posenc::detail::overlaps(at(40), small));
  EXPECT_FALSE(posenc::detail::overlaps(at(48), small));
  EXPECT_FALSE(posenc::detail::overlaps(small, at(48)));
}

TEST(Overlaps, EmptyViewsMeetNothing) {
  std::vector<float> buffer(24);
  const auto a = posenc::view_bhtd(buffer.data(), 1, 2, 3, 4);
  const auto none = posenc::view_bhtd(buffer.data(), 1, 2, 0, 4);
  EXPECT_FALSE(posenc::detail::overlaps(a, none));
  EXPECT_FALSE(posenc::detail::overlaps(none, a));
  EXPECT_FALSE(posenc::detail::overlaps(tensor_view<float>(), a));
}

}  // namespace
