// SPDX-License-Identifier: Apache-2.0
#include <posenc/attention/attention.hpp>
#include <posenc/attention/merge.hpp>
#include <posenc/encoding/alibi.hpp>

#include <array>
#include <initializer_list>
#include <span>
#include <thread>

#include "attention/attention_support.hpp"
#include "attention/mask_support.hpp"
#include "support/expect_error.hpp"

namespace {

using attention_test::buffer;
using attention_test::index_t;
using attention_test::layout;
using attention_test::make_buffer;
using attention_test::pick;
using attention_test::random_buffer;
using posenc::attention_part;
using posenc::errc;
using posenc::tensor_view;
using posenc::token_range;

template <class T>
class Merge : public testing::Test {};
using reals = testing::Types<float, double>;
TYPED_TEST_SUITE(Merge, reals);

// Attention over ranges of the keys, merged, is attention over all of them: with and without sinks, for rows that see
// nothing in some part or in all, into an output that is one of the parts.
TYPED_TEST(Merge, PartsOfTheKeysGiveTheWhole) {
  using T = TypeParam;
  attention_test::random_engine random(1);
  for (int round = 0; round < 60; ++round) {
    const index_t heads = 2, q_len = pick(random, 1, 6), kv_len = pick(random, 1, 200),
                  value_dim = pick(random, 1, 100);
    const auto q = random_buffer<T>(random, 2, heads, q_len, 8), k = random_buffer<T>(random, 2, 1, kv_len, 8),
               v = random_buffer<T>(random, 2, 1, kv_len, value_dim);
    const posenc::any_mask mask = mask_test::random_tree(random, 2).mask;
    const posenc::alibi encoding(heads);
    const double first_query = static_cast<double>(pick(random, -10, kv_len));
    const auto rows = static_cast<std::size_t>(2 * heads * q_len);
    const std::vector<T> sinks = {T(0.5), T(-1.25)};
    const bool with_sinks = round % 2 == 0;

    std::vector<T> lse(rows), merged_lse(rows);
    const auto whole = make_buffer<T>(2, heads, q_len, value_dim);
    posenc::attention_options options;
    options.lse = posenc::lse_view(lse.data(), 2, heads, q_len);
    if (with_sinks) options.sinks = sinks;
    posenc::attention(q.view, k.view, v.view, whole.view, {token_range(q_len, first_query), token_range(kv_len)},
                      encoding, mask, options);

    std::vector<buffer<T>> outs;
    std::vector<std::vector<T>> lses;
    std::vector<index_t> bounds{0, kv_len};
    for (int i = 0; i < 3; ++i) bounds.push_back(pick(random, 0, kv_len));
    std::sort(bounds.begin(), bounds.end());
    for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
      const index_t n = bounds[i + 1] - bounds[i];
      const auto range = [&](const buffer<T>& x) {
        return tensor_view<const T>(n == 0 ? nullptr : x.view.row(0, 0, bounds[i]), {2, 1, n, x.view.dim()},
                                    {x.view.stride(0), x.view.stride(1), x.view.stride(2), 1});
      };
      outs.push_back(make_buffer<T>(random, layout::scattered, 2, heads, q_len, value_dim));
      lses.emplace_back(rows);
      posenc::attention_options part;
      part.lse = posenc::lse_view(lses.back().data(), 2, heads, q_len);
      posenc::attention(q.view, range(k), range(v), outs.back().view,
                        {token_range(q_len, first_query), token_range(n, static_cast<double>(bounds[i]))}, encoding,
                        mask, part);
    }
    std::vector<attention_part<T>> parts;
    for (std::size_t i = 0; i < outs.size(); ++i) parts.push_back({outs[i].view, lses[i].data()});
    options.lse = posenc::lse_view(merged_lse.data(), 2, heads, q_len);
    const std::span<const attention_part<T>> all(parts);
    EXPECT_FALSE(posenc::check(all, outs[1].view, options).has_value());
    posenc::merge(all, outs[1].view, options);  // in place of a part
    EXPECT_TRUE(outs[1].gaps_untouched());

    const double bound = attention_test::tolerance<T>();
    whole.for_each([&](index_t b, index_t h, index_t t, index_t d) {
      ASSERT_TRUE(attention_test::within(outs[1].view(b, h, t, d), attention_test::to_double(whole.view(b, h, t, d)),
                                         4 * bound))
          << "round " << round << " [" << b << ", " << h << ", " << t << ", " << d << "]: " << outs[1].view(b, h, t, d)
          << " and " << whole.view(b, h, t, d);
    });
    if (testing::Test::HasFatalFailure()) return;
    for (std::size_t i = 0; i < rows; ++i) {
      if (posenc::detail::is_minus_infinity(lse[i])) {
        EXPECT_TRUE(posenc::detail::is_minus_infinity(merged_lse[i])) << round;
      } else {
        EXPECT_TRUE(attention_test::within(merged_lse[i], static_cast<double>(lse[i]),
                                           2 * bound * (1 + std::fabs(static_cast<double>(lse[i])))))
            << merged_lse[i] << " and " << lse[i];
      }
    }
  }
}

TYPED_TEST(Merge, OnePartIsItself) {
  using T = TypeParam;
  attention_test::random_engine random(2);
  const auto part = random_buffer<T>(random, 1, 2, 3, 70), out = make_buffer<T>(1, 2, 3, 70);
  const std::vector<T> lse = {T(1), T(-2), T(300), T(0), T(-1e5), T(7)};
  posenc::merge<T>({{part.view, lse.data()}}, out.view);
  EXPECT_TRUE(attention_test::same_elements(part, out));
}

// Logits far apart: the smaller part vanishes without an overflow.
TYPED_TEST(Merge, FarApart) {
  using T = TypeParam;
  T a = 4, b = 10, out = 0;
  const T la = -10000, lb = 10000;
  const auto view = [](T* x) { return posenc::view_bhtd(x, 1, 1, 1, 1); };
  posenc::merge<T>({{view(&a), &la}, {view(&b), &lb}}, view(&out));
  EXPECT_EQ(out, T(10));
  posenc::merge<T>({{view(&b), &lb}, {view(&a), &la}}, view(&out));
  EXPECT_EQ(out, T(10));
}

// Sinks far above and far below: no overflow, nothing lost.
TYPED_TEST(Merge, FarSinks) {
  using T = TypeParam;
  const auto view = [](T* x) { return posenc::view_bhtd(x, 1, 1, 1, 1); };
  T a = 4, out = 1;
  const T lse_of_part = 3;
  double lse = 0;
  posenc::attention_options options;
  options.lse = posenc::lse_view(&lse, 1, 1, 1);
  for (const double sink : {1000.0, -1000.0}) {
    const std::vector<double> sinks = {sink};
    options.sinks = sinks;
    posenc::merge<T>({{view(&a), &lse_of_part}}, view(&out), options);
    EXPECT_EQ(out, sink > 0 ? T(0) : T(4));
    EXPECT_EQ(lse, sink > 0 ? 1000.0 : 3.0);
    T nothing;
    posenc::detail::set_minus_infinity(nothing);
    posenc::merge<T>({{view(&a), &nothing}}, view(&out), options);
    EXPECT_EQ(out, T(0));
    EXPECT_EQ(lse, sink);
  }
}

// What a part holds where it saw nothing does not count.
TYPED_TEST(Merge, EmptyPartsMayHoldAnything) {
  using T = TypeParam;
  attention_test::random_engine random(3);
  T a = 0, b = 3, out = 1;
  attention_test::poison(a, random);
  T la, lb = 2;
  posenc::detail::set_minus_infinity(la);
  double lse = 0;
  const auto view = [](T* x) { return posenc::view_bhtd(x, 1, 1, 1, 1); };
  posenc::attention_options options;
  options.lse = posenc::lse_view(&lse, 1, 1, 1);
  posenc::merge<T>({{view(&a), &la}, {view(&b), &lb}}, view(&out), options);
  EXPECT_EQ(out, T(3));
  EXPECT_EQ(lse, 2.0);
  const std::vector<double> sink = {0.75};
  options.sinks = sink;
  posenc::merge<T>({{view(&a), &la}}, view(&out), options);
  EXPECT_EQ(out, T(0));
  EXPECT_EQ(lse, 0.75) << "a row that saw nothing comes out as its sink";
}

/// Three parts of the same random rows [2, 2, 5, 70].
template <class T>
struct three_parts {
  std::vector<buffer<T>> outs;
  std::vector<std::vector<T>> lses;
  std::vector<attention_part<T>> parts;

  explicit three_parts(attention_test::random_engine& random) {
    for (int i = 0; i < 3; ++i) {
      outs.push_back(random_buffer<T>(random, 2, 2, 5, 70));
      lses.emplace_back();
      for (int row = 0; row < 20; ++row) lses.back().push_back(static_cast<T>(attention_test::random_number(random)));
    }
    for (std::size_t i = 0; i < 3; ++i) parts.push_back({outs[i].view, lses[i].data()});
  }
};

// However the parts are held, and whatever out is.
TYPED_TEST(Merge, AnyRangeOfPartsAndAnyView) {
  using T = TypeParam;
  attention_test::random_engine random(4);
  three_parts<T> x(random);
  const auto expected = make_buffer<T>(2, 2, 5, 70);
  posenc::merge(x.parts, expected.view);
  const auto same = [&](auto&& parts) {
    const auto out = make_buffer<T>(2, 2, 5, 70);
    EXPECT_FALSE(posenc::check(parts, out.view).has_value());
    posenc::merge(parts, out.view);
    return attention_test::same_elements(expected, out);
  };
  const attention_part<T> in_array[] = {x.parts[0], x.parts[1], x.parts[2]};
  EXPECT_TRUE(same(in_array));
  EXPECT_TRUE(same(std::array<attention_part<T>, 3>{x.parts[0], x.parts[1], x.parts[2]}));
  EXPECT_TRUE(same(std::span<attention_part<T>>(x.parts)));
  EXPECT_TRUE(same(std::span<const attention_part<T>, 3>(in_array)));
  EXPECT_TRUE(same(std::initializer_list<attention_part<T>>{x.parts[0], x.parts[1], x.parts[2]}));
  const auto out = make_buffer<T>(2, 2, 5, 70);
  posenc::merge({x.parts[0], x.parts[1], x.parts[2]}, out.view);
  EXPECT_TRUE(attention_test::same_elements(expected, out));
  posenc::merge<T>(x.parts, out.view);
  EXPECT_TRUE(attention_test::same_elements(expected, out));

  // One head of one row as a matrix: a column is a query.
  Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic> columns(70, 5);
  std::vector<attention_part<T>> first;
  for (std::size_t i = 0; i < 3; ++i) first.push_back({x.outs[i].view.batch(0, 1).heads(0, 1), x.lses[i].data()});
  posenc::merge(first, columns);
  for (index_t t = 0; t < 5; ++t)
    for (index_t d = 0; d < 70; ++d) EXPECT_EQ(columns(d, t), expected.view(0, 0, t, d));
}

// 16-bit elements are the float result, rounded once.
template <class Narrow>
void expect_rounded() {
  attention_test::random_engine random(5);
  three_parts<float> x(random);
  const auto wide = make_buffer<float>(2, 2, 5, 70);
  const auto narrow = make_buffer<Narrow>(2, 2, 5, 70);
  posenc::merge(x.parts, wide.view);
  posenc::merge(x.parts, narrow.view);
  wide.for_each([&](index_t b, index_t h, index_t t, index_t d) {
    EXPECT_EQ(attention_test::to_double(narrow.view(b, h, t, d)),
              attention_test::to_double(static_cast<Narrow>(wide.view(b, h, t, d))));
  });
  EXPECT_TRUE(narrow.gaps_untouched());
}
TEST(Merge16Bit, IsTheFloatResultRounded) {
  expect_rounded<posenc::half>();
  expect_rounded<posenc::bfloat16>();
}

/// Runs tasks last to first on threads of their own, and counts them.
struct backwards {
  index_t* tasks;
  template <class F>
  void parallel_for(index_t n, F&& f) const {
    *tasks += n;
    for (index_t i = n; i-- > 0;) std::thread([&, i] { f(i); }).join();
  }
};

TYPED_TEST(Merge, AnyExecutorGivesTheSameBits) {
  using T = TypeParam;
  attention_test::random_engine random(6);
  const index_t heads = 3, queries = 401, dim = 130;
  std::vector<buffer<T>> outs;
  std::vector<std::vector<T>> lses(2);
  for (std::vector<T>& lse : lses) {
    outs.push_back(random_buffer<T>(random, 2, heads, queries, dim));
    for (index_t row = 0; row < 2 * heads * queries; ++row)
      lse.push_back(static_cast<T>(attention_test::random_number(random)));
  }
  const std::vector<attention_part<T>> parts = {{outs[0].view, lses[0].data()}, {outs[1].view, lses[1].data()}};
  const auto run = [&](const buffer<T>& out, auto&& executor) {
    std::vector<T> lse(lses[0].size());
    posenc::attention_options options;
    options.lse = posenc::lse_view(lse.data(), 2, heads, queries);
    posenc::merge(parts, out.view, options, executor);
    return lse;
  };
  const auto serial = make_buffer<T>(2, heads, queries, dim), cut = make_buffer<T>(2, heads, queries, dim);
  index_t tasks = 0;
  const auto lse = run(serial, posenc::serial_executor{});
  EXPECT_EQ(run(cut, backwards{&tasks}), lse);
  EXPECT_TRUE(attention_test::same_elements(serial, cut));
  EXPECT_GT(tasks, 4) << "the test means to cut the work";

  // The last rows by themselves.
  const auto last = [&](const buffer<T>& x) { return x.view.batch(1, 1).heads(2, 1).tokens(360, 41); };
  std::vector<attention_part<T>> few;
  for (std::size_t i = 0; i < 2; ++i) few.push_back({last(outs[i]), lses[i].data() + lses[i].size() - 41});
  const auto alone = make_buffer<T>(1, 1, 41, dim);
  posenc::merge(few, alone.view);
  alone.for_each([&](index_t b, index_t h, index_t t, index_t d) {
    ASSERT_EQ(alone.view(b, h, t, d), last(serial)(b, h, t, d)) << t << ", " << d;
  });
}

// The whole's lse in the place of a part's, as out may be a part's.
TYPED_TEST(Merge, LseInPlaceOfAPart) {
  using T = TypeParam;
  attention_test::random_engine random(7);
  three_parts<T> x(random);
  std::vector<T> apart(20);
  const auto out = make_buffer<T>(2, 2, 5, 70);
  posenc::attention_options options;
  options.lse = posenc::lse_view(apart.data(), 2, 2, 5);
  posenc::merge(x.parts, out.view, options);
  options.lse = posenc::lse_view(x.lses[1].data(), 2, 2, 5);
  posenc::merge(x.parts, x.outs[0].view, options);
  EXPECT_EQ(x.lses[1], apart);
  EXPECT_TRUE(attention_test::same_elements(x.outs[0], out));
}

TEST(MergeErrors, EachOne) {
  std::vector<float> numbers(200), lse(6);
  const auto view = [&](index_t tokens) { return posenc::view_bhtd(numbers.data(), 1, 2, tokens, 4); };
  const auto out = posenc::view_bhtd(numbers.data() + 100, 1, 2, 3, 4);
  const auto before = numbers;
  const auto expect = [&](std::vector<attention_part<float>> parts, const tensor_view<float>& to,
                          const posenc::attention_options& options, errc code, const char* text) {
    const std::span<const attention_part<float>> all(parts);
    static_assert(noexcept(posenc::check(all, to, options)));
    const posenc::maybe_error value = posenc::check(all, to, options);
    ASSERT_TRUE(value.has_value()) << text;
    EXPECT_NE(std::string(value->what()).find(text), std::string::npos) << value->what();
    POSENC_EXPECT_ERROR(posenc::merge(all, to, options), code, value->what());
    EXPECT_EQ(numbers, before);
  };
  const attention_part<float> good{view(3), lse.data()};
  posenc::attention_options options;
  options.lse = posenc::lse_view(out.data_handle() + 1, 1, 2, 3);
  expect({good}, out, options, errc::invalid_layout, "options.lse: overlaps out");
  options.lse = posenc::lse_view(numbers.data() + 1, 1, 2, 3);
  expect({good}, out, options, errc::invalid_layout, "options.lse: overlaps the out of a part");
  options = {};
  expect({}, out, options, errc::invalid_shape, "parts: is empty");
  expect({good, {view(2), lse.data()}}, out, options, errc::invalid_shape, "part 1 has extent 2 on axis 2; allowed: 3");
  expect({good, {view(3), nullptr}}, out, options, errc::invalid_layout, "part 1 has a null lse");
  expect({{posenc::view_bhtd(static_cast<float*>(nullptr), 1, 2, 3, 4), lse.data()}}, out, options,
         errc::invalid_layout, "null");
  expect({good}, posenc::view_bhtd(static_cast<float*>(nullptr), 1, 2, 3, 4), options, errc::invalid_layout,
         "out: is null");
  expect({good}, {numbers.data() + 100, {1, 2, 3, 4}, {0, 0, 4, 1}}, options, errc::invalid_layout,
         "out: has stride 0");
  options.scale = 1;
  expect({good}, out, options, errc::invalid_value, "sinks and lse only");
  options.scale.reset();
  options.softcap = 2;
  expect({good}, out, options, errc::invalid_value, "sinks and lse only");
  options = {};
  const std::vector<double> sinks(3);
  options.sinks = sinks;
  expect({good}, out, options, errc::invalid_shape, "options.sinks: has 3 entries");
  options = {};
  options.lse = posenc::lse_view(lse.data(), 1, 2, 2);
  expect({good}, out, options, errc::invalid_shape, "options.lse: has extents [1, 2, 2]");
}

// An lse that is written where another row's is still to be read, and results over a part's lse.
TEST(MergeErrors, OverlapsOfLse) {
  std::vector<float> numbers(200, 1.0f), lse(12);
  const std::vector<attention_part<float>> parts = {{posenc::view_bhtd(numbers.data(), 1, 2, 3, 4), lse.data()}};
  const auto out = posenc::view_bhtd(numbers.data() + 100, 1, 2, 3, 4);
  posenc::attention_options options;
  for (const posenc::lse_view& shifted :
       {posenc::lse_view(lse.data() + 1, 1, 2, 3), posenc::lse_view(lse.data(), {1, 2, 3}, {6, 1, 2}),
        posenc::lse_view(reinterpret_cast<double*>(lse.data()), 1, 2, 3)}) {
    options.lse = shifted;
    POSENC_EXPECT_ERROR(posenc::merge(parts, out, options), errc::invalid_layout,
                        "options.lse: overlaps the lse of a part; allowed: memory of its own, or exactly a part's");
  }
  const std::vector<attention_part<float>> over = {{parts[0].out, out.data_handle() + 20}};
  POSENC_EXPECT_ERROR(posenc::merge(over, out), errc::invalid_layout, "out: overlaps the lse of part 0");
  EXPECT_EQ(numbers, std::vector<float>(200, 1.0f));
}

// Rows without elements still have an lse; no rows need none.
TEST(MergeErrors, ValuesOfNoElements) {
  const std::vector<float> lse = {1, 2, 3};
  std::vector<float> merged(3);
  float* none = nullptr;
  const auto out = posenc::view_bhtd(none, 1, 1, 3, 0);
  posenc::attention_options options;
  options.lse = posenc::lse_view(merged.data(), 1, 1, 3);
  posenc::merge<float>({{out, lse.data()}}, out, options);
  EXPECT_EQ(merged, lse);
  POSENC_EXPECT_ERROR((posenc::merge<float>({{out, nullptr}}, out, options)), errc::invalid_layout,
                      "part 0 has a null lse");
  const auto nothing = posenc::view_bhtd(none, 1, 1, 0, 4);
  posenc::merge<float>({{nothing, nullptr}}, nothing);
}

// Only the parts' own type fits their place.
TEST(MergeErrors, NarrowOutInPlaceOfAPart) {
  std::vector<float> numbers(24, 1.0f), lse(6);
  const std::vector<attention_part<float>> parts = {{posenc::view_bhtd(numbers.data(), 1, 2, 3, 4), lse.data()}};
  const auto narrow = posenc::view_bhtd(reinterpret_cast<posenc::half*>(numbers.data()), 1, 2, 3, 4);
  POSENC_EXPECT_ERROR(posenc::merge(parts, narrow), errc::invalid_layout, "out: overlaps part 0");
}

// Half over a part, half not: then what is read has been overwritten before.
TEST(MergeErrors, OutThatOverlapsAPart) {
  std::vector<float> numbers(200, 1.0f), lse(6);
  const attention_part<float> part{posenc::view_bhtd(numbers.data(), 1, 2, 3, 4), lse.data()};
  const auto out = posenc::view_bhtd(numbers.data() + 4, 1, 2, 3, 4);
  POSENC_EXPECT_ERROR((posenc::merge<float>({part, part}, out)), errc::invalid_layout, "overlaps");
}

}  // namespace
