// SPDX-License-Identifier: Apache-2.0
// The one file of this program that replaces operator new.
#include "support/allocations.hpp"

#include <gtest/gtest.h>
#include <posenc/core/error.hpp>
#include <posenc/core/tensor_view.hpp>
#include <posenc/core/tokens.hpp>

#include <memory>
#include <string>
#include <vector>

namespace {

using posenc::errc;
using posenc::index_t;
using posenc_test::allocations_of;

TEST(Allocations, TheCounterCounts) {
  EXPECT_EQ(allocations_of([] {}), 0);
  std::unique_ptr<int> one;
  // Compilers may leave out an allocation that nobody could notice: a volatile pointer notices.
  int* volatile seen = nullptr;
  EXPECT_EQ(allocations_of([&] {
              one = std::make_unique<int>(1);
              seen = one.get();
            }),
            1);
  struct alignas(64) wide {
    char bytes[64];
  };
  std::unique_ptr<wide> two;
  wide* volatile seen_wide = nullptr;
  EXPECT_EQ(allocations_of([&] {
              two = std::make_unique<wide>();
              seen_wide = two.get();
            }),
            1);
  EXPECT_TRUE(seen != nullptr && seen_wide != nullptr);
}

TEST(Allocations, ErrorsDoNotAllocate) {
  const std::string long_text(3000, 'x');
  posenc::maybe_error kept;
  EXPECT_EQ(allocations_of([&] {
              kept = posenc::make_error(errc::invalid_value, long_text.c_str(), "is %g; allowed: %s", 1.5, "more");
              const posenc::error copy = *kept;
              kept = copy;
            }),
            0);
  EXPECT_TRUE(kept.has_value());
}

TEST(Allocations, DescribingAndCheckingTokensDoesNotAllocate) {
  std::vector<double> positions(3000, 1.0);
  const std::vector<std::int64_t> documents(3000, 0), bounds = {0, 1000, 3000};
  positions.back() = 1e20;
  posenc::maybe_error good, bad;
  EXPECT_EQ(allocations_of([&] {
              const posenc::token_view tokens = posenc::token_range(3000, 5)
                                                    .with_order(documents.data())
                                                    .with_documents(documents.data())
                                                    .with_cu_seqlens(bounds.data(), 2);
              good = posenc::detail::check_tokens(tokens, 1, 3000, "tokens");
              bad = posenc::detail::check_tokens(posenc::token_positions(positions.data(), 3000), 1, 3000, "tokens");
            }),
            0);
  EXPECT_FALSE(good.has_value());
  EXPECT_TRUE(bad.has_value());
}

TEST(Allocations, OverlapsDoesNotAllocate) {
  std::vector<float> data(1000);
  const auto a = posenc::view_bthd(data.data(), 2, 5, 6, 7);
  const posenc::tensor_view<float> b(data.data() + 7, {2, 3, 5, 7}, {210, 14, 42, 1});
  bool met = true;
  EXPECT_EQ(allocations_of([&] { met = posenc::detail::overlaps(a, b); }), 0);
  EXPECT_TRUE(met);
}

}  // namespace
