// SPDX-License-Identifier: Apache-2.0
// Which frequency and which axis each pair reads, for the known ways with several axes.
#include <posenc/encoding/axial_rope.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "encoding/rope_support.hpp"
#include "support/expect_error.hpp"

namespace {

using namespace rope_test;
using axes_type = std::vector<index_t>;

template <class F>
std::string text_of(F&& f) {
  const auto raised = posenc_test::error_of(f);
  return raised ? raised->text : "";
}

TEST(Imrope, GivesWhatIsLeftToTheFourthStream) {
  EXPECT_EQ(posenc::imrope_sections({3, 3, 2, 0}, 8), (axes_type{0, 1, 2, 0, 1, 2, 0, 1}));
  EXPECT_EQ(posenc::imrope_sections({2, 3, 3, 0}, 8), (axes_type{0, 1, 2, 0, 1, 2, 3, 1}));
  EXPECT_EQ(posenc::imrope_sections({1, 1, 1, 2}, 7), (axes_type{0, 1, 2, 3, 3, 0, 1}));
  // Qwen3-VL: two pairs differ from the reading of Hugging Face.
  const axes_type ggml = posenc::imrope_sections({24, 20, 20, 0}, 64), others = posenc::mrope_interleaved({24, 20, 20});
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(ggml[i], i == 61 || i == 62 ? 3 : others[i]) << i;
  EXPECT_NE(text_of([] { posenc::imrope_sections({1, 1, 1}, 3); }).find("3 entries"), std::string::npos);
  EXPECT_NE(text_of([] { posenc::imrope_sections({0, 0, 0, 0}, 3); }), "");
}

/// Angles of one token, one a pair, as rotating unit vectors shows them.
numbers angles(const rope& encoding, const numbers& position) {
  const index_t pairs = encoding.ladder().size();
  numbers row(static_cast<std::size_t>(2 * pairs)), result;
  encoding.prepare_rotation({}, position, {}, row.data());
  for (index_t i = 0; i < pairs; ++i)
    result.push_back(std::atan2(row[static_cast<std::size_t>(pairs + i)], row[static_cast<std::size_t>(i)]));
  return result;
}

void expect_angles(const rope& encoding, const numbers& expected) {
  const numbers found = angles(encoding, {0.5, 0.25});
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-15) << i;
}

// A head of 16 with base 10^4: the row is at 0.5, the column at 0.25.
TEST(VisionRope, OfQwenHasTheSameFrequenciesTwiceRowsFirst) {
  expect_angles(posenc::qwen_vision_rope(16), {0.5, 0.05, 0.005, 0.0005, 0.25, 0.025, 0.0025, 0.00025});
  EXPECT_EQ(posenc::qwen_vision_rope(16).options().pairing, pairing::half);
}

TEST(VisionRope, OfPixtralDealsOneSetOut) {
  const double root = std::sqrt(0.1);
  expect_angles(posenc::pixtral_vision_rope(16),
                {0.5, 0.05, 0.005, 0.0005, 0.25 * root, 0.025 * root, 0.0025 * root, 0.00025 * root});
}

TEST(VisionRope, OfLlama4HasColumnsFirst) {
  expect_angles(posenc::llama4_vision_rope(16), {0.25, 0.025, 0.0025, 0.00025, 0.5, 0.05, 0.005, 0.0005});
  EXPECT_EQ(posenc::llama4_vision_rope(16).options().pairing, pairing::interleaved);
}

TEST(VisionRope, RefusesHeadsThatCannotBeHalved) {
  EXPECT_NE(text_of([] { posenc::qwen_vision_rope(18); }).find("multiple of 4"), std::string::npos);
  EXPECT_NE(text_of([] { posenc::pixtral_vision_rope(0); }), "");
  EXPECT_NE(text_of([] { posenc::llama4_vision_rope(-4); }), "");
}

TEST(AxialRope, PutsLaddersSideBySide) {
  const frequency_ladder ladders[] = {frequency_ladder(4, {.base = 100}), frequency_ladder(2), frequency_ladder(4)};
  const rope encoding = posenc::axial_rope(ladders, {.pairing = pairing::interleaved, .offset = 2});
  EXPECT_EQ(encoding.options().frequency_axis, (axes_type{0, 0, 1, 2, 2}));
  EXPECT_EQ(encoding.options().offset, 2);
  EXPECT_EQ(encoding.ladder().inv_freq(1), ladders[0].inv_freq(1));
  EXPECT_EQ(encoding.ladder().inv_freq(2), 1.0);
  EXPECT_EQ(encoding.ladder().inv_freq(4), ladders[2].inv_freq(1));
  EXPECT_NE(text_of([] { posenc::axial_rope({}); }), "");
  EXPECT_NE(text_of([&] { posenc::axial_rope(ladders, {.frequency_axis = {0, 0, 0, 0, 0}}); }), "");
  const frequency_ladder unlike[] = {frequency_ladder(4), frequency_ladder(4).with_attention_factor(2)};
  EXPECT_NE(text_of([&] { posenc::axial_rope(unlike); }).find("attention factors 1 and 2"), std::string::npos);
}

TEST(PatchTokens, GoRowByRow) {
  const posenc::token_list tokens = posenc::patch_tokens(2, 3, {.first = 1, .class_token = true});
  EXPECT_EQ(tokens.axes, 2);
  EXPECT_EQ(tokens.count, 7);
  EXPECT_EQ(tokens.positions, (numbers{1, 1, 1, 2, 2, 2, 0, /**/ 1, 2, 3, 1, 2, 3, 0}));
  EXPECT_EQ(tokens.order.size(), 7u);
  EXPECT_EQ(posenc::patch_tokens(0, 3).count, 0);
  EXPECT_NE(text_of([] { posenc::patch_tokens(-1, 3); }).find("rows"), std::string::npos);
}

// Scores of patches depend on their distances along both axes.
TEST(VisionRope, ScoresDependOnDistancesOnly) {
  const posenc::token_list tokens = posenc::patch_tokens(4, 5);
  for (const rope& encoding :
       {posenc::qwen_vision_rope(16), posenc::pixtral_vision_rope(16), posenc::llama4_vision_rope(16)}) {
    numbers x;
    for (int t = 0; t < 20; ++t)
      for (const double v : pattern(16)) x.push_back(v);  // the same vector everywhere
    posenc::rotate(posenc::view_thd(x.data(), 20, 1, 16), tokens.view(), encoding);
    const auto score = [&](int a, int b) {
      double sum = 0;
      for (int d = 0; d < 16; ++d)
        sum += x[static_cast<std::size_t>(16 * a + d)] * x[static_cast<std::size_t>(16 * b + d)];
      return sum;
    };
    EXPECT_NEAR(score(0, 6), score(7, 13), 1e-12);   // one row and one column on
    EXPECT_NEAR(score(2, 10), score(9, 17), 1e-12);  // two rows on, two columns back
    EXPECT_GT(std::fabs(score(0, 6) - score(0, 5)), 1e-3);
    EXPECT_GT(std::fabs(score(0, 6) - score(0, 1)), 1e-3);
  }
}

}  // namespace
