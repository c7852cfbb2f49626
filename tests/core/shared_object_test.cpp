// SPDX-License-Identifier: Apache-2.0
#include "posenc/core/shared_object.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

namespace {

using posenc::detail::shared_object;

struct counted {
  static inline int alive = 0;
  int value;
  explicit counted(int v) : value(v) { ++alive; }
  counted(const counted&) = delete;
  counted& operator=(const counted&) = delete;
  ~counted() { --alive; }
};

int value_of(const shared_object& object) { return static_cast<const counted*>(object.get())->value; }

TEST(SharedObject, LivesAsLongAsItsLastCopy) {
  EXPECT_EQ(shared_object().get(), nullptr);
  {
    shared_object a = shared_object::make<counted>(3);
    EXPECT_EQ(counted::alive, 1);
    shared_object b(a), c;
    c = b;
    EXPECT_EQ(a.get(), c.get());
    a = shared_object();
    b = shared_object::make<counted>(4);
    EXPECT_EQ(counted::alive, 2);
    EXPECT_EQ(value_of(c), 3);
    shared_object d(std::move(c));
    EXPECT_EQ(c.get(), nullptr);  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(value_of(d), 3);
    shared_object& same = d;
    d = same;
    EXPECT_EQ(value_of(d), 3);
    d = std::move(b);
    EXPECT_EQ(value_of(d), 4);
    EXPECT_EQ(counted::alive, 1);
  }
  EXPECT_EQ(counted::alive, 0);
}

TEST(SharedObject, IsCopiedAndDroppedOnAnyThread) {
  {
    const shared_object object = shared_object::make<counted>(5);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 10000; ++i) {
          const shared_object copy(object);
          if (value_of(copy) != 5) std::abort();
        }
      });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(counted::alive, 1);
  }
  EXPECT_EQ(counted::alive, 0);
}

}  // namespace
