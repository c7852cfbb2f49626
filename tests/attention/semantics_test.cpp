// SPDX-License-Identifier: Apache-2.0
// Decisions of this library as numbers (tests/data/attention_semantics.json): what padding, unseen rows, sinks, ragged
// batches, merging and orders give. Float and double.
#include <posenc/attention/merge.hpp>
#include <posenc/encoding/alibi.hpp>
#include <posenc/encoding/rope.hpp>
#include <posenc/ladder/frequency_ladder.hpp>

#include "attention/simple_call.hpp"

namespace {

using attention_test::buffer;
using attention_test::index_t;
using nlohmann::json;
using posenc::any_mask;

index_t extent(const json& c, const char* name) { return c.at(name).get<index_t>(); }

template <class T>
T number(const json& x) {
  if (x.is_number()) return attention_test::from_double<T>(x.get<double>());
  auto bits = attention_test::infinity_bits<T>();
  if (x == "-inf") bits |= decltype(bits){1} << (8 * sizeof(T) - 1);
  if (x == "nan") bits |= 1;
  return std::bit_cast<T>(bits);
}

template <class T>
buffer<T> tensor(const json& x) {
  const auto n = [](const json& list) { return static_cast<index_t>(list.size()); };
  auto b = attention_test::make_buffer<T>(n(x), n(x[0]), n(x[0][0]), n(x[0][0]) == 0 ? 1 : n(x[0][0][0]));
  b.for_each([&](index_t i, index_t h, index_t t, index_t d) {
    const auto at = [](index_t a) { return static_cast<std::size_t>(a); };
    b.view(i, h, t, d) = number<T>(x[at(i)][at(h)][at(t)][at(d)]);
  });
  return b;
}

/// Positions, orders, documents and bounds of one side ("q" or "k").
posenc::token_list tokens_of(const json& c, const std::string& side) {
  posenc::token_list list;
  const json& positions = c.at(side + "_positions");  // [batch][token], or [axis][batch][token]
  const auto append = [&](const json& rows) {
    list.batch = static_cast<index_t>(rows.size());
    for (const json& row : rows) {
      list.count = static_cast<index_t>(row.size());
      for (const json& p : row) list.positions.push_back(p.get<double>());
    }
  };
  const bool several_axes = !positions[0].empty() && positions[0][0].is_array();
  list.axes = several_axes ? static_cast<index_t>(positions.size()) : 1;
  if (several_axes) {
    for (const json& axis : positions) append(axis);
  } else {
    append(positions);
  }
  if (c.contains(side + "_order"))
    for (const json& row : c.at(side + "_order"))
      for (const json& o : row) list.order.push_back(o.get<double>());
  if (c.contains(side + "_documents"))
    for (const json& row : c.at(side + "_documents"))
      for (const json& d : row) list.documents.push_back(d.get<std::int64_t>());
  if (c.contains("cu_seqlens_" + side)) list.cu_seqlens = c.at("cu_seqlens_" + side).get<std::vector<std::int64_t>>();
  return list;
}

posenc::any_encoding encoding_of(const json& e) {
  const std::string type = e.at("type");
  if (type == "alibi") {
    const auto slopes = e.at("slopes").get<std::vector<double>>();
    return posenc::alibi(std::span<const double>(slopes));
  }
  if (type == "rope") {
    posenc::rope_options options;
    options.pairing = e.at("style") == "half" ? posenc::pairing::half : posenc::pairing::interleaved;
    options.offset = e.at("offset").get<index_t>();
    if (e.contains("frequency_axis")) options.frequency_axis = e.at("frequency_axis").get<std::vector<index_t>>();
    const auto inv_freq = e.at("inv_freq").get<std::vector<double>>();
    return posenc::rope(posenc::frequency_ladder::from_inv_freq(inv_freq, e.at("attention_factor").get<double>()),
                        options);
  }
  EXPECT_EQ(type, "none");
  return posenc::nope{};
}

/// The mask of a rule. `dense` is what the rule of that name stands for.
any_mask mask_of(const json& rule, const any_mask& dense) {
  const std::string name = rule.begin().key();
  const json& x = rule.begin().value();
  if (name == "all") return posenc::bidirectional{};
  if (name == "documents") return posenc::documents{};
  if (name == "causal") return posenc::causal{};
  if (name == "window")
    return posenc::sliding_window{.left = x.at("left").get<double>(), .right = x.at("right").get<double>()};
  if (name == "prefix") return posenc::prefix{.length = x.at("n").get<double>()};
  if (name == "chunk") return posenc::chunk{.size = x.at("c").get<double>()};
  if (name == "dense") return dense;
  if (name == "not") return !mask_of(x, dense);
  any_mask all = mask_of(x[0], dense);
  for (std::size_t i = 1; i < x.size(); ++i)
    all = name == "and" ? any_mask(all & mask_of(x[i], dense)) : any_mask(all | mask_of(x[i], dense));
  return all;
}

/// A stored dense mask of a case; `cells` is its memory.
posenc::dense_mask<int> dense_of(const json& d, std::vector<int>& cells) {
  cells = d.at("data").get<std::vector<int>>();
  return {cells.data() + d.at("offset").get<index_t>(), d.at("extents").get<std::array<index_t, 4>>(),
          d.at("strides").get<std::array<index_t, 4>>()};
}

template <class T>
void expect_same(const std::string& what, const json& wanted_out, const json& wanted_lse, const buffer<T>& out,
                 const std::vector<double>& lse, double largest_value) {
  const buffer<double> expected = tensor<double>(wanted_out);
  const double bound = attention_test::tolerance<T>();
  out.for_each([&](index_t b, index_t h, index_t t, index_t d) {
    EXPECT_TRUE(attention_test::within(out.view(b, h, t, d), expected.view(b, h, t, d), bound * largest_value))
        << what << " [" << b << ", " << h << ", " << t << ", " << d << "]: " << out.view(b, h, t, d) << ", expected "
        << expected.view(b, h, t, d);
  });
  std::size_t row = 0;
  for (const json& batch : wanted_lse)
    for (const json& head : batch)
      for (const json& value : head) {
        const double got = lse[row++];
        if (value.is_string()) {
          EXPECT_TRUE(posenc::detail::is_minus_infinity(got)) << what << ": lse " << got << " of row " << row - 1;
        } else {
          const double wanted = value.get<double>();
          EXPECT_TRUE(attention_test::within(got, wanted, bound * (1 + std::fabs(wanted))))
              << what << ": lse " << got << " of row " << row - 1 << ", expected " << wanted;
        }
      }
}

/// max |v| of a key that some query sees; 1 if there is none.
double largest_value_of(const json& c) {
  const bool per_head = c.contains("mask_per_head");
  const auto at = [](index_t i) { return static_cast<std::size_t>(i); };
  double largest = 0;
  for (index_t b = 0; b < extent(c, "batch"); ++b)
    for (index_t h = 0; h < extent(c, "heads"); ++h)
      for (index_t i = 0; i < extent(c, "q_len"); ++i)
        for (index_t j = 0; j < extent(c, "kv_len"); ++j) {
          const json& seen = per_head ? c["mask_per_head"][at(b)][at(h)] : c["mask"][at(b)];
          if (seen[at(i)][at(j)] == 0) continue;
          for (const json& x : c["v"][at(b)][at(h / (extent(c, "heads") / extent(c, "kv_heads")))][at(j)])
            largest = std::fmax(largest, std::fabs(x.get<double>()));
        }
  return largest > 0 ? largest : 1;
}

template <class T>
void run_case(const json& c) {
  const buffer<T> q = tensor<T>(c.at("q")), k = tensor<T>(c.at("k")), v = tensor<T>(c.at("v"));
  const posenc::token_list q_tokens = tokens_of(c, "q"), k_tokens = tokens_of(c, "k");
  std::vector<int> cells(1, 1);
  any_mask dense = posenc::bidirectional{};
  if (c.contains("dense_mask")) dense = dense_of(c.at("dense_mask"), cells);
  const any_mask mask = mask_of(c.at("mask_rule"), dense);
  posenc::attention_options options;
  options.scale = c.at("scale").get<double>();
  std::vector<double> sinks;
  if (!c.at("sinks").is_null()) sinks = c.at("sinks").get<std::vector<double>>();
  options.sinks = sinks;

  const auto out_like = [&] {
    return attention_test::make_buffer<T>(q.view.batch(), q.view.heads(), q.view.tokens(), v.view.dim());
  };
  const buffer<T> out = out_like();
  std::vector<double> lse(static_cast<std::size_t>(q.view.batch() * q.view.heads() * q.view.tokens()));
  const auto lse_of = [&](auto& numbers) {
    return posenc::lse_view(numbers.data(), q.view.batch(), q.view.heads(), q.view.tokens());
  };
  options.lse = lse_of(lse);
  posenc::attention(q.read_only(), k.read_only(), v.read_only(), out.view, {q_tokens, k_tokens},
                    encoding_of(c.at("encoding")), mask, options);
  const double largest = largest_value_of(c);
  expect_same(c.at("name"), c.at("output"), c.at("lse"), out, lse, largest);
  if (c.at("kind") != "merge") return;

  // The parts over ranges of keys, without sinks, and what they merge to.
  options.sinks = {};
  std::vector<buffer<T>> outs;
  std::vector<std::vector<T>> part_lses;
  for (const json& part : c.at("parts")) {
    const index_t begin = extent(part, "k_begin"), count = extent(part, "k_end") - begin;
    const auto range = [&](const buffer<T>& x) {
      return posenc::tensor_view<const T>(x.view.row(0, 0, begin),
                                          {x.view.batch(), x.view.heads(), count, x.view.dim()},
                                          {x.view.stride(0), x.view.stride(1), x.view.stride(2), 1});
    };
    posenc::token_list keys = k_tokens;
    keys.positions =
        std::vector<double>(k_tokens.positions.begin() + begin, k_tokens.positions.begin() + begin + count);
    keys.count = count;
    ASSERT_EQ(k_tokens.positions.size(), static_cast<std::size_t>(k_tokens.count)) << "one row, one axis";
    outs.push_back(out_like());
    part_lses.emplace_back(lse.size());
    options.lse = lse_of(part_lses.back());
    posenc::attention(q.read_only(), range(k), range(v), outs.back().view, {q_tokens, keys},
                      encoding_of(c.at("encoding")), mask, options);
    const std::vector<double> wide(part_lses.back().begin(), part_lses.back().end());
    expect_same(c.at("name").get<std::string>() + ", part", part.at("output"), part.at("lse"), outs.back(), wide,
                largest);
  }
  std::vector<posenc::attention_part<T>> parts;
  for (std::size_t i = 0; i < outs.size(); ++i) parts.push_back({outs[i].view, part_lses[i].data()});
  posenc::attention_options merging;
  merging.lse = lse_of(lse);
  posenc::merge(std::span<const posenc::attention_part<T>>(parts), out.view, merging);
  const json& without = c.at("merged_without_sinks");
  expect_same(c.at("name").get<std::string>() + ", merged", without.at("output"), without.at("lse"), out, lse, largest);
  merging.sinks = sinks;
  posenc::merge(std::span<const posenc::attention_part<T>>(parts), out.view, merging);
  expect_same(c.at("name").get<std::string>() + ", merged with sinks", c.at("output"), c.at("lse"), out, lse, largest);
}

TEST(Semantics, Float) {
  const json cases = attention_test::json_cases("attention_semantics.json");
  EXPECT_EQ(cases.size(), 19u);
  for (const json& c : cases) run_case<float>(c);
}

TEST(Semantics, Double) {
  for (const json& c : attention_test::json_cases("attention_semantics.json")) run_case<double>(c);
}

}  // namespace
