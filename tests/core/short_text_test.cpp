// SPDX-License-Identifier: Apache-2.0
#include "posenc/core/short_text.hpp"

#include <gtest/gtest.h>

#include <string>

namespace {

using posenc::short_text;

TEST(ShortText, AppendsAndCompares) {
  short_text text;
  EXPECT_TRUE(text.empty());
  EXPECT_STREQ(text.c_str(), "");
  text.append("factor ").append("4");
  EXPECT_STREQ(text.c_str(), "factor 4");
  EXPECT_EQ(text.size(), 8u);
  EXPECT_EQ(text, "factor 4");
  EXPECT_NE(text, "factor 5");
  EXPECT_NE(text, "factor 44");
}

TEST(ShortText, CutsWhatDoesNotFit) {
  const std::string text(300, 'x');
  short_text cut(text.c_str());
  EXPECT_EQ(cut.c_str(), text.substr(0, 255));
  cut.append("more");
  EXPECT_EQ(cut.size(), 255u);
}

}  // namespace
