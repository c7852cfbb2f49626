// SPDX-License-Identifier: Apache-2.0
// The parts of the tour that decide what it reads, what it reports and what it returns.
#include <gtest/gtest.h>

#if defined(__cpp_exceptions)  // the tour reports errors by exceptions

#include <cmath>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../../examples/support/arguments.hpp"
#include "../../examples/support/cpu.hpp"
#include "../../examples/support/random.hpp"
#include "../../examples/support/report.hpp"
#include "../../examples/support/situations.hpp"
#include "../../examples/support/table.hpp"
#include "../../examples/support/text.hpp"

#ifndef POSENC_TEST_DATA_DIR
#define POSENC_TEST_DATA_DIR "tests/data"
#endif

namespace tour {
namespace {

using documents = std::vector<std::int64_t>;

// ---------------------------------------------------------------------------------------------------------------- text

TEST(Text, WordsAndSignsAreTokens) {
  const text t = tokenize("The dog, the don't-know.");
  EXPECT_EQ(t.size(), 8);               // the dog , the don't - know .
  EXPECT_EQ(t.tokens[0], t.tokens[3]);  // capitals do not matter
  EXPECT_NE(t.tokens[0], t.tokens[1]);
  EXPECT_EQ(t.documents, documents{8});
  EXPECT_FALSE(t.is_binary);
}

TEST(Text, LettersOfOtherAlphabetsStayTogether) {
  EXPECT_EQ(tokenize("na\xc3\xafve \xd0\xba\xd0\xbe\xd1\x82").size(), 2);
}

TEST(Text, BlankLinesEndDocuments) {
  EXPECT_EQ(tokenize("a b\nc\n\nd\n \n\n\ne f\n\n").documents, (documents{3, 1, 2}));
  EXPECT_EQ(tokenize("\n\na\r\n\r\nb").documents, (documents{1, 1}));
}

TEST(Text, BytesOfBinaryFilesAreTokens) {
  const text t = tokenize(std::string("ab\0\n\n ", 6));
  EXPECT_TRUE(t.is_binary);
  EXPECT_EQ(t.size(), 6);
  EXPECT_EQ(t.documents, documents{6});
}

TEST(Text, NothingIsNoDocument) {
  for (const char* content : {"", " \n\n\t\n"}) {
    const text t = tokenize(content);
    EXPECT_EQ(t.size(), 0) << content;
    EXPECT_TRUE(t.documents.empty()) << content;
  }
}

TEST(Text, NumbersOfWordsAreTheSameEverywhere) {
  EXPECT_EQ(word_number("the"), 0xb40eb21cu % vocabulary);  // FNV-1a, 32 bits
  EXPECT_EQ(word_number(""), 2166136261u % vocabulary);
}

TEST(Text, ShorteningKeepsDocumentsInStep) {
  text t = tokenize("a b c\n\nd e\n\nf g h");
  shorten(t, 4);
  EXPECT_EQ(t.size(), 4);
  EXPECT_EQ(t.documents, (documents{3, 1}));
  EXPECT_EQ(t.file_tokens, 8u);

  text one = tokenize("a b c d e f g h i j");
  shorten(one, 100);
  EXPECT_EQ(one.documents, (documents{2, 2, 2, 4}));
}

TEST(Text, MissingFilesAndFoldersAreErrors) {
  EXPECT_THROW(read_file("/nowhere/at/all"), std::runtime_error);
  EXPECT_THROW(read_file("/"), std::runtime_error);
}

TEST(Text, TheTextOfTheRepositoryIsLongEnough) {
  const std::string data = POSENC_TEST_DATA_DIR "/../../examples/data/order.txt";
  text t = tokenize(read_file(data));
  EXPECT_FALSE(t.is_binary);
  EXPECT_GE(t.size(), arguments{}.tokens);
  shorten(t, 1024);
  EXPECT_GE(t.documents.size(), 5u);
  EXPECT_EQ(std::accumulate(t.documents.begin(), t.documents.end(), std::int64_t{0}), t.size());
}

// ------------------------------------------------------------------------------------------------------- random numbers

TEST(Random, TheSameEverywhereAndBellShaped) {
  random_stream a(1, 2), b(1, 2), other_name(1, 3), other_seed(2, 2);
  EXPECT_EQ(a.bits(), b.bits());
  EXPECT_NE(a.bits(), other_name.bits());
  EXPECT_NE(a.bits(), other_seed.bits());
  double sum = 0, squares = 0;
  constexpr int count = 20000;
  for (int i = 0; i < count; ++i) {
    const double x = a.bell();
    EXPECT_EQ(x * 256, std::floor(x * 256));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / count, 0, 0.02);
  EXPECT_NEAR(squares / count, 0.5, 0.02);
}

// --------------------------------------------------------------------------------------------------------- command line

arguments parsed(std::vector<const char*> words) {
  words.insert(words.begin(), "tour");
  return parse(static_cast<int>(words.size()), words.data());
}

TEST(Arguments, Defaults) {
  const arguments a = parsed({});
  EXPECT_EQ(a.tokens, 1024);
  EXPECT_EQ(a.threads, 1);
  EXPECT_EQ(a.seed, 1u);
  EXPECT_FALSE(a.help);
}

TEST(Arguments, BothSpellings) {
  for (const auto& words : {std::vector<const char*>{"--tokens", "99", "--threads", "3", "--seed", "7", "x.txt"},
                            std::vector<const char*>{"--seed=7", "--file=x.txt", "--tokens=99", "--threads=3"},
                            std::vector<const char*>{"--seed=7", "--tokens=99", "--threads=3", "--", "x.txt"}}) {
    const arguments a = parsed(words);
    EXPECT_EQ(a.file, "x.txt");
    EXPECT_EQ(a.tokens, 99);
    EXPECT_EQ(a.threads, 3);
    EXPECT_EQ(a.seed, 7u);
  }
  EXPECT_EQ(parsed({"--", "--seed"}).file, "--seed");
  EXPECT_TRUE(parsed({"--help"}).help);
}

TEST(Arguments, MistakesNameTheOption) {
  const std::vector<std::pair<std::vector<const char*>, std::string>> cases = {
      {{"--tokens", "15"}, "--tokens"},  {{"--tokens", "1e3"}, "--tokens"},
      {{"--tokens="}, "--tokens"},       {{"--tokens"}, "--tokens"},
      {{"--threads", "0"}, "--threads"}, {{"--seed", "-1"}, "--seed"},
      {{"--colour"}, "--colour"},        {{"a.txt", "b.txt"}, "b.txt"},
      {{"--tokens", "99 "}, "--tokens"}, {{"--threads=99999999999"}, "--threads"}};
  for (const auto& [words, name] : cases) {
    try {
      parsed(words);
      ADD_FAILURE() << words[0] << " was accepted";
    } catch (const usage_error& e) {
      EXPECT_NE(std::string(e.what()).find(name), std::string::npos) << e.what();
    }
  }
}

// --------------------------------------------------------------------------------------------------------------- report

TEST(Report, GoodResultsHaveNoComplaints) {
  result r;
  r.whole = r.packed = r.decode = reference_bound;
  r.decode_to_whole = r.packed_to_separate = pair_bound;
  r.relative_error = relative_bound;
  r.shuffled = r.shuffled_causal = 1;
  EXPECT_TRUE(complaints(in_attention("rope", "q, k", posenc::nope{}), r).empty());
}

TEST(Report, EveryDeviationHasItsComplaint) {
  const entry rope = in_attention("rope", "q, k", posenc::nope{});
  for (double result::* deviation : {&result::whole, &result::packed, &result::decode, &result::decode_to_whole,
                                     &result::packed_to_separate, &result::relative_error}) {
    result r;
    r.*deviation = 1.1e-5;
    const auto lines = complaints(rope, r);
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_NE(lines[0].find("1.10e-05"), std::string::npos) << lines[0];
  }
  entry nope = rope, sinusoidal = rope;
  nope.has_positions = sinusoidal.is_relative = false;
  result r;
  r.shuffled = r.relative_error = 1;
  EXPECT_EQ(complaints(nope, r).size(), 2u);
  EXPECT_TRUE(complaints(sinusoidal, r).empty());
}

TEST(Table, AlignsColumnsAndGroups) {
  table t({{"", "name"}, {"ab", "a"}, {"ab", "bb"}, {"", "text", true}, {"wide heading", "x"}});
  t.add({"one", "1", "2", "left", "3"});
  ::testing::internal::CaptureStdout();
  t.print();
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "       - ab -          wide heading\n"
            "name   a   bb   text              x\n"
            "----   ------   ----   ------------\n"
            "one    1    2   left              3\n");
}

TEST(Cpu, TheIsaOfTheBuildIsKnown) {
  EXPECT_FALSE(beyond_this_build().empty());
#if defined(__x86_64__)
  for (const cpu_feature& f : cpu_features()) EXPECT_TRUE(f.present || !f.built_for) << f.name;
  const std::set<std::string> isas = {"sse2", "sse4", "avx", "avx2", "avx512", "avx512bf16", "avx512amx"};
  EXPECT_EQ(isas.count(posenc::simd::isa()), 1u);
#endif
}

// ----------------------------------------------------------------------------------------------------------- situations

struct small_stage {
  model numbers{1};
  Eigen::ThreadPool pool{1};
  posenc::eigen_executor executor{pool};
  posenc::workspace memory;
  stage s{numbers, executor, memory};
  text words = tokenize("one two three one two four five six\n\nseven eight one two three\n\nnine ten eleven one");
  Eigen::MatrixXf embeddings = numbers.embed(words.tokens);
  learned_tables tables{words.size(), 1};
};

/// The comparisons of the tour would be worth nothing if they did not notice mistakes.
TEST(Situations, DecodingAtTheWrongPositionIsNoticed) {
  small_stage stage;
  for (const entry& e : all_encodings(stage.tables)) {
    const auto x = stage.s.place(e, stage.embeddings, posenc::token_range(stage.embeddings.cols()));
    const outputs whole = whole_text(stage.s, e, x);
    EXPECT_LE(difference(decode(stage.s, e, stage.embeddings, 5).out, whole), 4e-6 * largest_value(x)) << e.name;

    // All keys one position late, which is the same as queries one position early.
    outputs wrong(x.size());
    std::vector<double> order(static_cast<std::size_t>(x.size()));
    std::iota(order.begin(), order.end(), 0.0);
    const auto late = posenc::token_range(x.size(), 1).with_order(order.data());
    posenc::attention(x.q(), x.k(), x.v(), wrong.view(), {posenc::token_range(x.size()), late}, e.encoding,
                      posenc::causal{});
    const bool position_matters_in_attention = e.has_positions && e.place != "inputs";
    EXPECT_EQ(difference(wrong, whole) > 1e-3, position_matters_in_attention) << e.name;
  }
}

TEST(Situations, PackedDocumentsThatSeeEachOtherAreNoticed) {
  small_stage stage;
  for (const entry& e : all_encodings(stage.tables)) {
    const posenc::token_list packed = posenc::packed_documents(stage.words.documents);
    const auto x = stage.s.place(e, stage.embeddings, packed);
    const outputs together = packed_documents(stage.s, e, x, packed);
    const outputs apart = separate_documents(stage.s, e, stage.embeddings, stage.words.documents);
    EXPECT_LE(difference(together, apart), 4e-6 * largest_value(x)) << e.name;
    posenc::token_list open = packed;
    open.documents.clear();
    EXPECT_GT(difference(packed_documents(stage.s, e, x, open), apart), 1e-2) << e.name;
  }
}

TEST(Situations, ReferenceRowsAreThoseOfTheWholeText) {
  small_stage stage;
  const posenc::token_list tokens = posenc::packed_documents(std::vector{stage.words.size()});
  const entry e = in_attention("rope", "q, k", posenc::rope(posenc::frequency_ladder(head_dim)));
  const auto x = stage.s.place(e, stage.embeddings, tokens);
  const reference_rows all = reference(e, x, tokens, 1), some = reference(e, x, tokens, 3);
  ASSERT_EQ(all.count(), x.size());
  ASSERT_EQ(some.count(), (x.size() + 2) / 3);
  for (index_t r = 0; r < some.count(); ++r)
    EXPECT_EQ(row_difference(some.values.data() + r * outputs::width, all.values.data() + 3 * r * outputs::width), 0);
}

}  // namespace
}  // namespace tour

#endif
