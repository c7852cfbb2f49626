// SPDX-License-Identifier: Apache-2.0
#include <posenc/core/eigen.hpp>
#include <posenc/core/token_builders.hpp>
#include <posenc/encoding/add_positions.hpp>
#include <posenc/encoding/learned.hpp>

#include "encoding/encoding_support.hpp"

namespace {

using namespace encoding_test;
using posenc::learned_positions;

template <class T>
using by_rows = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// A table [rows, 3] whose entries tell their row; multiples of 1/4, exact in every type.
template <class T>
by_rows<T> telling_table(index_t rows) {
  by_rows<T> table(rows, 3);
  for (index_t r = 0; r < rows; ++r)
    for (index_t c = 0; c < 3; ++c) table(r, c) = static_cast<T>(static_cast<float>(r) + 0.25F * static_cast<float>(c));
  return table;
}

/// The row that each token of a row of the batch gets.
std::vector<index_t> rows_read(const learned_positions& encoding, const posenc::token_view& tokens, index_t batch = 0) {
  by_rows<double> x = by_rows<double>::Zero(tokens.batch() * tokens.count(), 3);
  posenc::add_positions(posenc::view_bhtd(x.data(), tokens.batch(), 1, tokens.count(), 3), tokens, encoding);
  std::vector<index_t> rows;
  for (index_t t = 0; t < tokens.count(); ++t) rows.push_back(static_cast<index_t>(x(batch * tokens.count() + t, 0)));
  return rows;
}

template <class T>
class LearnedTable : public testing::Test {};
using table_types = testing::Types<float, double, posenc::half, posenc::bfloat16>;
TYPED_TEST_SUITE(LearnedTable, table_types);

TYPED_TEST(LearnedTable, RowsAreAddedInFloatAndDouble) {
  const auto table = telling_table<TypeParam>(9);
  const learned_positions encoding(table);
  EXPECT_EQ(encoding.rows(), 9);
  EXPECT_EQ(encoding.dim(), 3);
  const double position = 7;
  std::vector<float> f{0.5F, 1, -2};
  std::vector<double> d{0.5, 1, -2};
  encoding.add_position(posenc::position_span(&position, 1), std::span<float>(f));
  encoding.add_position(posenc::position_span(&position, 1), std::span<double>(d));
  EXPECT_EQ(f, (std::vector<float>{7.5F, 8.25F, 5.5F}));
  EXPECT_EQ(d, (std::vector<double>{7.5, 8.25, 5.5}));
}

TYPED_TEST(LearnedTable, MayHaveGapsBetweenItsRows) {
  by_rows<TypeParam> wide(9, 8);
  wide.setConstant(static_cast<TypeParam>(-1.0F));
  wide.block(0, 4, 9, 3) = telling_table<TypeParam>(9);
  const auto part = wide.block(0, 4, 9, 3);
  EXPECT_EQ(rows_read(learned_positions(part), posenc::token_range(9)),
            (std::vector<index_t>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(LearnedPositions, MaxLengthLeavesOutWhatRealTokensNeverReach) {
  const json c = report("BR-099");
  const json& cases = c.at("inputs").at("cases");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const index_t rows = cases[i][0];
    const auto table = telling_table<float>(rows);
    posenc::learned_options options;
    if (!cases[i][1].is_null()) options.padding_idx = cases[i][1].get<index_t>();
    const learned_positions encoding(table, options);
    EXPECT_EQ(encoding.max_length(), c.at("expected").at("max_length").at(i).get<index_t>());
    if (options.padding_idx) {
      EXPECT_NE(encoding.max_length(), c.at("wrong").at("max_length").at(i).get<index_t>());
    }
    // That many tokens fit, one more does not.
    const index_t first = options.padding_idx ? *options.padding_idx + 1 : 0;
    const auto longest = posenc::token_range(encoding.max_length(), static_cast<double>(first));
    const auto longer = posenc::token_range(encoding.max_length() + 1, static_cast<double>(first));
    EXPECT_EQ(check_text(encoding, longest, 0, 0, 3), "");
    EXPECT_NE(check_text(encoding, longer, 0, 0, 3).find("has the position " + std::to_string(rows)),
              std::string::npos);
  }
  const auto table = telling_table<float>(2050);
  EXPECT_EQ(learned_positions(table, {.row_offset = 2}).max_length(), 2048);
  EXPECT_EQ(learned_positions(table, {.row_offset = -1}).max_length(), 2050);
  EXPECT_EQ(learned_positions(table, {.row_offset = 3000}).max_length(), 0);
}

TEST(LearnedPositions, RobertaReadsRowsBehindThePadding) {
  const auto table = telling_table<float>(16);
  const learned_positions encoding(table, {.padding_idx = 1});
  const std::vector<int> mask{1, 1, 1, 0, 0, 0, 1, 1};
  const auto tokens = posenc::roberta_positions(mask.data(), 2, 4, 1);
  EXPECT_EQ(rows_read(encoding, tokens, 0), (std::vector<index_t>{2, 3, 4, 1}));
  EXPECT_EQ(rows_read(encoding, tokens, 1), (std::vector<index_t>{1, 1, 2, 3}));
}

TEST(LearnedPositions, OptRowsOfAPaddedPromptAndTheNextToken) {
  const json c = report("BR-100");
  const auto table = telling_table<float>(16);
  const learned_positions encoding(table, {.row_offset = c.at("inputs").at("offset")});
  const auto mask = c.at("inputs").at("attention_mask").get<std::vector<int>>();
  const auto tokens = posenc::opt_positions(mask.data(), 1, static_cast<index_t>(mask.size()));
  const auto rows = rows_read(encoding, tokens);
  EXPECT_EQ(rows, c.at("expected").at("rows").get<std::vector<index_t>>());
  EXPECT_NE(rows, c.at("wrong").at("rows").get<std::vector<index_t>>());
  const auto next = rows_read(encoding, posenc::token_range(1, tokens.next_position()));
  EXPECT_EQ(next[0], c.at("expected").at("next_row").get<index_t>());
  EXPECT_NE(next[0], c.at("wrong").at("next_row").get<index_t>());
}

TEST(LearnedPositions, OutsideTheTableIsAnErrorAndNothingIsWritten) {
  const json c = report("BR-101");
  const auto table = telling_table<float>(c.at("inputs").at("table_rows"));
  const learned_positions encoding(table);
  const json& positions = c.at("inputs").at("positions");
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const std::vector<std::int64_t> at{0, 1, positions[i]};
    const auto tokens = posenc::token_positions(std::span<const std::int64_t>(at));
    by_rows<float> x = by_rows<float>::Constant(3, 3, 9.0F);
    const bool good = c.at("expected").at("result").at(i) == "ok";
    EXPECT_EQ(posenc::check(x, tokens, encoding).has_value(), !good);
    if (good) {
      posenc::add_positions(x, tokens, encoding);
      EXPECT_EQ(x(2, 0), 16.0F);
      continue;
    }
    EXPECT_EQ(c.at("wrong").at("result").at(i), "ok");
    const std::string position = std::to_string(at[2]);
    POSENC_EXPECT_ERROR(posenc::add_positions(x, tokens, encoding), posenc::errc::out_of_range,
                        "has the position " + position + " at token 2 of row 0, which is row " + position +
                            " of the learned table; allowed: positions 0 to 7, as the table has 8 rows");
    EXPECT_EQ(x, (by_rows<float>::Constant(3, 3, 9.0F)));
    // The hook itself never reads beyond the table either.
    const auto p = static_cast<double>(at[2]);
    POSENC_EXPECT_ERROR(encoding.add_position(posenc::position_span(&p, 1), std::span<float>(x.data(), 3)),
                        posenc::errc::out_of_range, position);
  }
}

TEST(LearnedPositions, RangesAreCheckedAtBothEnds) {
  const auto table = telling_table<float>(8);
  const learned_positions encoding(table);
  EXPECT_EQ(check_text(encoding, posenc::token_range(8), 0, 0, 3), "");
  EXPECT_NE(check_text(encoding, posenc::token_range(300), 0, 0, 3).find("position 8 at token 8"), std::string::npos);
  EXPECT_NE(check_text(encoding, posenc::token_range(4, -1), 0, 0, 3).find("position -1 at token 0"),
            std::string::npos);
  EXPECT_NE(check_text(encoding, posenc::token_range(2, 0.5), 0, 0, 3)
                .find("position 0.5 at token 0 of row 0; "
                      "learned_positions takes whole numbers only"),
            std::string::npos);
  EXPECT_EQ(check_text(encoding, posenc::token_range(0, 100), 0, 0, 3), "");
}

TEST(LearnedPositions, ReadsTheNamedAxis) {
  const auto table = telling_table<float>(8);
  const learned_positions encoding(table, {.axis = 1});
  const numbers position{100, 3};
  std::vector<float> x(3, 0.0F);
  encoding.add_position(posenc::position_span(position), std::span<float>(x));
  EXPECT_EQ(x[0], 3.0F);
  EXPECT_NE(check_text(encoding, posenc::token_range(3), 0, 0, 3).find("axis 1"), std::string::npos);
}

TEST(LearnedPositions, BadTablesAndOptionsAreErrors) {
  const auto table = telling_table<float>(8);
  float* null = nullptr;
  POSENC_EXPECT_ERROR(learned_positions(posenc::view_bhtd(null, 1, 1, 8, 3)), posenc::errc::invalid_layout, "null");
  POSENC_EXPECT_ERROR(learned_positions(posenc::view_bhtd(table.data(), 1, 1, 0, 3)), posenc::errc::invalid_shape,
                      "0 rows");
  POSENC_EXPECT_ERROR(learned_positions(posenc::view_bhtd(table.data(), 2, 2, 2, 3)), posenc::errc::invalid_shape,
                      "2 x 2 matrices");
  const posenc::tensor_view<const float> spread(table.data(), {1, 1, 4, 2}, {0, 0, 6, 2});
  POSENC_EXPECT_ERROR(learned_positions(spread), posenc::errc::invalid_layout, "stride of 2");
  POSENC_EXPECT_ERROR((learned_positions(table, {.padding_idx = 8})), posenc::errc::invalid_value, "padding_idx: is 8");
  POSENC_EXPECT_ERROR((learned_positions(table, {.row_offset = 2, .padding_idx = 1})), posenc::errc::mismatch,
                      "row_offset: is 2 beside padding_idx 1");
  POSENC_EXPECT_ERROR((learned_positions(table, {.axis = -2})), posenc::errc::invalid_value, "axis: is -2");
  EXPECT_NE(check_text(learned_positions(table), posenc::token_range(3), 0, 0, 4).find("rows of 4 elements"),
            std::string::npos);
}

}  // namespace
