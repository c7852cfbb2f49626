// SPDX-License-Identifier: Apache-2.0
// Attention: each case with its stored mask, with the mask made anew from its rule, through a cache, and by the
// reference.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/cached_attention.hpp>
#include <posenc/attention/kv_cache.hpp>
#include <posenc/attention/merge.hpp>
#include <posenc/core/minus_infinity.hpp>
#include <posenc/encoding/add_positions.hpp>
#include <posenc/encoding/learned.hpp>
#include <posenc/encoding/query_temperature.hpp>
#include <posenc/testing/reference.hpp>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "attention_case.hpp"
#include "cases.hpp"
#include "element_types.hpp"

namespace conformance {

namespace {

using namespace posenc;

/// Outputs [batch][head][query][dim] and lse [batch][head][query] that a case expects.
struct expected_result {
  array output, lse;

  expected_result(const json& c, const attention_case& of)
      : output(numbers(c, "output", {of.batch, of.heads, of.q_len, of.v_head_dim})),
        lse(numbers(c, "lse", {of.batch, of.heads, of.q_len})) {}
};

/// q, k and v as elements of one type, rows of a table added.
template <class T>
struct case_tensors {
  std::vector<T> q, k, v;
  const attention_case* of;

  explicit case_tensors(const attention_case& c)
      : q(elements<T>(c.q.values)), k(elements<T>(c.k.values)), v(elements<T>(c.v.values)), of(&c) {
    if (!c.encoding.table) return;
    add(q, c.q_tokens, c.q_len);
    add(k, c.k_tokens, c.kv_len);
    add(v, c.k_tokens, c.kv_len);
  }

  tensor_view<const T> q_view() const { return view_bhtd(q.data(), of->batch, of->heads, of->q_len, of->head_dim); }
  tensor_view<const T> k_view() const { return view_bhtd(k.data(), of->batch, of->kv_heads, of->kv_len, of->head_dim); }
  tensor_view<const T> v_view() const {
    return view_bhtd(v.data(), of->batch, of->kv_heads, of->kv_len, of->v_head_dim);
  }

 private:
  /// Heads are stored apart; embeddings have them side by side.
  void add(std::vector<T>& x, const token_list& tokens, index_t count) const {
    using real = compute_type<T>;
    const index_t width = of->heads * of->head_dim;
    const std::vector<real> table = elements<real>(of->encoding.table->values);
    const learned_positions positions(view_bhtd(table.data(), 1, 1, of->encoding.table->extent(0), width));
    std::vector<T> embeddings(x.size());
    const auto together = view_bthd(embeddings.data(), of->batch, count, of->heads, of->head_dim);
    const auto apart = view_bhtd(x.data(), of->batch, of->heads, count, of->head_dim);
    const auto copy = [](const auto& from, const auto& to) {
      for (index_t b = 0; b < from.batch(); ++b)
        for (index_t h = 0; h < from.heads(); ++h)
          for (index_t t = 0; t < from.tokens(); ++t)
            for (index_t d = 0; d < from.dim(); ++d) to(b, h, t, d) = from(b, h, t, d);
    };
    copy(apart, together);
    add_positions(view_bhtd(embeddings.data(), of->batch, 1, count, width), tokens.view(), positions);
    copy(together, apart);
  }
};

/// What a run produced.
template <class T>
struct result {
  std::vector<T> out;
  std::vector<compute_type<T>> lse;

  explicit result(const attention_case& c)
      : out(static_cast<std::size_t>(c.batch * c.heads * c.q_len * c.v_head_dim), T(7)),
        lse(static_cast<std::size_t>(c.batch * c.heads * c.q_len), compute_type<T>(7)) {}

  tensor_view<T> out_view(const attention_case& c) {
    return view_bhtd(out.data(), c.batch, c.heads, c.q_len, c.v_head_dim);
  }
  lse_view lse_of(const attention_case& c) { return lse_view(lse.data(), c.batch, c.heads, c.q_len); }
};

bool same_infinity(const double& a, const double& b) {
  return posenc::detail::is_minus_infinity(a) && posenc::detail::is_minus_infinity(b);
}

/// Compares one run. `T` chooses the column of bounds; rows that see nothing and infinite lse must be exact.
template <class T, class Out, class Lse>
void compare(const std::vector<Out>& out, const std::vector<Lse>& lse, const expected_result& expected,
             const attention_case& c, const char* how, case_report& report) {
  const double output_bound = attention_bounds.of<T>() * c.largest_value();
  std::size_t row = 0;
  for (index_t b = 0; b < c.batch; ++b)
    for (index_t h = 0; h < c.heads; ++h)
      for (index_t i = 0; i < c.q_len; ++i, ++row) {
        const double bound = c.sees_any(b, h, i) ? output_bound : 0;
        for (index_t d = 0; d < c.v_head_dim; ++d) {
          const std::size_t at = row * static_cast<std::size_t>(c.v_head_dim) + static_cast<std::size_t>(d);
          const double deviation = std::abs(wide(out[at]) - expected.output.values[at]);
          report.compare(type_name<T>(), deviation, bound);
          if (!(deviation <= bound))
            report.require(false, std::string(how) + ": output [" + std::to_string(b) + ", " + std::to_string(h) +
                                      ", " + std::to_string(i) + ", " + std::to_string(d) + "] in " + type_name<T>());
        }
        const double got = static_cast<double>(lse[row]), want = expected.lse.values[row];
        const bool finite = posenc::detail::is_finite(want);
        const bool right =
            finite ? std::abs(got - want) <= lse_bounds.of<T>() * (1 + std::abs(want)) : same_infinity(got, want);
        if (finite) report.compare(type_name<T>(), std::abs(got - want), lse_bounds.of<T>() * (1 + std::abs(want)));
        report.require(right, std::string(how) + ": lse [" + std::to_string(b) + ", " + std::to_string(h) + ", " +
                                  std::to_string(i) + "] in " + type_name<T>() + " is " + std::to_string(got));
      }
}

/// The mask made from the rule must be the stored one, bit for bit.
void compare_masks(const attention_case& c, case_report& report) {
  const posenc::testing::detail::token_table queries(c.q_tokens.view()), keys(c.k_tokens.view());
  index_t wrong = 0;
  for (index_t b = 0; b < c.batch; ++b)
    for (index_t h = 0; h < c.heads; ++h)
      for (index_t i = 0; i < c.q_len; ++i)
        for (index_t j = 0; j < c.kv_len; ++j)
          wrong +=
              posenc::testing::detail::is_visible(*c.rule, queries, keys, b, h, i, j) != c.visible.visible(b, h, i, j);
  report.compare("mask", static_cast<double>(wrong), 0);
}

/// Tokens [first, first + count) of one row, as the description of a single row.
token_list part_of(const token_list& all, index_t row, index_t first, index_t count) {
  token_list part;
  part.axes = all.axes;
  part.count = count;
  for (index_t axis = 0; axis < all.axes; ++axis)
    for (index_t t = first; t < first + count; ++t)
      part.positions.push_back(all.positions[static_cast<std::size_t>((axis * all.batch + row) * all.count + t)]);
  const auto row_of = [&](const auto& from, auto& to) {
    if (from.empty()) return;
    const auto begin = from.begin() + row * all.count + first;
    to.assign(begin, begin + count);
  };
  row_of(all.order, part.order);
  row_of(all.documents, part.documents);
  return part;
}

/// The same call with the keys in a cache, appended in two pieces.
template <class T>
void run_cached(const attention_case& c, const case_tensors<T>& x, const any_mask& mask, result<T>& to) {
  const token_view all = c.k_tokens.view();
  const index_t sequences = c.ragged() ? all.sequences() : c.batch;
  kv_cache<T> cache({.kv_heads = c.kv_heads,
                     .head_dim = c.head_dim,
                     .value_dim = c.v_head_dim,
                     .sequences = sequences,
                     .axes = c.k_tokens.axes});
  const auto some = [](const tensor_view<const T>& from, index_t row, index_t first, index_t count) {
    return tensor_view<const T>(from.row(row, 0, first), {1, from.heads(), count, from.dim()},
                                {0, from.stride(1), from.stride(2), 1});
  };
  for (index_t s = 0; s < sequences; ++s) {
    const index_t row = c.ragged() ? 0 : s;
    const index_t begin = c.ragged() ? all.sequence_begin(s) : 0,
                  end = c.ragged() ? all.sequence_begin(s + 1) : c.kv_len;
    const index_t middle = begin + (end - begin + 1) / 2;
    for (const auto& [from, until] : {std::pair{begin, middle}, std::pair{middle, end}}) {
      const token_list tokens = part_of(c.k_tokens, row, from, until - from);
      cache.append(s, some(x.k_view(), row, from, until - from), some(x.v_view(), row, from, until - from),
                   tokens.view(), c.encoding.inside);
    }
  }
  attention_options options = c.options();
  options.lse = to.lse_of(c);
  attention(x.q_view(), cache, to.out_view(c), c.q_tokens.view(), c.encoding.inside, mask, options);
}

/// All runs of one case in one element type.
template <class T>
void run_type(const attention_case& c, const expected_result& expected, case_report& report) {
  const case_tensors<T> x(c);
  const token_pair tokens{c.q_tokens.view(), c.k_tokens.view()};
  const auto plain = [&](const auto& mask, const char* how) {
    result<T> r(c);
    attention_options options = c.options();
    options.lse = r.lse_of(c);
    attention(x.q_view(), x.k_view(), x.v_view(), r.out_view(c), tokens, c.encoding.inside, mask, options);
    compare<T>(r.out, r.lse, expected, c, how, report);
  };
  plain(c.visible.view(), "stored mask");
  plain(*c.rule, "mask rule");
  // A dense mask counts keys from the start of the cache's sequence.
  if (c.ragged() && c.rule_is_dense) return;
  result<T> r(c);
  run_cached(c, x, *c.rule, r);
  compare<T>(r.out, r.lse, expected, c, "cache", report);
}

/// The double-precision reference has to agree as well, from inputs of any type.
void run_reference(const attention_case& c, const expected_result& expected, case_report& report) {
  const case_tensors<double> x(c);
  std::vector<double> out(expected.output.values.size()), lse(expected.lse.values.size());
  attention_options options = c.options();
  options.lse = lse_view(lse.data(), c.batch, c.heads, c.q_len);
  posenc::testing::attention(x.q_view(), x.k_view(), x.v_view(),
                             view_bhtd(out.data(), c.batch, c.heads, c.q_len, c.v_head_dim),
                             {c.q_tokens.view(), c.k_tokens.view()}, c.encoding.inside, *c.rule, options);
  compare<double>(out, lse, expected, c, "reference", report);
}

/// The factors that queries are multiplied by, where the case lists them.
void compare_temperature(const json& c, const attention_case& one, case_report& report) {
  if (!has(c, "query_temperature") || !has(c.at("query_temperature"), "factors")) return;
  const json& t = c.at("query_temperature");
  const query_temperature temperature{
      .coefficient = number(t, "coefficient"), .length = number(t, "length"), .shift = number(t, "shift")};
  const array factors = numbers(t, "factors", {one.batch, one.q_len});
  for (index_t b = 0; b < one.batch; ++b)
    for (index_t i = 0; i < one.q_len; ++i) {
      const double actual = temperature.factor(one.q_tokens.view().position(0, b, i));
      report.compare("factor", std::abs(actual - factors.at(b, i)), ladder_bound * factors.at(b, i));
    }
}

}  // namespace

void run_attention(const json& c, case_report& report) {
  const attention_case one(c);
  const expected_result expected(c, one);
  compare_temperature(c, one, report);
  if (c.value("kind", "") == "ragged" && !one.ragged()) throw malformed_case("kind ragged has no cu_seqlens");
  compare_masks(one, report);
  for_each_type([&]<class T>() { run_type<T>(one, expected, report); });
  run_reference(one, expected, report);
}

namespace {

/// One range of keys of a merge case.
struct key_range {
  index_t begin, end;
  expected_result expected;
};

template <class T>
void run_merge_type(const attention_case& c, const std::vector<key_range>& ranges, const expected_result& without_sinks,
                    const expected_result& expected, case_report& report) {
  using real = compute_type<T>;
  const case_tensors<T> x(c);
  std::vector<result<real>> results;
  for (const key_range& range : ranges) {
    const index_t count = range.end - range.begin;
    const auto some = [&](const tensor_view<const T>& from) {
      return tensor_view<const T>(from.row(0, 0, range.begin), {from.batch(), from.heads(), count, from.dim()},
                                  {from.stride(0), from.stride(1), from.stride(2), 1});
    };
    token_list k_tokens = part_of(c.k_tokens, 0, range.begin, count);
    for (index_t row = 1; row < c.batch; ++row) {
      const token_list next = part_of(c.k_tokens, row, range.begin, count);
      if (k_tokens.axes != 1) throw skip_case("merging a batch with several position axes is not known");
      k_tokens.positions.insert(k_tokens.positions.end(), next.positions.begin(), next.positions.end());
      k_tokens.order.insert(k_tokens.order.end(), next.order.begin(), next.order.end());
      k_tokens.documents.insert(k_tokens.documents.end(), next.documents.begin(), next.documents.end());
      ++k_tokens.batch;
    }
    const stored_mask& stored = c.visible;
    const dense_mask<std::uint8_t> dense(stored.data.data() + range.begin,
                                         {stored.extents[0], stored.extents[1], stored.extents[2], count},
                                         stored.strides);
    const auto run = [&](const auto& mask, const char* how) {
      result<real> r(c);
      attention_options options = c.options();
      options.sinks = {};
      options.lse = r.lse_of(c);
      attention(x.q_view(), some(x.k_view()), some(x.v_view()), r.out_view(c), {c.q_tokens.view(), k_tokens.view()},
                c.encoding.inside, mask, options);
      // A part may see nothing of its range where the whole sees something, so the rows are judged by their own lse.
      compare<T>(r.out, r.lse, range.expected, c, how, report);
      return r;
    };
    run(dense, "part with the stored mask");
    if (c.rule_is_dense) {
      results.push_back(run(dense, "part"));
    } else {
      results.push_back(run(*c.rule, "part with the mask rule"));
    }
  }
  std::vector<attention_part<real>> parts;
  for (result<real>& r : results) parts.push_back({r.out_view(c), r.lse.data()});
  const auto merged = [&](const attention_options& given, const expected_result& to, const char* how) {
    result<real> r(c);
    attention_options options = given;
    options.lse = r.lse_of(c);
    merge(std::span<const attention_part<real>>(parts), r.out_view(c), options);
    compare<T>(r.out, r.lse, to, c, how, report);
  };
  merged({}, without_sinks, "merged without sinks");
  attention_options with_sinks;
  with_sinks.sinks = c.sinks;
  merged(with_sinks, expected, "merged");
}

}  // namespace

void run_merge(const json& c, case_report& report) {
  const attention_case one(c);
  if (one.ragged()) throw skip_case("merging ragged parts is not known");
  const expected_result expected(c, one), without_sinks(field(c, "merged_without_sinks"), one);
  std::vector<key_range> ranges;
  for (const json& part : field(c, "parts")) {
    ranges.push_back({whole(part, "k_begin"), whole(part, "k_end"), expected_result(part, one)});
    if (ranges.back().begin < 0 || ranges.back().end < ranges.back().begin || ranges.back().end > one.kv_len)
      throw malformed_case("a part has a range outside the keys");
  }
  compare_masks(one, report);
  for_each_type([&]<class T>() { run_merge_type<T>(one, ranges, without_sinks, expected, report); });
  // The whole at once has to agree, too.
  for_each_type([&]<class T>() { run_type<T>(one, expected, report); });
  run_reference(one, expected, report);
}

}  // namespace conformance
