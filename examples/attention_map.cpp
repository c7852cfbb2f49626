// SPDX-License-Identifier: Apache-2.0
// Looking at an attention map: who looks at whom, as characters. Queries and keys are equal for all words, so that the
// picture shows positions alone.
#include <posenc/posenc.hpp>
#include <posenc/testing/reference.hpp>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <vector>

namespace pe = posenc;

template <class Encoding, class Mask>
void show(const char* title, const Encoding& encoding, const Mask& mask) {
  constexpr const char* words[] = {"the", "cat", "sat", "on", "the", "mat", "and", "she", "looked", "at", "me", "."};
  constexpr pe::index_t tokens = std::size(words), heads = 4, head_dim = 32;
  const std::vector<float> ones(tokens * heads * head_dim, 1.0f);
  const auto x = pe::view_thd(ones.data(), tokens, heads, head_dim);
  const auto map = pe::testing::attention_weights(x, x, pe::token_range(tokens), encoding, mask);

  std::printf("%s\n", title);
  for (pe::index_t query = 0; query < tokens; ++query) {
    std::printf("  %-7s", words[query]);
    for (pe::index_t head = 0; head < heads; ++head) {
      std::printf("  |");
      for (const double weight : map.row(0, head, query)) {
        constexpr const char* shades = " .:-=+*#%@";
        std::putchar(shades[std::min(9, static_cast<int>(weight * 20))]);  // from 45 % of the attention on: '@'
      }
      std::printf("|");
    }
    std::printf("\n");
  }
}

int main() {
  show("ALiBi, four heads from steep to shallow, causal", pe::alibi(4), pe::causal{});
  show("ALiBi, bidirectional", pe::alibi(4), pe::bidirectional{});
  const double bases[] = {3, 10, 100, 10000};
  const auto rotary = [&](pe::index_t head) { return pe::rope(pe::frequency_ladder(32, {.base = bases[head]})); };
  show("RoPE with a base for each head, in a window of 6 words", pe::per_head(4, rotary), pe::window_of(6));
}
