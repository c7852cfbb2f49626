// SPDX-License-Identifier: Apache-2.0
// A scaling of one's own: pairs that turn less than once in the trained context are slowed down, the others stay.
#include <posenc/posenc.hpp>

#include <cstdio>
#include <vector>

namespace pe = posenc;

struct slow_pairs_only {
  double factor = 1;
  double original_context = 4096;

  static constexpr const char* name = "slow_pairs_only";  // for the history and for error texts
  static constexpr bool stretches_context = true;         // so that a second stretch is noticed

  pe::frequency_ladder operator()(const pe::frequency_ladder& ladder) const {
    std::vector<double> w(ladder.inv_freq().begin(), ladder.inv_freq().end());
    for (pe::index_t i = 0; i < ladder.size(); ++i)
      if (ladder.wavelength(i) > original_context) w[static_cast<std::size_t>(i)] /= factor;
    return ladder.with_inv_freq(w);
  }
};

int main() {
  const pe::frequency_ladder trained(128, {.base = 10000});
  const pe::frequency_ladder stretched = trained | slow_pairs_only{.factor = 4};

  std::printf("%s\n", stretched.describe().c_str());
  std::puts("pair   turns in 4096 tokens: before    after");
  for (const pe::index_t i : {0, 30, 44, 46, 63})
    std::printf("%4td %31.3f %8.3f\n", i, 4096 / trained.wavelength(i), 4096 / stretched.wavelength(i));

  // Any callable will do where a name and the check against double stretching do not matter.
  const auto hotter = [](const pe::frequency_ladder& ladder) { return ladder.with_attention_factor(1.1); };
  const pe::rope rope(stretched | hotter);
  std::printf("%s, attention factor %.2f\n", rope.ladder().describe().c_str(), rope.ladder().attention_factor());

  // Stretching twice is an error that says why. `check` gives it as a value; `|` would raise it.
  const pe::maybe_error twice = pe::check(stretched, pe::yarn{.factor = 2, .original_context = 4096});
  std::printf("%s\n", twice->what());
}
