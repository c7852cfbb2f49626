// SPDX-License-Identifier: Apache-2.0
// The angles of rope against more than 100 bits: with a table, without, and as exported tables.
#include <gtest/gtest.h>
#include <posenc/encoding/cos_sin.hpp>
#include <posenc/encoding/rope.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "encoding/wide_oracle.hpp"

#if defined(POSENC_TESTS_HAS_WIDE)
namespace {

using namespace wide_oracle;
using posenc::frequency_ladder;
using posenc::index_t;
using posenc::position_span;
using posenc::rope;
using posenc::token_range;

constexpr index_t pairs = 64;
constexpr double two_31 = 2147483648.0;

/// The largest errors seen, of floats in units of the documented bound max(1 ulp, 2^-36).
struct largest_errors {
  double of_bound = 0, absolute = 0;
  long pairs = 0;

  void add_float(double value, wide exact) {
    const double error = distance(value, exact);
    of_bound = std::max(of_bound, error / std::max(float_ulp(static_cast<double>(exact)), 0x1p-36));
    absolute = std::max(absolute, error);
    ++pairs;
  }
  void add_double(double value, wide exact) {
    absolute = std::max(absolute, distance(value, exact));
    ++pairs;
  }
};

template <class Real>
class errors_of {
 public:
  errors_of(const rope& encoding, std::uint64_t seed) : encoding_(encoding), random_(seed) {}

  /// Some pairs of the row of a position.
  void at(double position, int samples = 8) {
    Real row[2 * pairs];
    encoding_.prepare_rotation({}, position_span(&position, 1), {}, row);
    for (int i = 0; i < samples; ++i) {
      const auto k = static_cast<index_t>(random_() % pairs);
      const auto [c, s] = of_product(position, encoding_.ladder().inv_freq(k));
      if constexpr (sizeof(Real) == 4) {
        found.add_float(static_cast<double>(row[k]), c);
        found.add_float(static_cast<double>(row[pairs + k]), s);
      } else {
        found.add_double(row[k], c);
        found.add_double(row[pairs + k], s);
      }
    }
  }

  double uniform(double low, double high) {
    return low + (high - low) * (static_cast<double>(random_() >> 11) * 0x1p-53);
  }

  largest_errors found;

 private:
  const rope& encoding_;
  std::mt19937_64 random_;
};

constexpr double bases[] = {1e2, 1e4, 5e5, 1e7, 1e9};

template <class Real>
largest_errors sweep(posenc::position_range table, double low, double high, bool whole, int positions) {
  largest_errors all;
  for (const double base : bases) {
    const rope encoding(frequency_ladder(2 * pairs, {.base = base}), {.table = table});
    errors_of<Real> errors(encoding, static_cast<std::uint64_t>(base) + static_cast<std::uint64_t>(table.count));
    for (int i = 0; i < positions; ++i) {
      const double p = errors.uniform(low, high);
      errors.at(whole ? std::floor(p) : p);
    }
    all.of_bound = std::max(all.of_bound, errors.found.of_bound);
    all.absolute = std::max(all.absolute, errors.found.absolute);
    all.pairs += errors.found.pairs;
  }
  return all;
}

void expect_within(const char* what, const largest_errors& f, const largest_errors& d) {
  std::printf("%-44s float: %.3f of max(1 ulp, 2^-36), %.2e absolute; double: %.2e; %ld pairs\n", what, f.of_bound,
              f.absolute, d.absolute, f.pairs + d.pairs);
  EXPECT_GT(f.of_bound, 0.4);  // floats round: an error of almost nothing would be a test of nothing
  EXPECT_LE(f.of_bound, 1.0);
  EXPECT_LE(f.absolute, 0x1p-25 + 0x1p-36);
  EXPECT_LE(d.absolute, 1e-15);
}

// The oracle against values known to 30 digits and more, as pairs of doubles.
TEST(WideOracle, IsRight) {
  const auto known = [](double position, double frequency, double c, double c_low, double s, double s_low) {
    const auto [cos, sin] = of_product(position, frequency);
    EXPECT_LT(distance(c, cos - static_cast<wide>(c_low)), 1e-30);
    EXPECT_LT(distance(s, sin - static_cast<wide>(s_low)), 1e-30);
  };
  known(1, 1, 0x1.14a280fb5068cp-1, -0x1.b71edcc9344bcp-55, 0x1.aed548f090ceep-1, 0x1.06374f484e288p-59);
  known(two_31 - 1, 1, -0x1.60af33efcd1b2p-1, -0x1.6ec05185487c6p-58, -0x1.7328434159860p-1, 0x1.cba2b0ecbc972p-55);
  known(2147483647.0, 0.1, 0x1.4bc944ff1dcebp-4, -0x1.1e5c214ef48efp-60, -0x1.fe5148be4de56p-1, -0x1.3cac794e0709fp-56);
}

#if defined(__x86_64__)
constexpr int many = 8000;
#else  // where this runs under emulation
constexpr int many = 800;
#endif

TEST(AngleTable, OfOneMillionPositionsIsExact) {
  const posenc::position_range table{0, 1 << 20};
  expect_within("table of 2^20 positions, three digits", sweep<float>(table, 0, 0x1p20, true, many),
                sweep<double>(table, 0, 0x1p20, true, many / 4));
}

TEST(AngleTable, OfFewPositionsIsExact) {
  const posenc::position_range table{0, 4000};
  expect_within("table of 4000 positions, two digits", sweep<float>(table, 0, 4000, true, many),
                sweep<double>(table, 0, 4000, true, many / 4));
}

TEST(AngleTable, FarFromZeroIsExact) {
  const posenc::position_range table{two_31 - 131072, 131072};
  expect_within("table of the positions below 2^31", sweep<float>(table, two_31 - 131072, two_31, true, many),
                sweep<double>(table, two_31 - 131072, two_31, true, many / 4));
}

TEST(AngleTable, OfNegativePositionsIsExact) {
  const posenc::position_range table{-5000, 10000};
  expect_within("table around 0", sweep<float>(table, -5000, 5000, true, many / 2),
                sweep<double>(table, -5000, 5000, true, many / 4));
}

TEST(AngleTable, IsNotNeeded) {
  const posenc::position_range table{1000, 4096};
  expect_within("outside the table, to 2^31", sweep<float>(table, -two_31, two_31, true, many),
                sweep<double>(table, -two_31, two_31, true, many / 4));
  expect_within("fractions", sweep<float>(table, -1e6, 1e6, false, many),
                sweep<double>(table, 0, 6000, false, many / 4));
}

// All positions from the first to the last and one more on either side, for counts around the sizes of digits.
TEST(AngleTable, HasEveryPosition) {
  for (const index_t count : {1, 2, 3, 15, 16, 17, 255, 256, 257, 4095, 4096, 4097, 65537, 200000}) {
    const frequency_ladder ladder(20, {.base = 100});
    const double first = 77;
    const rope with(ladder, {.table = {.first = first, .count = count}}), without(ladder);
    double worst = 0;
    const index_t step = count > 5000 ? 61 : 1;
    for (index_t i = -1; i <= count; i += i + step > count && i < count ? std::max<index_t>(1, count - i) : step) {
      const double p = first + static_cast<double>(i);
      double a[20], b[20];
      with.prepare_rotation({}, position_span(&p, 1), {}, a);
      without.prepare_rotation({}, position_span(&p, 1), {}, b);
      for (int k = 0; k < 20; ++k) worst = std::max(worst, std::fabs(a[k] - b[k]));
    }
    EXPECT_LE(worst, 1e-15) << count;
  }
}

TEST(AngleTable, StaysSmall) {
  const frequency_ladder ladder(128);
  EXPECT_LE(posenc::detail::angle_table(ladder.inv_freq(), 0, index_t{1} << 20).bytes(), 400 * 1024);
  EXPECT_LE(posenc::detail::angle_table(ladder.inv_freq(), 0, 131072).bytes(), 200 * 1024);
  EXPECT_LE(posenc::detail::angle_table(ladder.inv_freq(), 0, index_t{1} << 31).bytes(), 5 << 20);
}

TEST(AngleTable, AnswersEveryOperationAndFactor) {
  const frequency_ladder ladder = frequency_ladder(24).with_attention_factor(1.25);
  const rope with(ladder, {.table = {.count = 100}}), without(ladder);
  for (const auto op : {posenc::rotation_op::rotate, posenc::rotation_op::transposed, posenc::rotation_op::inverse}) {
    const double p = 93;
    double a[24], b[24];
    with.prepare_rotation({}, position_span(&p, 1), {posenc::token_role::key, op}, a);
    without.prepare_rotation({}, position_span(&p, 1), {posenc::token_role::key, op}, b);
    for (int k = 0; k < 24; ++k) EXPECT_NEAR(a[k], b[k], 2e-15);
  }
}

// Several axes read the same table, each at its own position, also where an axis's frequencies do not lie side by side.
TEST(AngleTable, ServesSeveralAxes) {
  const frequency_ladder ladder(128, {.base = 5e6});
  for (const auto& axes : {posenc::mrope_sections({16, 24, 24}), posenc::mrope_interleaved({24, 20, 20})}) {
    const rope with(ladder, {.frequency_axis = axes, .table = {.count = 3000}}),
        without(ladder, {.frequency_axis = axes});
    const double p[] = {2999, 17, 3000.5};  // the last is not in the table
    double a[128], b[128];
    with.prepare_rotation({}, p, {}, a);
    without.prepare_rotation({}, p, {}, b);
    for (int k = 0; k < 128; ++k) EXPECT_NEAR(a[k], b[k], 1e-15) << k;
  }
}

TEST(AngleTable, RefusesWhatItCannotBe) {
  const frequency_ladder ladder(8);
  EXPECT_TRUE(rope::check(ladder, {.table = {.count = -1}}));
  EXPECT_TRUE(rope::check(ladder, {.table = {.first = 0.5, .count = 1}}));
  EXPECT_TRUE(rope::check(ladder, {.table = {.first = 1e300, .count = 1}}));
  EXPECT_TRUE(rope::check(ladder, {.table = {.count = 1}, .arithmetic = posenc::angle_arithmetic::float32}));
  EXPECT_FALSE(rope::check(ladder, {.table = {.first = -3, .count = 10}}));
  EXPECT_EQ(rope(ladder), rope(ladder, {.table = {.count = 10}}));  // the same rotation
}

// Exported rows: as exact as those of a token, whichever way they are made.
TEST(WriteCosSin, IsExact) {
  std::mt19937_64 random(7);
  for (const double base : bases)
    for (const double first : {0.0, 123.0, -1000.0, two_31 - 5000})
      for (const auto store : {posenc::store_mode::cached, posenc::store_mode::streaming}) {
        const rope encoding(frequency_ladder(2 * pairs, {.base = base}));
        const index_t rows = 5000;
        std::vector<float> cos(rows * pairs), sin(rows * pairs);
        posenc::write_cos_sin(encoding, token_range(rows, first), cos.data(), sin.data(), {.store = store});
        largest_errors found;
        for (int i = 0; i < 5000; ++i) {
          const auto r = static_cast<index_t>(random() % static_cast<std::uint64_t>(rows)),
                     k = static_cast<index_t>(random() % pairs);
          const auto [c, s] = of_product(first + static_cast<double>(r), encoding.ladder().inv_freq(k));
          found.add_float(static_cast<double>(cos[static_cast<std::size_t>(r * pairs + k)]), c);
          found.add_float(static_cast<double>(sin[static_cast<std::size_t>(r * pairs + k)]), s);
        }
        EXPECT_LE(found.of_bound, 1.0) << base << " " << first;
        EXPECT_LE(found.absolute, 0x1p-25 + 0x1p-36);
      }
}

}  // namespace
#endif
