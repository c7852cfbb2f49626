// SPDX-License-Identifier: Apache-2.0
// Caches and block tables at the ends of what they allow, and encodings that do not allow every position.
#include <posenc/posenc.hpp>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/expect_error.hpp"

namespace {

using posenc::index_t;
using posenc::token_range;

constexpr index_t dim = 16;

class CacheLimits : public testing::Test {
 protected:
  std::vector<float> numbers = std::vector<float>(200 * dim, 0.5f), out = std::vector<float>(200 * dim);

  auto rows(index_t n) const { return posenc::view_bhtd(numbers.data(), 1, 1, n, dim); }
  auto result(index_t n) { return posenc::view_bhtd(out.data(), 1, 1, n, dim); }
};

/// A table of 128 positions: asking it for another one ends the program.
struct short_table {
  using acts_on = posenc::places<posenc::on_queries_keys>;
  double factor = 1;

  index_t rotation_size(posenc::rotation_shape) const { return 1; }
  template <class Real>
  void prepare_rotation(posenc::rotation_shape, posenc::position_span position, posenc::rotation_use, Real* row) const {
    if (position[0] > 127) std::abort();
    row[0] = static_cast<Real>(1 + factor * position[0]);
  }
  template <class Real>
  void apply_rotation(posenc::rotation_shape shape, const Real* row, index_t, Real* x) const {
    for (index_t d = 0; d < shape.head_dim; ++d) x[d] *= row[0];
  }
  posenc::maybe_error check(const posenc::encoding_use& use) const noexcept {
    if (use.k_tokens == nullptr) return {};
    for (index_t t = 0; t < use.k_tokens->count(); ++t)
      if (use.k_tokens->position(0, 0, t) > 127)
        return posenc::make_error(posenc::errc::out_of_range, "position", "is beyond the table");
    return {};
  }
};

TEST_F(CacheLimits, AsksAnEncodingForNoPositionThatItRefuses) {
  posenc::kv_cache<float> cache({.kv_heads = 1, .head_dim = dim});
  cache.append(rows(64), rows(64), token_range(64), short_table{});
  posenc::attention(rows(1), cache, result(1), token_range(1, 63), short_table{}, posenc::causal{});
  // What it does at the positions that are left still tells it from others.
  EXPECT_TRUE(cache.check_fingerprint(short_table{.factor = 2}).has_value());
  EXPECT_TRUE(cache.check_fingerprint(posenc::rope{posenc::frequency_ladder(dim)}).has_value());
  EXPECT_FALSE(cache.check_fingerprint(short_table{}).has_value());
}

TEST_F(CacheLimits, TablesOfAbsurdLengthAreErrors) {
  posenc::kv_pool<float> pool({.kv_heads = 1, .head_dim = dim, .blocks = 2});
  pool.append(0, 0, rows(64), rows(64), token_range(64), posenc::nope{});
  const std::int64_t blocks[] = {0, 1};
  for (const std::int64_t length : {(std::numeric_limits<std::int64_t>::max)(), std::int64_t{129}, std::int64_t{-1}}) {
    const posenc::kv_view<float> view(pool, posenc::block_table(blocks, 2, &length, 1));
    const posenc::maybe_error e = view.check();
    ASSERT_TRUE(e.has_value()) << length;
    EXPECT_NE(std::string(e->what()).find("allowed: 0 to 128, in 2 blocks"), std::string::npos) << e->what();
  }
}

TEST_F(CacheLimits, DenseMasksMustReachTheIndicesThatBlocksWereWrittenWith) {
  posenc::kv_pool<float> pool({.kv_heads = 1, .head_dim = dim, .blocks = 1});
  pool.append(0, 1 << 20, rows(64), rows(64), token_range(64), posenc::nope{});
  const std::int64_t block = 0, length = 64;
  const std::vector<unsigned char> visible(64, 1);
  const posenc::kv_view<float> view(pool, posenc::block_table(&block, 1, &length, 1));
  EXPECT_TRUE(posenc_test::error_of([&] {
    posenc::attention(rows(1), view, result(1), token_range(1, 64), posenc::nope{},
                      posenc::dense_mask(visible.data(), 1, 64));
  }));
  posenc::kv_pool<float> other({.kv_heads = 1, .head_dim = dim, .blocks = 1});
  const auto negative =
      posenc_test::error_of([&] { other.append(0, -5, rows(1), rows(1), token_range(1), posenc::nope{}); });
  EXPECT_TRUE(negative && negative->argument == "first_index");
}

TEST_F(CacheLimits, EverythingMayBeKept) {
  constexpr index_t all = (std::numeric_limits<index_t>::max)();
  posenc::kv_cache<float> cache({.kv_heads = 1, .head_dim = dim, .keep_last = 1, .keep_first = all});
  cache.append(0, rows(64), rows(64), token_range(64), posenc::nope{});
  cache.append(0, rows(64), rows(64), token_range(64, 64), posenc::nope{});
  EXPECT_EQ(cache.blocks(0), 2);
}

TEST_F(CacheLimits, StepsWithoutWorkAreNone) {
  posenc::kv_cache<float> cache({.kv_heads = 1, .head_dim = dim});
  cache.append(rows(5), rows(5), posenc::packed_documents({5}), posenc::nope{});
  posenc::attention(rows(0), cache, result(0), posenc::packed_documents({0}), posenc::nope{}, posenc::causal{});
  const std::vector<index_t> nobody;
  const std::vector<double> positions;
  const auto none = posenc::view_bthd(numbers.data(), 0, 1, 1, dim);
  cache.append(nobody, none, none, posenc::token_positions(positions.data(), 1, 0).with_documents(nobody.data()),
               posenc::nope{});
  EXPECT_EQ(cache.length(0), 5);
}

TEST(TokenPositions, TakeSpansAndContainers) {
  const std::vector<std::int64_t> positions = {1, 2};
  const auto of_span = posenc::token_positions(std::span<const std::int64_t>(positions));
  EXPECT_EQ(of_span.position(0, 0, 1), 2.0);
  EXPECT_EQ(posenc::token_positions(positions).count(), 2);
}

}  // namespace
