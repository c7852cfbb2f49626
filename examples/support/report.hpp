// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_EXAMPLES_SUPPORT_REPORT_HPP
#define POSENC_EXAMPLES_SUPPORT_REPORT_HPP

#include <posenc/posenc.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "encodings.hpp"
#include "model.hpp"
#include "table.hpp"

/// What the tour finds out about an encoding, the bounds that it must keep, and the tables that tell it.
namespace tour {

/// Of deviations, in units of the largest |v|. Two float results may each be off by one such bound.
inline constexpr double reference_bound = 2e-6, pair_bound = 2 * reference_bound;
/// Of scores of vectors that are moved by up to 500 positions, relative to the largest score.
inline constexpr double relative_bound = 1e-5;

/// How fast a situation was: the best of some runs, and the peak of a core beside them in FLOP/s.
struct speed {
  double seconds = 0, peak = 0;
};

struct result {
  double whole = 0, packed = 0, decode = 0;            ///< deviations from the reference
  double decode_to_whole = 0, packed_to_separate = 0;  ///< deviations from each other
  double relative_error = 0;                           ///< see testing::relative_position_error
  double shuffled = 0, shuffled_causal = 0;            ///< what shuffling the words changes, without mask and with
  speed whole_speed, packed_speed, decode_speed;
};

/// What is over its bound, one line each.
inline std::vector<std::string> complaints(const entry& e, const result& r) {
  std::vector<std::string> lines;
  const auto check = [&](const char* what, double value, double bound) {
    if (!(value <= bound)) lines.push_back(formatted("%s: %s: %.2e, bound %.0e", e.name.c_str(), what, value, bound));
  };
  check("whole text against the reference", r.whole, reference_bound);
  check("packed documents against the reference", r.packed, reference_bound);
  check("decoding against the reference", r.decode, reference_bound);
  check("decoding against the whole text", r.decode_to_whole, pair_bound);
  check("packed documents against separate ones", r.packed_to_separate, pair_bound);
  if (e.is_relative) check("relative-position error", r.relative_error, relative_bound);
  if (!e.has_positions) check("order seen with neither positions nor mask", r.shuffled, pair_bound);
  return lines;
}

inline void print_accuracy(const std::vector<entry>& entries, const std::vector<result>& results, index_t stride) {
  std::printf("\n1. Is it right?\n");
  const std::string sample = stride == 1 ? std::string("every query") : formatted("one query in %td", stride);
  std::printf("Largest deviations, in units of the largest |v|: from attention in double precision (at\n");
  std::printf("%s; bound %.0e), and between two ways to the same result (bound %.0e; 0: not a bit\n", sample.c_str(),
              reference_bound, pair_bound);
  std::printf("differs).\n\n");
  const std::string reference = "from double precision", each_other = "from each other";
  table t({{"", "encoding"},
           {reference, "whole text"},
           {reference, "packed"},
           {reference, "decoding"},
           {each_other, "decoding - whole"},
           {each_other, "packed - separate"}});
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const result& r = results[i];
    t.add({entries[i].name, small(r.whole), small(r.packed), small(r.decode), small(r.decode_to_whole),
           small(r.packed_to_separate)});
  }
  t.print();
}

inline void print_positions(const std::vector<entry>& entries, const std::vector<result>& results) {
  std::printf("\n2. What does it know of positions?\n");
  std::printf("Relative error: how much scores change if query and key move together; where it is tiny, only\n");
  std::printf("distances count. Order seen: if the words are shuffled, does one of them get something else?\n\n");
  const std::string order = "order seen";
  table t({{"", "encoding"},
           {"", "enters at", true},
           {"", "relative error"},
           {order, "no mask"},
           {order, "causal mask"},
           {"", "longest text"}});
  const auto seen = [](double effect) { return effect > pair_bound ? "yes" : "no"; };
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const entry& e = entries[i];
    t.add({e.name, e.place, small(results[i].relative_error), seen(results[i].shuffled),
           seen(results[i].shuffled_causal), e.longest_text > 0 ? formatted("%td", e.longest_text) : "any"});
  }
  t.print();
}

/// `lengths` are those of the packed documents.
inline void print_speed(const std::vector<entry>& entries, const std::vector<result>& results,
                        const std::vector<std::int64_t>& lengths, index_t decoded_tokens, int threads) {
  index_t tokens = 0;
  double packed_pairs = 0;
  const auto visible_pairs = [](index_t n) { return 0.5 * static_cast<double>(n) * static_cast<double>(n + 1); };
  for (const index_t n : lengths) tokens += n, packed_pairs += visible_pairs(n);
  const double whole_pairs = visible_pairs(tokens);
  double peak = 0;
  for (const result& r : results) peak = (std::max)(peak, r.whole_speed.peak);

  std::printf("\n3. How fast is it?\n");
  std::printf("Attention of one layer, rotations included, on %d thread%s. Best of 5 runs, decoding one.\n", threads,
              threads == 1 ? " (CPU time)" : "s");
  std::printf("Peak: multiply-adds in registers beside each run, at best %.0f GFLOP/s a core. Pairs of tokens\n",
              peak * 1e-9);
  std::printf("that do not see each other do not count as work.\n\n");
  const std::string whole = "whole text", packed = "packed";
  table t({{"", "encoding"},
           {whole, "tokens/s"},
           {whole, "% of peak"},
           {packed, "tokens/s"},
           {packed, "% of peak"},
           {"decoding", "tokens/s"}});
  const auto per_second = [](index_t count, const speed& s) {
    return formatted("%.0f", static_cast<double>(count) / s.seconds);
  };
  const auto percent = [&](double pairs, const speed& s) {
    // A pair costs 2 * head_dim operations for the score and as many for the value, in each head.
    return formatted("%.0f", 100 * pairs * 4 * heads * head_dim / s.seconds / (s.peak * threads));
  };
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const result& r = results[i];
    t.add({entries[i].name, per_second(tokens, r.whole_speed), percent(whole_pairs, r.whole_speed),
           per_second(tokens, r.packed_speed), percent(packed_pairs, r.packed_speed),
           per_second(decoded_tokens, r.decode_speed)});
  }
  t.print();
}

inline void print_ladders() {
  using namespace posenc;
  constexpr index_t original = 2048;
  const frequency_ladder unscaled(head_dim, {.base = 10000});
  const std::vector<std::pair<std::string, frequency_ladder>> ladders = {
      {"unscaled", unscaled},
      {"position interpolation", unscaled | position_interpolation{.factor = 4}},
      {"NTK-aware", unscaled | ntk_aware{.factor = 4}},
      {"YaRN", unscaled | yarn{.factor = 4, .original_context = original}},
      {"Llama 3", unscaled | llama3{.factor = 4, .original_context = original}},
  };
  std::printf("\n4. The frequency ladder at four times the context\n");
  std::printf("From %td to %td tokens, base 10000, %td pairs: radians per position of the first, a middle and the\n",
              original, 4 * original, unscaled.size());
  std::printf("last pair, how many times slower than unscaled that is, and the factor of cosines and sines.\n\n");
  const index_t pairs[] = {0, unscaled.size() / 2, unscaled.size() - 1};
  std::vector<column> columns = {{"", "scaling"}};
  for (const index_t i : pairs) {
    const std::string group = formatted("pair %td", i);
    columns.push_back({group, "frequency"});
    columns.push_back({group, "slower"});
  }
  columns.push_back({"attention", "factor"});
  table t(columns);
  for (const auto& [name, ladder] : ladders) {
    std::vector<std::string> row = {name};
    for (const index_t i : pairs) {
      row.push_back(formatted("%.6f", ladder.inv_freq(i)));
      row.push_back(formatted("%.2f", unscaled.inv_freq(i) / ladder.inv_freq(i)));
    }
    row.push_back(formatted("%.4f", ladder.attention_factor()));
    t.add(row);
  }
  t.print();
}

}  // namespace tour

#endif  // POSENC_EXAMPLES_SUPPORT_REPORT_HPP
