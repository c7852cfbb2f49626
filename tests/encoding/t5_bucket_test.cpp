// SPDX-License-Identifier: Apache-2.0
#include <posenc/core/eigen.hpp>
#include <posenc/encoding/any_encoding.hpp>
#include <posenc/encoding/t5_bucket.hpp>

#include <random>

#include "encoding/encoding_support.hpp"

namespace {

using namespace encoding_test;
using posenc::t5_bucket;
using posenc::t5_bucket_options;
using posenc::t5_relative_bucket;

t5_bucket_options options_of(const json& c) {
  t5_bucket_options result;
  result.num_buckets = c.at("num_buckets");
  result.max_distance = c.at("max_distance");
  result.bidirectional = c.value("bidirectional", false);
  return result;
}

TEST(T5RelativeBucket, IsTheReferencesEverywhere) {
  const json data = data_of("encoding_t5_buckets.json");
  EXPECT_EQ(data.at("cases").size(), 7U);
  for (const json& c : data.at("cases")) {
    const t5_bucket_options options = options_of(c);
    const auto runs = c.at("runs").get<std::vector<std::array<std::int64_t, 2>>>();
    std::size_t run = 0;
    for (auto relative = c.at("first").get<std::int64_t>(); relative <= c.at("last").get<std::int64_t>(); ++relative) {
      while (run + 1 < runs.size() && runs[run + 1][0] <= relative) ++run;
      ASSERT_EQ(t5_relative_bucket(relative, options), runs[run][1]) << relative << " of " << options.num_buckets;
    }
    const auto far = c.at("boundary_relative_positions").get<std::vector<std::int64_t>>();
    const auto buckets = c.at("boundary_buckets").get<std::vector<std::int64_t>>();
    for (std::size_t i = 0; i < far.size(); ++i) ASSERT_EQ(t5_relative_bucket(far[i], options), buckets[i]) << far[i];
  }
}

TEST(T5RelativeBucket, IsExactWhereLogarithmsAreNot) {
  const json data = data_of("encoding_t5_exact.json");
  int float64_wrong = 0, float32_wrong = 0;
  for (const json& c : data.at("sensitive")) {
    const index_t bucket = c.at("bucket");
    EXPECT_EQ(t5_relative_bucket(-c.at("distance").get<std::int64_t>(), options_of(c)), bucket) << c;
    float64_wrong += c.at("float64") != bucket;
    float32_wrong += c.at("float32") != bucket;
  }
  EXPECT_GT(float64_wrong, 30);
  EXPECT_GT(float32_wrong, 100);
  // Well known ones.
  EXPECT_EQ(t5_relative_bucket(-60, {.num_buckets = 72, .max_distance = 100, .bidirectional = false}), 54);
  EXPECT_EQ(t5_relative_bucket(-614, {.num_buckets = 132, .max_distance = 800, .bidirectional = false}), 124);
  EXPECT_EQ(t5_relative_bucket(-6376, {.num_buckets = 180, .max_distance = 8192, .bidirectional = false}), 174);
}

TEST(T5RelativeBucket, ChangesAtTheExactDistances) {
  const json data = data_of("encoding_t5_exact.json");
  for (const json& c : data.at("cases")) {
    const t5_bucket_options options = options_of(c);
    const index_t plain = options.num_buckets / 2;
    const auto first = c.at("first_distances").get<std::vector<std::int64_t>>();
    for (std::size_t t = 0; t < first.size(); ++t) {
      const auto bucket = plain + 1 + static_cast<index_t>(t);
      EXPECT_GE(t5_relative_bucket(-first[t], options), bucket);
      EXPECT_LT(t5_relative_bucket(-first[t] + 1, options), bucket);
    }
    EXPECT_EQ(t5_relative_bucket(-options.max_distance, options), options.num_buckets - 1);
  }
}

TEST(T5RelativeBucket, FirstDistancesOfTheUsualTables) {
  const std::vector<std::int64_t> both{8, 12, 16, 23, 32, 46, 64, 91};
  for (std::size_t t = 0; t < both.size(); ++t) {
    EXPECT_EQ(t5_relative_bucket(-both[t]), static_cast<index_t>(8 + t));
    EXPECT_EQ(t5_relative_bucket(-both[t] + 1), static_cast<index_t>(7 + t));
    EXPECT_EQ(t5_relative_bucket(both[t]), static_cast<index_t>(24 + t));
  }
  const std::vector<std::int64_t> past{16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113};
  for (std::size_t t = 0; t < past.size(); ++t) {
    EXPECT_EQ(t5_relative_bucket(-past[t], {.bidirectional = false}), static_cast<index_t>(16 + t));
    EXPECT_EQ(t5_relative_bucket(-past[t] + 1, {.bidirectional = false}), static_cast<index_t>(15 + t));
  }
}

TEST(T5RelativeBucket, ReportsOfWrongOnes) {
  const json c69 = report("BR-069");
  const auto relative69 = c69.at("inputs").at("relative_positions").get<std::vector<std::int64_t>>();
  for (const bool both : {true, false}) {
    const char* mode = both ? "bidirectional" : "unidirectional";
    std::vector<index_t> buckets;
    for (const std::int64_t r : relative69) buckets.push_back(t5_relative_bucket(r, {.bidirectional = both}));
    EXPECT_EQ(buckets, c69.at("expected").at(mode).get<std::vector<index_t>>());
    EXPECT_NE(buckets, c69.at("wrong").at(mode).get<std::vector<index_t>>());
  }
  const json c71 = report("BR-071");
  std::vector<index_t> buckets;
  for (const std::int64_t r : c71.at("inputs").at("relative_positions").get<std::vector<std::int64_t>>())
    buckets.push_back(t5_relative_bucket(r));
  EXPECT_EQ(buckets, c71.at("expected").at("buckets").get<std::vector<index_t>>());
  EXPECT_NE(buckets, c71.at("wrong").at("buckets").get<std::vector<index_t>>());
}

TEST(T5RelativeBucket, EveryDistanceHasOne) {
  constexpr std::int64_t most = 9223372036854775807;
  EXPECT_EQ(t5_relative_bucket(most), 31);
  EXPECT_EQ(t5_relative_bucket(-most - 1), 15);
  EXPECT_EQ(t5_relative_bucket(most, {.bidirectional = false}), 0);
  EXPECT_EQ(t5_relative_bucket(-most - 1, {.bidirectional = false}), 31);
}

TEST(T5RelativeBucket, UndefinedOptionsAreErrors) {
  POSENC_EXPECT_ERROR((t5_relative_bucket(1, {.num_buckets = 3})), posenc::errc::invalid_value, "num_buckets: is 3");
  POSENC_EXPECT_ERROR((t5_relative_bucket(1, {.num_buckets = 1, .bidirectional = false})), posenc::errc::invalid_value,
                      "allowed: 2 to 65536 if not bidirectional");
  POSENC_EXPECT_ERROR((t5_relative_bucket(1, {.max_distance = 8})), posenc::errc::invalid_value, "max_distance: is 8");
  POSENC_EXPECT_ERROR((t5_relative_bucket(1, {.max_distance = 16, .bidirectional = false})),
                      posenc::errc::invalid_value, "more than the 16 distances");
  POSENC_EXPECT_ERROR((t5_relative_bucket(1, {.max_distance = 1 << 25})), posenc::errc::invalid_value, "max_distance");
  EXPECT_EQ(t5_relative_bucket(-1, {.num_buckets = 2, .max_distance = 2, .bidirectional = false}), 1);
  EXPECT_EQ(t5_relative_bucket(-9, {.num_buckets = 4, .max_distance = 2}), 1);
}

/// A table whose entry tells bucket and head.
template <class T = float>
std::vector<T> telling_table(index_t buckets, index_t heads) {
  std::vector<T> table;
  for (index_t b = 0; b < buckets; ++b)
    for (index_t h = 0; h < heads; ++h)
      table.push_back(static_cast<T>(static_cast<float>(b) + 0.125F * static_cast<float>(h)));
  return table;
}

template <class Real>
class T5Bucket : public testing::Test {};
TYPED_TEST_SUITE(T5Bucket, real_types, real_names);

TYPED_TEST(T5Bucket, BiasIsTheTablesEntryAtEveryDistance) {
  const auto table = telling_table(32, 3);
  for (const bool both : {true, false}) {
    const t5_bucket_options options{.bidirectional = both};
    const t5_bucket encoding(table.data(), 3, options);
    for (const index_t head : {0, 2})
      for (double first = -300; first <= 300; first += 7) {
        const numbers keys = range(first + 1000, 64);
        const auto run = bias_row<TypeParam>(encoding, {1000}, {keys}, head, true);
        const auto each = bias_row<TypeParam>(encoding, {1000}, {keys}, head, false);
        for (std::size_t j = 0; j < keys.size(); ++j) {
          const index_t bucket = t5_relative_bucket(static_cast<std::int64_t>(keys[j]) - 1000, options);
          const auto expected = static_cast<TypeParam>(static_cast<double>(bucket) + 0.125 * static_cast<double>(head));
          ASSERT_EQ(run[j], expected) << keys[j] - 1000;
          ASSERT_EQ(each[j], expected) << keys[j] - 1000;
        }
      }
  }
}

TYPED_TEST(T5Bucket, FarAndScatteredKeys) {
  const auto table = telling_table(32, 1);
  const t5_bucket encoding(table.data(), 1);
  const double far = 9007199254740992.0;
  const numbers keys{far, -far, 0, 5, -200, 91, 90};
  const auto bias = bias_row<TypeParam>(encoding, {0}, {keys}, 0, false);
  const std::vector<TypeParam> expected{31, 15, 0, 21, 15, 31, 30};
  EXPECT_EQ(bias, expected);
  EXPECT_EQ((bias_row<TypeParam>(encoding, {0}, {range(far - 70, 64)}, 0, true)), std::vector<TypeParam>(64, 31));
  EXPECT_EQ((bias_row<TypeParam>(encoding, {0}, {range(-far, 64)}, 0, true)), std::vector<TypeParam>(64, 15));
}

TYPED_TEST(T5Bucket, ReadsTheNamedAxis) {
  const auto table = telling_table(32, 1);
  const t5_bucket encoding(table.data(), 1, {.axis = 2});
  const auto bias = bias_row<TypeParam>(encoding, {7, 8, 9}, {{0}, {100}, {6}}, 0, false);
  EXPECT_EQ(bias[0], TypeParam(3));
}

TYPED_TEST(T5Bucket, ChosenAtRunTimeIsTheSame) {
  const auto table = telling_table(32, 4);
  const t5_bucket encoding(table.data(), 4);
  const posenc::any_encoding any = encoding;
  const numbers keys = range(90, 64);
  EXPECT_EQ((bias_row<TypeParam>(any, {120}, {keys}, 3, true)),
            (bias_row<TypeParam>(encoding, {120}, {keys}, 3, true)));
}

TEST(T5BucketTable, OfAnyTypeAndLayoutIsCopied) {
  const auto floats = telling_table<float>(8, 2);
  const auto doubles = telling_table<double>(8, 2);
  const auto halves = telling_table<posenc::half>(8, 2);
  const auto bfloats = telling_table<posenc::bfloat16>(8, 2);
  const t5_bucket_options options{.num_buckets = 8, .max_distance = 20};
  // A table with gaps between its rows.
  Eigen::Matrix<float, 8, 5, Eigen::RowMajor> wide;
  wide.setConstant(-1);
  for (int b = 0; b < 8; ++b)
    for (int h = 0; h < 2; ++h) wide(b, h + 2) = floats[static_cast<std::size_t>(2 * b + h)];
  const t5_bucket encodings[] = {t5_bucket(floats.data(), 2, options), t5_bucket(doubles.data(), 2, options),
                                 t5_bucket(halves.data(), 2, options), t5_bucket(bfloats.data(), 2, options),
                                 t5_bucket(wide.block<8, 2>(0, 2), options)};
  wide.setConstant(-2);
  const numbers keys = range(-20, 41);
  const auto expected = bias_row<double>(encodings[0], {0}, {keys}, 1, true);
  EXPECT_EQ(expected[20 - 3], 2.125);
  for (const t5_bucket& encoding : encodings) EXPECT_EQ((bias_row<double>(encoding, {0}, {keys}, 1, true)), expected);
}

TEST(T5BucketTable, BadOnesAreErrors) {
  auto table = telling_table(32, 2);
  POSENC_EXPECT_ERROR(t5_bucket(posenc::view_bhtd(table.data(), 1, 1, 16, 4)), posenc::errc::invalid_shape,
                      "has 16 rows and 4 columns; allowed: num_buckets = 32 rows");
  POSENC_EXPECT_ERROR(t5_bucket(table.data(), 0), posenc::errc::invalid_shape, "0 columns");
  POSENC_EXPECT_ERROR(t5_bucket(static_cast<const float*>(nullptr), 2), posenc::errc::invalid_layout, "null");
  POSENC_EXPECT_ERROR(t5_bucket(posenc::view_bhtd(table.data(), 1, 2, 32, 1)), posenc::errc::invalid_shape, "matrices");
  POSENC_EXPECT_ERROR((t5_bucket(table.data(), 2, {.axis = 9})), posenc::errc::invalid_value, "axis: is 9");
  Eigen::MatrixXf columns = Eigen::MatrixXf::Zero(32, 2);
  POSENC_EXPECT_ERROR(t5_bucket(columns), posenc::errc::invalid_shape, "column-major");
  for (const double& bad : not_finite()) {
    table[5] = static_cast<float>(bad);
    POSENC_EXPECT_ERROR(t5_bucket(table.data(), 2), posenc::errc::invalid_value, "for bucket 2 of head 1");
  }
}

TEST(T5BucketTable, CheckRefusesFractionsAndOtherHeadCounts) {
  const auto table = telling_table(32, 4);
  const t5_bucket encoding(table.data(), 4);
  EXPECT_EQ(check_text(encoding, posenc::token_range(1000, 50), 4, 2, 8), "");
  EXPECT_NE(check_text(encoding, posenc::token_range(10), 8, 2, 8).find("for 4 heads; the call has 8 query heads"),
            std::string::npos);
  EXPECT_NE(check_text(encoding, posenc::token_range(3, 0.5), 4, 2, 8).find("whole numbers only"), std::string::npos);
  std::vector<float> positions(100, 3.0F);
  positions[77] = 2.25F;
  const auto tokens = posenc::token_positions(std::span<const float>(positions));
  EXPECT_NE(check_text(encoding, tokens, 4, 2, 8).find("position 2.25 at token 77"), std::string::npos);
  EXPECT_NE(check_text(t5_bucket(table.data(), 4, {.axis = 1}), tokens, 4, 2, 8).find("axis 1"), std::string::npos);
}

}  // namespace
