// SPDX-License-Identifier: Apache-2.0
// Causal attention over 1000 tokens with a rotary encoding whose context YaRN has stretched from 8k to 32k tokens.
#include <posenc/posenc.hpp>

#include <cstdio>

int main() {
  const Eigen::MatrixXf q = Eigen::MatrixXf::Random(128, 1000);  // head_dim x tokens: one column a token
  const Eigen::MatrixXf k = Eigen::MatrixXf::Random(128, 1000);
  const Eigen::MatrixXf v = Eigen::MatrixXf::Random(128, 1000);
  Eigen::MatrixXf out(128, 1000);

  using namespace posenc;
  const auto ladder = frequency_ladder(128, {.base = 500000}) | yarn{.factor = 4, .original_context = 8192};
  attention(q, k, v, out, token_range(1000), rope(ladder), causal{});

  std::printf("the first token sees itself only: |out - v| = %g\n", double((out.col(0) - v.col(0)).norm()));
}
