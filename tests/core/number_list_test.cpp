// SPDX-License-Identifier: Apache-2.0
#include "posenc/core/number_list.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace {

using posenc::detail::number_list;

TEST(NumberList, IsZeroAndAligned) {
  const number_list<double> none;
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.size(), 0u);
  const number_list<double> zeros(1000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(zeros.data()) % 64, 0u);
  for (const double x : zeros) ASSERT_EQ(x, 0);
  EXPECT_EQ(zeros.size(), 1000u);
  EXPECT_EQ(zeros.view().size(), 1000u);
  EXPECT_EQ(zeros.view().data(), zeros.data());
}

TEST(NumberList, KeepsItsNumbersWhileItGrows) {
  number_list<std::int64_t> list;
  for (std::int64_t i = 0; i < 1000; ++i) list.push_back(3 * i);
  ASSERT_EQ(list.size(), 1000u);
  for (std::size_t i = 0; i < 1000; ++i) ASSERT_EQ(list[i], static_cast<std::int64_t>(3 * i));
  EXPECT_EQ(list.back(), 2997);
  std::int64_t* const more = list.extend(500);
  EXPECT_EQ(more, list.data() + 1000);
  for (std::size_t i = 1000; i < 1500; ++i)
    ASSERT_EQ(list[i], 0) << "what is added is zero, in reserved memory as well";
}

TEST(NumberList, AnElementOfItselfMayBeAdded) {
  number_list<int> list;
  list.push_back(7);
  for (int i = 0; i < 100; ++i) list.push_back(list[0]);
  for (const int x : list) ASSERT_EQ(x, 7);
}

TEST(NumberList, CopiesAreIndependentAndMovesLeaveNothing) {
  const int numbers[] = {1, 2, 3};
  number_list<int> a(numbers, 3), b(a);
  b[0] = 9;
  EXPECT_EQ(a[0], 1);
  a = b;
  EXPECT_EQ(a[0], 9);
  const int* const at = b.data();
  number_list<int> c(std::move(b));
  EXPECT_EQ(c.data(), at);
  EXPECT_TRUE(b.empty());  // NOLINT(bugprone-use-after-move)
  number_list<int>& same = c;
  c = same;
  EXPECT_EQ(c.size(), 3u);
  EXPECT_EQ(c[2], 3);
  c = number_list<int>();
  EXPECT_TRUE(c.empty());
  static_assert(std::is_nothrow_move_constructible_v<number_list<int>>, "lists of lists grow by moving");
}

}  // namespace
