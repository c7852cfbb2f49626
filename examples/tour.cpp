// SPDX-License-Identifier: Apache-2.0
// The tour: every positional encoding on a real text, in the three situations in which attention runs, each result held
// against double precision. `tour --help` lists the options.
#include <posenc/posenc.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "support/arguments.hpp"
#include "support/cpu.hpp"
#include "support/encodings.hpp"
#include "support/model.hpp"
#include "support/random.hpp"
#include "support/report.hpp"
#include "support/situations.hpp"
#include "support/text.hpp"
#include "support/timing.hpp"

namespace tour {

/// The text as the situations need it.
struct material {
  std::vector<std::int64_t> documents;  // their lengths
  Eigen::MatrixXf embeddings;           // one column a token
  posenc::token_list whole;             // positions 0, 1, 2, ... through all documents
  posenc::token_list packed;            // documents side by side in one row, each from position 0 on
  std::vector<index_t> permutation;     // shuffled[t] is embeddings[permutation[t]]
  Eigen::MatrixXf shuffled;
  index_t prompt = 0;  // so many tokens are there before decoding starts
  index_t stride = 1;  // one query in so many is compared with double precision
};

material prepare(const text& words, const model& m, std::uint64_t seed) {
  material result;
  result.documents = words.documents;
  result.embeddings = m.embed(words.tokens);
  result.whole = posenc::packed_documents(std::vector{words.size()});
  result.packed = posenc::packed_documents(words.documents);
  random_stream random(seed, 3);
  std::vector<index_t>& from = result.permutation;
  for (index_t t = 0; t < words.size(); ++t) {
    from.push_back(t);
    std::swap(from.back(), from[random.bits() % from.size()]);
  }
  result.shuffled = result.embeddings(Eigen::all, from);
  result.prompt = words.size() / 2;
  result.stride = (words.size() + 63) / 64;
  return result;
}

/// What each word gets, against what it gets if the words are shuffled while places keep their positions: the same, if
/// nothing sees the order.
template <class Mask>
double effect_of_shuffling(const stage& s, const entry& e, const material& m, const projections& x,
                           const projections& shuffled, const Mask& mask) {
  outputs before(x.size()), after(x.size());
  s.attend(e, x, m.whole, mask, before);
  s.attend(e, shuffled, m.whole, mask, after);
  double largest = 0;
  for (index_t t = 0; t < x.size(); ++t)
    largest = (std::max)(largest, row_difference(after.row(t), before.row(m.permutation[static_cast<std::size_t>(t)])));
  return largest;
}

/// One encoding, from end to end.
result run(const stage& s, const entry& e, const material& m) {
  result r;
  const int threads = static_cast<int>(s.executor.concurrency());

  // The whole text at once.
  const projections x = s.place(e, m.embeddings, m.whole);
  const double unit = largest_value(x);
  const reference_rows right = reference(e, x, m.whole, m.stride);
  const outputs whole = whole_text(s, e, x);
  r.whole = difference(whole, right) / unit;
  r.whole_speed = timed(threads, [&] { whole_text(s, e, x); });

  // Its documents, packed into one row.
  const projections y = s.place(e, m.embeddings, m.packed);
  const double packed_unit = largest_value(y);
  const outputs packed = packed_documents(s, e, y, m.packed);
  r.packed = difference(packed, reference(e, y, m.packed, m.stride)) / packed_unit;
  r.packed_to_separate = difference(packed, separate_documents(s, e, m.embeddings, m.documents)) / packed_unit;
  r.packed_speed = timed(threads, [&] { packed_documents(s, e, y, m.packed); });

  // A prompt, then token by token over the cache.
  const decoding steps = decode(s, e, m.embeddings, m.prompt);
  r.decode = difference(steps.out, right, m.prompt) / unit;
  r.decode_to_whole = difference(steps.out, whole) / unit;
  r.decode_speed = {steps.attention_seconds, 0};

  // What it knows of positions.
  r.relative_error = e.relative_position_error((std::min)(index_t{1000}, m.embeddings.cols() - 1));
  const projections z = s.place(e, m.shuffled, m.whole);
  r.shuffled = effect_of_shuffling(s, e, m, x, z, posenc::bidirectional{}) / unit;
  r.shuffled_causal = effect_of_shuffling(s, e, m, x, z, posenc::causal{}) / unit;
  return r;
}

int main(const arguments& options) {
  const double begin = wall_seconds();
  text words = tokenize(read_file(options.file));
  shorten(words, static_cast<std::size_t>(options.tokens));
  if (words.size() < least_tokens)
    throw std::runtime_error(formatted("'%s' has %td tokens; the tour needs %td and more", options.file.c_str(),
                                       words.size(), least_tokens));

  std::printf("A tour of positional encodings (posenc %s)\n\n", posenc::version);
  std::printf("Text        %s\n", options.file.c_str());
  std::printf("            %td of its %zu %s, %zu documents\n", words.size(), words.file_tokens,
              words.is_binary ? "bytes" : "words and signs", words.documents.size());
  std::printf("Attention   %td query heads on %td heads of keys and values, head_dim %td, float, seed %llu\n", heads,
              kv_heads, head_dim, static_cast<unsigned long long>(options.seed));
  std::printf("Built for   %s, which the flags of the compiler chose\n", posenc::simd::isa());
  for (const std::string& line : beyond_this_build()) std::printf("            %s\n", line.c_str());

  const model projections_of(options.seed);
  const material given = prepare(words, projections_of, options.seed);
  const learned_tables tables(words.size(), options.seed);
  const std::vector<entry> entries = all_encodings(tables);
  Eigen::ThreadPool pool(options.threads);
  posenc::eigen_executor executor(pool);
  posenc::workspace memory;
  const stage s{projections_of, executor, memory};

  std::vector<result> results;
  std::vector<std::string> wrong;
  for (const entry& e : entries) {
    results.push_back(run(s, e, given));
    for (std::string& line : complaints(e, results.back())) wrong.push_back(std::move(line));
  }
  print_accuracy(entries, results, given.stride);
  print_positions(entries, results);
  print_speed(entries, results, given.documents, words.size() - given.prompt, options.threads);
  print_ladders();

  std::printf("\n");
  for (const std::string& line : wrong) std::printf("NOT WITHIN BOUNDS: %s\n", line.c_str());
  if (wrong.empty()) std::printf("All deviations are within their bounds.\n");
  std::printf("The tour took %.1f s.\n", wall_seconds() - begin);
  return wrong.empty() ? 0 : 1;
}

}  // namespace tour

int main(int argc, char** argv) {
  try {
    const tour::arguments options = tour::parse(argc, argv);
    if (!options.help) return tour::main(options);
    std::fputs(tour::usage, stdout);
    return 0;
  } catch (const tour::usage_error& e) {
    std::fprintf(stderr, "tour: %s\nThe options are listed by: tour --help\n", e.what());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tour: %s\n", e.what());
  }
  return 2;
}
