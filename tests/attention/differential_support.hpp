// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTS_ATTENTION_DIFFERENTIAL_SUPPORT_HPP
#define POSENC_TESTS_ATTENTION_DIFFERENTIAL_SUPPORT_HPP

#include <posenc/attention/attention.hpp>
#include <posenc/encoding/alibi.hpp>
#include <posenc/encoding/any_encoding.hpp>
#include <posenc/encoding/combine.hpp>
#include <posenc/encoding/nope.hpp>
#include <posenc/encoding/per_head.hpp>
#include <posenc/encoding/query_temperature.hpp>
#include <posenc/encoding/rope.hpp>
#include <posenc/encoding/t5_bucket.hpp>
#include <posenc/ladder/frequency_ladder.hpp>

#include <memory>
#include <optional>
#include <sstream>

#include "attention/attention_support.hpp"
#include "attention/mask_support.hpp"
#include "support/small_oracle.hpp"

/// Random calls of attention against plain loops in double: every encoding x mask x layout, with NaN and infinity in
/// whatever no query sees.
namespace attention_test {

// ---- encodings, beside their formulas ----

struct known_encoding {
  posenc::any_encoding encoding = posenc::nope{};
  small_oracle::encoding formula;
  std::string name = "nope";
  bool whole_positions = false;  ///< takes whole numbers only
};

inline posenc::rope make_rope(const small_oracle::rotation& r) {
  posenc::rope_options options;
  options.pairing = r.interleaved ? posenc::pairing::interleaved : posenc::pairing::half;
  options.offset = r.offset;
  options.frequency_axis = r.axis;
  return posenc::rope(posenc::frequency_ladder::from_inv_freq(r.inv_freq, r.factor), options);
}

inline small_oracle::rotation random_rotation(random_engine& random, index_t head_dim, index_t axes) {
  small_oracle::rotation r;
  index_t rotary = head_dim / 2 * 2;
  if (chance(random, 3)) rotary = 2 * pick(random, 1, head_dim / 2);
  const double base = one_of(random, {100.0, 10000.0, 500000.0});
  for (index_t i = 0; i < rotary; i += 2)
    r.inv_freq.push_back(std::pow(base, -static_cast<double>(i) / static_cast<double>(rotary)));
  r.interleaved = chance(random, 2);
  r.offset = chance(random, 2) ? head_dim - rotary : pick(random, 0, head_dim - rotary);
  if (chance(random, 3)) r.factor = 1.25;
  if (axes > 1 || chance(random, 4))
    for (index_t i = 0; i < rotary; i += 2) r.axis.push_back(pick(random, 0, axes - 1));
  return r;
}

/// Slopes for distances up to `reach`. Biases stay below 16 or so: float scores of hundreds have an ulp of 1e-5 and more,
/// which no kernel can win back.
inline small_oracle::linear_bias random_slopes(random_engine& random, index_t heads, index_t axes, index_t reach) {
  small_oracle::linear_bias bias;
  for (index_t h = 0; h < heads; ++h)
    bias.slopes.push_back(static_cast<double>(pick(random, -2, 32)) / static_cast<double>(32 + 2 * reach));
  bias.is_signed = chance(random, 3);
  bias.axis = pick(random, 0, axes - 1);
  return bias;
}
inline posenc::alibi make_alibi(const small_oracle::linear_bias& bias) {
  return posenc::alibi(std::span<const double>(bias.slopes), {.is_signed = bias.is_signed, .axis = bias.axis});
}

inline small_oracle::bucket_bias random_buckets(random_engine& random, index_t heads, index_t axes) {
  small_oracle::bucket_bias bias;
  bias.bidirectional = chance(random, 2);
  bias.buckets = one_of<index_t>(random, {8, 32});
  bias.max_distance = one_of<index_t>(random, {20, 128});
  bias.axis = pick(random, 0, axes - 1);
  for (index_t i = 0; i < bias.buckets * heads; ++i) bias.table.push_back(random_number(random));
  return bias;
}
inline posenc::t5_bucket make_t5(const small_oracle::bucket_bias& bias, index_t heads) {
  posenc::t5_bucket_options options;
  options.num_buckets = bias.buckets;
  options.max_distance = bias.max_distance;
  options.bidirectional = bias.bidirectional;
  options.axis = bias.axis;
  return posenc::t5_bucket(bias.table.data(), heads, options);
}

inline known_encoding random_encoding(random_engine& random, index_t heads, index_t kv_heads, index_t head_dim,
                                      index_t axes, index_t reach) {
  known_encoding e;
  const bool can_turn = head_dim >= 2;
  switch (pick(random, 0, 8)) {
    case 0: break;
    case 1:
    case 2:
    case 3:
      if (!can_turn) break;
      e.formula.rotations = {random_rotation(random, head_dim, axes)};
      e.encoding = make_rope(e.formula.rotations[0]);
      e.name = e.formula.rotations[0].interleaved ? "rope interleaved" : "rope half";
      break;
    case 4:
      e.formula.linear = {random_slopes(random, heads, axes, reach)};
      e.encoding = make_alibi(e.formula.linear[0]);
      e.name = "alibi";
      break;
    case 5:
      e.formula.bucketed = {random_buckets(random, heads, axes)};
      e.encoding = make_t5(e.formula.bucketed[0], heads);
      e.name = "t5";
      e.whole_positions = true;
      break;
    case 6:
      if (!can_turn) break;
      e.formula.rotations = {random_rotation(random, head_dim, axes)};
      e.formula.linear = {random_slopes(random, heads, axes, reach)};
      e.encoding = posenc::combine(make_rope(e.formula.rotations[0]), make_alibi(e.formula.linear[0]));
      e.name = "rope + alibi";
      break;
    case 7: {
      if (!can_turn) break;
      for (index_t h = 0; h < kv_heads; ++h)
        e.formula.rotation_of_kv_head.push_back(random_rotation(random, head_dim, axes));
      e.encoding = posenc::per_head(
          kv_heads, [&](index_t h) { return make_rope(e.formula.rotation_of_kv_head[static_cast<std::size_t>(h)]); });
      e.name = "rope per head";
      break;
    }
    default: {
      posenc::query_temperature temperature;
      temperature.length = 16;
      temperature.shift = 5000;  // positions may be negative here
      e.formula.query_factor = [=](double p) {
        return 1 + temperature.coefficient * std::log1p(std::floor((p + temperature.shift) / temperature.length));
      };
      e.encoding = temperature;
      e.name = "query temperature";
    }
  }
  return e;
}

// ---- tokens ----

/// Numbers of a token list in one of the types that positions, orders and ids may have, and the view of them.
struct typed_tokens {
  std::vector<std::int32_t> int32;
  std::vector<std::int64_t> int64, documents64, bounds64;
  std::vector<float> single;
  std::vector<double> twice, order64;
  std::vector<std::int32_t> documents32, bounds32, order32;
  posenc::token_view view;

  typed_tokens(random_engine& random, const posenc::token_list& list) {
    bool whole = true, small = true;
    for (const double p : list.positions) {
      whole = whole && p == std::floor(p);
      small = small && std::fabs(p) < 16000;
    }
    const auto positions = [&](auto& to) {
      for (const double p : list.positions) to.push_back(static_cast<std::remove_cvref_t<decltype(to[0])>>(p));
      view = posenc::token_positions(to.data(), list.count, list.batch, list.axes);
    };
    const index_t kind = pick(random, 0, 3);
    if (kind == 0 && whole) {
      positions(int32);
    } else if (kind == 1 && whole) {
      positions(int64);
    } else if (kind == 2 && small) {
      positions(single);
    } else {
      positions(twice);
    }
    if (list.count == 0 && list.axes > 1) {
      order64.reserve(1);
      view = view.with_order(order64.data());
    } else if (!list.order.empty()) {
      bool whole_order = true;
      for (const double o : list.order) whole_order = whole_order && o == std::floor(o);
      if (whole_order && chance(random, 2)) {
        for (const double o : list.order) order32.push_back(static_cast<std::int32_t>(o));
        view = view.with_order(order32.data());
      } else {
        order64 = list.order;
        view = view.with_order(order64.data());
      }
    }
    if (!list.documents.empty()) {
      if (chance(random, 2)) {
        for (const std::int64_t d : list.documents) documents32.push_back(static_cast<std::int32_t>(d));
        view = view.with_documents(documents32.data());
      } else {
        documents64 = list.documents;
        view = view.with_documents(documents64.data());
      }
    }
    if (!list.cu_seqlens.empty()) {
      const auto sequences = static_cast<index_t>(list.cu_seqlens.size()) - 1;
      if (chance(random, 2)) {
        for (const std::int64_t b : list.cu_seqlens) bounds32.push_back(static_cast<std::int32_t>(b));
        view = view.with_cu_seqlens(bounds32.data(), sequences);
      } else {
        bounds64 = list.cu_seqlens;
        view = view.with_cu_seqlens(bounds64.data(), sequences);
      }
    }
  }
  typed_tokens(const typed_tokens&) = delete;
  typed_tokens& operator=(const typed_tokens&) = delete;
};

/// Positions, orders and documents of both sides.
inline void random_tokens(random_engine& random, small_oracle::problem& p, bool whole_positions, index_t axes) {
  const bool ragged = p.batch == 1 && chance(random, 4), documents = p.q_len * p.kv_len > 0 && chance(random, 3);
  const index_t kind = pick(random, 0, 4), sequences = ragged ? pick(random, 1, 4) : 1;
  const auto cut = [&](index_t n) {
    std::vector<std::int64_t> bounds{0, n};
    for (index_t s = 1; s < sequences; ++s) bounds.push_back(pick(random, 0, n));
    std::sort(bounds.begin(), bounds.end());
    return bounds;
  };
  const bool own_order = axes > 1 || chance(random, 5);
  const auto side = [&](posenc::token_list& list, index_t count, index_t offset) {
    list.axes = axes;
    list.batch = p.batch > 1 && chance(random, 2) ? p.batch : 1;
    list.count = count;
    for (index_t axis = 0; axis < axes; ++axis)
      for (index_t b = 0; b < list.batch; ++b) {
        double at = static_cast<double>(offset + (list.batch > 1 ? pick(random, -3, 3) : 0));
        for (index_t t = 0; t < count; ++t) {
          double value = at;
          if (kind == 1)
            at += static_cast<double>(pick(random, 0, 3));  // gaps and repeats
          else if (kind == 2 && !whole_positions)
            at += static_cast<double>(pick(random, 0, 8)) / 4;  // fractions
          else if (kind == 3)
            value = static_cast<double>(offset + pick(random, -30, count + 30));  // any order
          else
            at += 1;
          list.positions.push_back(value);
        }
      }
    if (own_order)
      for (index_t i = 0; i < list.batch * count; ++i)
        list.order.push_back(static_cast<double>(chance(random, 6) ? pick(random, 0, count) : i % (count + 1)));
    if (documents) {
      const bool with_padding = chance(random, 2), interleaved = chance(random, 4);
      for (index_t b = 0; b < list.batch; ++b) {
        std::int64_t id = 0;
        for (index_t t = 0; t < count; ++t) {
          if (interleaved)
            id = pick(random, 0, 2);
          else if (chance(random, 20))
            ++id;
          list.documents.push_back(with_padding && chance(random, 5) ? -1 : id);
        }
      }
    }
    if (ragged) list.cu_seqlens = cut(count);
  };
  const index_t offset = pick(random, -50, 3000);
  side(p.k_tokens, p.kv_len, offset);
  side(p.q_tokens, p.q_len, offset + (p.kv_len > p.q_len ? p.kv_len - p.q_len : 0));
}

// ---- masks ----

/// A mask of the library that means the same as problem.mask; `cells` holds the numbers of a dense one.
inline posenc::any_mask random_mask(random_engine& random, small_oracle::problem& p, std::vector<unsigned char>& cells,
                                    std::string& name) {
  using namespace posenc;
  if (p.q_len * p.kv_len > 0 && chance(random, 6)) {
    // Dense, shared or not, keys or queries innermost; alone or below a causal mask.
    const index_t batch = chance(random, 2) ? p.batch : 1, heads = chance(random, 2) ? p.heads : 1;
    cells.resize(static_cast<std::size_t>(batch * heads * p.q_len * p.kv_len));
    const index_t one_in = one_of<index_t>(random, {2, 2, 10});
    for (unsigned char& c : cells) c = chance(random, one_in) ? 1 : 0;
    const bool transposed = chance(random, 2);
    const std::array<index_t, 4> strides{heads * p.q_len * p.kv_len, p.q_len * p.kv_len, transposed ? 1 : p.kv_len,
                                         transposed ? p.q_len : 1};
    const dense_mask<unsigned char> dense(cells.data(), {batch, heads, p.q_len, p.kv_len}, strides);
    const bool below = chance(random, 2);
    const auto cell = [&cells, batch, heads, strides](index_t b, index_t h, index_t i, index_t j) {
      return cells[static_cast<std::size_t>((batch == 1 ? 0 : b) * strides[0] + (heads == 1 ? 0 : h) * strides[1] +
                                            i * strides[2] + j * strides[3])] != 0;
    };
    const small_oracle::problem* const self = &p;
    p.mask = [cell, below, self](index_t b, index_t h, index_t i, index_t j) {
      return cell(b, h, i, j) &&
             (!below || small_oracle::order_of(self->k_tokens, b, j) <= small_oracle::order_of(self->q_tokens, b, i));
    };
    name = below ? "dense & causal" : "dense";
    return below ? any_mask(dense & causal{}) : any_mask(dense);
  }
  const mask_test::known_mask known = chance(random, 3) ? mask_test::causal_mask() : mask_test::random_tree(random, 2);
  const small_oracle::problem* const self = &p;
  p.mask = [rule = known.visible, self](index_t b, index_t, index_t i, index_t j) {
    return rule(small_oracle::order_of(self->q_tokens, b, i), small_oracle::order_of(self->k_tokens, b, j),
                small_oracle::document_of(self->q_tokens, b, i), small_oracle::document_of(self->k_tokens, b, j));
  };
  name = known.name;
  return known.mask;
}

// ---- one case ----

struct sizes {
  index_t batch = 1, kv_heads = 1, group = 1, q_len = 1, kv_len = 1, head_dim = 8, value_dim = 8;
};

inline std::string describe(const small_oracle::problem& p) {
  std::ostringstream text;
  text << "batch " << p.batch << ", heads " << p.heads << " x " << p.kv_heads << ", queries " << p.q_len << ", keys "
       << p.kv_len << ", head_dim " << p.head_dim << ", value_dim " << p.value_dim << ", scale " << p.scale
       << ", softcap " << p.softcap << ", sinks " << p.sinks.size() << ", axes " << p.q_tokens.axes << ", documents "
       << !p.q_tokens.documents.empty() << ", sequences " << p.q_tokens.cu_seqlens.size();
  return text.str();
}

/// Compares outputs and lse with the oracle's; a row that sees nothing and one of padding must be exact.
template <class Out, class Lse>
testing::AssertionResult agrees(const small_oracle::problem& p, const small_oracle::result& expected,
                                const buffer<Out>& out, const std::vector<Lse>& lse, double bound) {
  for (index_t b = 0; b < p.batch; ++b)
    for (index_t h = 0; h < p.heads; ++h)
      for (index_t i = 0; i < p.q_len; ++i) {
        const std::size_t row = small_oracle::at((b * p.heads + h) * p.q_len + i);
        const auto where = [&] {
          std::ostringstream text;
          text << " at batch " << b << ", head " << h << ", query " << i;
          return text.str();
        };
        for (index_t d = 0; d < p.value_dim; ++d) {
          const double wanted = expected.out[row * small_oracle::at(p.value_dim) + small_oracle::at(d)];
          const double allowed = expected.sees[row] ? bound * expected.largest_value : 0;
          if (!within(out.view(b, h, i, d), wanted, allowed))
            return testing::AssertionFailure() << "out is " << to_double(out.view(b, h, i, d)) << ", expected "
                                               << wanted << " within " << allowed << where() << ", element " << d;
        }
        if (lse.empty()) continue;
        const double wanted = expected.lse[row];
        if (!expected.has_lse[row]) {
          if (!posenc::detail::is_minus_infinity(lse[row]))
            return testing::AssertionFailure() << "lse is " << lse[row] << ", expected -infinity" << where();
        } else if (!within(lse[row], wanted, (expected.sees[row] ? bound : 1e-7) * (1 + std::fabs(wanted)))) {
          return testing::AssertionFailure() << "lse is " << lse[row] << ", expected " << wanted << where();
        }
      }
  return testing::AssertionSuccess();
}

/// Keys and values that nobody sees, and queries that see nothing, get NaN and infinity.
template <class Q, class KV>
void poison_unseen(random_engine& random, const small_oracle::problem& p, const small_oracle::result& r,
                   const buffer<Q>& q, const buffer<KV>& k, const buffer<KV>& v) {
  for (index_t b = 0; b < p.batch; ++b) {
    for (index_t h = 0; h < p.kv_heads; ++h)
      for (index_t j = 0; j < p.kv_len; ++j) {
        if (r.key_seen[small_oracle::at((b * p.kv_heads + h) * p.kv_len + j)]) continue;
        for (index_t d = 0; d < p.head_dim; ++d) poison(k.view(b, h, j, d), random);
        for (index_t d = 0; d < p.value_dim; ++d) poison(v.view(b, h, j, d), random);
      }
    for (index_t h = 0; h < p.heads; ++h)
      for (index_t i = 0; i < p.q_len; ++i)
        if (!r.sees[small_oracle::at((b * p.heads + h) * p.q_len + i)])
          for (index_t d = 0; d < p.head_dim; ++d) poison(q.view(b, h, i, d), random);
  }
}

/// One random call with elements Q, KV and Out, on the given executor.
template <class Q, class KV, class Out>
testing::AssertionResult run_random_case(random_engine& random, const sizes& s, posenc::workspace* memory = nullptr) {
  using real = posenc::compute_type<KV>;
  small_oracle::problem p;
  p.batch = s.batch;
  p.kv_heads = s.kv_heads;
  p.heads = s.kv_heads * s.group;
  p.q_len = s.q_len;
  p.kv_len = s.kv_len;
  p.head_dim = s.head_dim;
  p.value_dim = s.value_dim;

  const auto any_layout = [&] {
    return one_of(random, {layout::heads_first, layout::tokens_first, layout::scattered});
  };
  auto q = make_buffer<Q>(random, any_layout(), p.batch, p.heads, p.q_len, p.head_dim);
  auto k = make_buffer<KV>(random, any_layout(), p.batch, p.kv_heads, p.kv_len, p.head_dim);
  auto v = make_buffer<KV>(random, any_layout(), p.batch, p.kv_heads, p.kv_len, p.value_dim);
  auto out = make_buffer<Out>(random, any_layout(), p.batch, p.heads, p.q_len, p.value_dim);
  fill(q, random);
  fill(k, random);
  fill(v, random);
  p.q = q.numbers();
  p.k = k.numbers();
  p.v = v.numbers();

  const index_t axes = chance(random, 5) ? pick(random, 2, 3) : 1;
  const known_encoding encoding =
      random_encoding(random, p.heads, p.kv_heads, p.head_dim, axes, p.q_len + p.kv_len + 60);
  p.positions = encoding.formula;
  random_tokens(random, p, encoding.whole_positions, axes);
  std::vector<unsigned char> cells;
  std::string mask_name;
  const posenc::any_mask mask = random_mask(random, p, cells, mask_name);

  posenc::attention_options options;
  p.scale = 1 / std::sqrt(static_cast<double>(p.head_dim));
  // Scores stay within some tens: the tolerances are for those.
  if (chance(random, 3)) options.scale = p.scale = p.scale * one_of(random, {0.5, -1.0, 0.0, 1.25});
  if (chance(random, 4)) options.softcap = p.softcap = one_of(random, {0.5, 3.0, 30.0});
  std::vector<float> sinks;
  if (chance(random, 4)) {
    for (index_t h = 0; h < p.heads; ++h) sinks.push_back(static_cast<float>(random_number(random) * 2));
    p.sinks.assign(sinks.begin(), sinks.end());
    options.sinks = sinks;
  }
  std::vector<real> lse(static_cast<std::size_t>(p.batch * p.heads * p.q_len));
  const bool with_lse = !chance(random, 4);
  if (with_lse) options.lse = posenc::lse_view(lse.data(), p.batch, p.heads, p.q_len);
  options.memory = memory;

  const small_oracle::result expected = small_oracle::attend(p);
  poison_unseen(random, p, expected, q, k, v);
  const typed_tokens q_tokens(random, p.q_tokens), k_tokens(random, p.k_tokens);
  const posenc::token_pair tokens(q_tokens.view, k_tokens.view);
  const std::vector<KV> k_before = k.memory, v_before = v.memory;
  const std::vector<Q> q_before = q.memory;

  posenc::attention(q.read_only(), k.read_only(), v.read_only(), out.view, tokens, encoding.encoding, mask, options);

  if (!with_lse) lse.clear();
  const double bound = widest_tolerance<Q, KV, Out>();
  testing::AssertionResult result = agrees(p, expected, out, lse, bound);
  const auto unchanged = [](const auto& a, const auto& b) {
    return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
  };
  if (result && !(unchanged(k.memory, k_before) && unchanged(v.memory, v_before) && unchanged(q.memory, q_before)))
    result = testing::AssertionFailure() << "inputs were written to";
  if (result && !out.gaps_untouched())
    result = testing::AssertionFailure() << "memory between the rows of out was written";
  if (!result) result << "\n" << describe(p) << "\nencoding " << encoding.name << ", mask " << mask_name;
  return result;
}

/// `count` cases with sizes from `choose(random)`.
template <class Q, class KV, class Out, class Choose>
void run_random_cases(std::uint64_t family, std::uint64_t count, Choose&& choose) {
  posenc::workspace memory;
  for (std::uint64_t i = 0; i < count; ++i) {
    random_engine random = engine_of(family, i);
    const sizes s = choose(random);
    const testing::AssertionResult result =
        run_random_case<Q, KV, Out>(random, s, chance(random, 2) ? &memory : nullptr);
    ASSERT_TRUE(result) << "case " << i << " of family " << family << ", POSENC_TEST_SEED=" << test_seed();
  }
}

}  // namespace attention_test

#endif  // POSENC_TESTS_ATTENTION_DIFFERENTIAL_SUPPORT_HPP
