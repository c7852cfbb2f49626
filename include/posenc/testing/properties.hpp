// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTING_PROPERTIES_HPP
#define POSENC_TESTING_PROPERTIES_HPP

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "../attention/merge.hpp"
#include "property_inputs.hpp"

/// What must hold of encodings and of attention kernels, as deviations: each function returns how far an encoding or a
/// kernel is from the property, 0 being perfect. They take an encoding, one's own included, and optionally a kernel
/// (see attention_kernel). The template argument is the element type: relative_position_error<float>(encoding).
///
/// Inputs are random and exact in every element type. Errors: those of the kernel and of the encoding.
namespace posenc::inline POSENC_ABI::testing {

/// How far scores are from depending on the distance alone: the largest |score(q at a + s, k at b + s) - score(q at a,
/// k at b)| over random vectors, positions and shifts s (one an axis), relative to the largest score. Rotations and
/// biases by distance give rounding errors, absolute positions give something of the order of 1. Scores are read off
/// the lse of one query and one key.
template <scalar T = double, class E, class Kernel = attention_kernel>
double relative_position_error(const E& encoding, const property_options& options = {}, Kernel&& kernel = {}) {
  random_numbers random(options.seed);
  const index_t kv_heads = detail::kv_heads_for<E>(options), half = options.max_position / 2;
  double largest = 0, largest_score = 0;
  for (index_t sample = 0; sample < options.samples; ++sample) {
    const detail::property_inputs<T> x(random, 1, 1, options.heads, kv_heads, options.head_dim);
    token_list q_tokens = detail::text_tokens(1, options.axes), k_tokens = q_tokens;
    std::vector<double> shift;
    for (std::size_t axis = 0; axis < q_tokens.positions.size(); ++axis) {
      q_tokens.positions[axis] = static_cast<double>(random.whole(0, half));
      k_tokens.positions[axis] = static_cast<double>(random.whole(0, half));
      shift.push_back(static_cast<double>(random.whole(1, (std::max)(half, index_t{1}))));
    }
    const auto scores = [&] {
      detail::property_inputs<T> placed = x;
      detail::place(encoding, placed, q_tokens, k_tokens);
      return detail::run<T>(kernel, placed.q.view(), placed.k.view(), placed.v.view(),
                            {q_tokens.view(), k_tokens.view()}, encoding, bidirectional{})
          .lse;
    };
    const auto before = scores();
    for (std::size_t axis = 0; axis < shift.size(); ++axis) {
      q_tokens.positions[axis] += shift[axis];
      k_tokens.positions[axis] += shift[axis];
    }
    const auto after = scores();
    for (std::size_t h = 0; h < before.size(); ++h) {
      detail::raise_to(largest, detail::difference(static_cast<double>(before[h]), static_cast<double>(after[h])));
      detail::raise_to(largest_score, std::abs(static_cast<double>(before[h])));
    }
  }
  return largest_score > 0 ? largest / largest_score : largest;
}

/// What permuting the tokens does; see permutation_error.
struct permutation_report {
  double without_mask = 0;  ///< every token sees every token
  double causal = 0;        ///< every token sees those that stand before it
};

/// How far outputs are from following a permutation of the tokens, while places keep their positions: the largest
/// deviation of output i of the permuted tokens from output perm(i) of the tokens as they were, relative to the largest
/// value. Without positions it is 0 with no mask; it is not with a causal mask, which makes order visible by itself.
/// With positions neither is.
template <scalar T = double, class E = nope, class Kernel = attention_kernel>
permutation_report permutation_error(const E& encoding = {}, const property_options& options = {},
                                     Kernel&& kernel = {}) {
  random_numbers random(options.seed);
  const index_t count = options.tokens, kv_heads = detail::kv_heads_for<E>(options);
  const token_list tokens = detail::text_tokens(count, options.axes);
  const detail::property_inputs<T> x(random, count, count, options.heads, kv_heads, options.head_dim);
  std::vector<index_t> from;
  for (index_t t = 0; t < count; ++t) from.push_back(t);
  for (index_t t = count - 1; t > 0; --t)
    std::swap(from[static_cast<std::size_t>(t)], from[static_cast<std::size_t>(random.whole(0, t))]);

  detail::property_inputs<T> moved = x;
  const auto permute = [&](const owned_tensor<T>& source, owned_tensor<T>& target) {
    const auto s = source.view();
    const auto t = target.view();
    for (index_t i = 0; i < count; ++i)
      for (index_t h = 0; h < s.heads(); ++h)
        for (index_t d = 0; d < s.dim(); ++d) t(0, h, i, d) = s(0, h, from[static_cast<std::size_t>(i)], d);
  };
  permute(x.q, moved.q);
  permute(x.k, moved.k);
  permute(x.v, moved.v);
  detail::property_inputs<T> kept = x;
  detail::place(encoding, kept, tokens, tokens);
  detail::place(encoding, moved, tokens, tokens);

  const auto error = [&](const auto& mask) {
    const auto before =
        detail::run<T>(kernel, kept.q.view(), kept.k.view(), kept.v.view(), tokens.view(), encoding, mask);
    const auto after =
        detail::run<T>(kernel, moved.q.view(), moved.k.view(), moved.v.view(), tokens.view(), encoding, mask);
    double largest = 0;
    for (index_t i = 0; i < count; ++i)
      detail::raise_to(largest, detail::deviation(after, i, before, from[static_cast<std::size_t>(i)], 1,
                                                  detail::largest_element(kept.v)));
    return largest;
  };
  return {error(bidirectional{}), error(causal{})};
}

/// How far an encoding of inputs is from "a shift by s is one fixed rotation E(p + s) = R(s) E(p) at every position p",
/// as sinusoids have it (Vaswani et al. 2017, section 3.5). Such a map exists if and only if inner products are kept,
/// so what is returned is the largest |<E(p + s), E(r + s)> - <E(p), E(r)>| over random whole positions p, r and shifts
/// s, relative to the largest <E(p), E(p)>. `width` is that of the embeddings.
template <class E>
double shift_error(const E& encoding, index_t width, const property_options& options = {}) {
  double largest = 0, largest_square = 0;
  if constexpr (posenc::detail::check_input_encoding<E>()) {
    random_numbers random(options.seed);
    const index_t half = options.max_position / 2;
    const auto at = [&](double position) {
      owned_tensor<double> x(1, 1, width);
      token_list tokens = detail::text_tokens(1, options.axes, position);
      add_positions(x.embeddings(), tokens.view(), encoding);
      return x;
    };
    const auto product = [&](const owned_tensor<double>& a, const owned_tensor<double>& b) {
      double sum = 0;
      for (index_t d = 0; d < width; ++d) sum += a(0, 0, d) * b(0, 0, d);
      return sum;
    };
    for (index_t sample = 0; sample < options.samples; ++sample) {
      const auto p = static_cast<double>(random.whole(0, half)), r = static_cast<double>(random.whole(0, half));
      const auto s = static_cast<double>(random.whole(1, (std::max)(half, index_t{1})));
      const auto e_p = at(p), e_r = at(r);
      detail::raise_to(largest, detail::difference(product(at(p + s), at(r + s)), product(e_p, e_r)));
      detail::raise_to(largest_square, product(e_p, e_p));
    }
  }
  return largest_square > 0 ? largest / largest_square : largest;
}

/// How far decoding token by token, each with the keys so far, is from the whole text at once under a causal mask: the
/// largest deviation of outputs relative to the largest value, and of lse relative to 1 + |lse|.
template <scalar T = double, class E, class Kernel = attention_kernel>
double decode_against_prefill_error(const E& encoding, const property_options& options = {}, Kernel&& kernel = {}) {
  random_numbers random(options.seed);
  const index_t count = options.tokens;
  const token_list tokens = detail::text_tokens(count, options.axes);
  detail::property_inputs<T> x(random, count, count, options.heads, detail::kv_heads_for<E>(options), options.head_dim);
  detail::place(encoding, x, tokens, tokens);
  const double unit = detail::largest_element(x.v);
  const auto whole = detail::run<T>(kernel, x.q.view(), x.k.view(), x.v.view(), tokens.view(), encoding, causal{});
  double largest = 0;
  for (index_t t = 0; t < count; ++t) {
    const token_list q_token = detail::text_tokens(1, options.axes, static_cast<double>(t));
    const token_list k_tokens = detail::text_tokens(t + 1, options.axes);
    const auto step = detail::run<T>(kernel, x.q.tokens(t, 1), x.k.tokens(0, t + 1), x.v.tokens(0, t + 1),
                                     {q_token.view(), k_tokens.view()}, encoding, causal{});
    detail::raise_to(largest, detail::deviation(step, 0, whole, t, 1, unit));
  }
  return largest;
}

/// How far documents packed into one row are from the same documents one by one, causal and bidirectional, measured as
/// in decode_against_prefill_error. There are four documents, one of a single token; positions start again in each.
template <scalar T = double, class E, class Kernel = attention_kernel>
double packed_against_separate_error(const E& encoding, const property_options& options = {}, Kernel&& kernel = {}) {
  random_numbers random(options.seed);
  const index_t count = (std::max)(options.tokens, index_t{8});
  const index_t bounds[] = {0, count / 2, count / 2 + 1, count / 2 + 1 + count / 4, count};
  token_list tokens;
  tokens.axes = options.axes;
  tokens.count = count;
  for (index_t axis = 0; axis < options.axes; ++axis)
    for (index_t t = 0; t < count; ++t) {
      index_t document = 0;
      while (t >= bounds[document + 1]) ++document;
      tokens.positions.push_back(static_cast<double>(t - bounds[document]));
      if (axis != 0) continue;
      tokens.order.push_back(tokens.positions.back());
      tokens.documents.push_back(document);
    }
  detail::property_inputs<T> x(random, count, count, options.heads, detail::kv_heads_for<E>(options), options.head_dim);
  detail::place(encoding, x, tokens, tokens);
  const double unit = detail::largest_element(x.v);
  double largest = 0;
  const auto compare = [&](const auto& mask) {
    const auto packed = detail::run<T>(kernel, x.q.view(), x.k.view(), x.v.view(), tokens.view(), encoding, mask);
    for (std::size_t d = 0; d < 4; ++d) {
      const index_t first = bounds[d], length = bounds[d + 1] - first;
      const token_list own = detail::text_tokens(length, options.axes);
      const auto separate = detail::run<T>(kernel, x.q.tokens(first, length), x.k.tokens(first, length),
                                           x.v.tokens(first, length), own.view(), encoding, mask);
      detail::raise_to(largest, detail::deviation(packed, first, separate, 0, length, unit));
    }
  };
  compare(causal{});
  compare(bidirectional{});
  return largest;
}

/// How far attention over ranges of the keys (one of them empty), joined by posenc::merge with the sinks added there
/// once, is from attention over all keys with sinks; measured as in decode_against_prefill_error. The mask is causal,
/// so that some rows see nothing of the later ranges.
template <scalar T = double, class E, class Kernel = attention_kernel>
double merge_against_whole_error(const E& encoding, const property_options& options = {}, Kernel&& kernel = {}) {
  using real = compute_type<T>;
  random_numbers random(options.seed);
  const index_t count = (std::max)(options.tokens, index_t{8});
  const token_list tokens = detail::text_tokens(count, options.axes);
  detail::property_inputs<T> x(random, count, count, options.heads, detail::kv_heads_for<E>(options), options.head_dim);
  detail::place(encoding, x, tokens, tokens);
  std::vector<double> sinks;
  for (index_t h = 0; h < options.heads; ++h) sinks.push_back(random.element());
  attention_options with_sinks;
  with_sinks.sinks = sinks;
  const auto whole =
      detail::run<T>(kernel, x.q.view(), x.k.view(), x.v.view(), tokens.view(), encoding, causal{}, with_sinks);

  const index_t bounds[] = {0, count / 3, count / 3, count / 2, count};
  std::vector<detail::property_result<T>> results;
  for (std::size_t part = 0; part < 4; ++part) {
    const index_t first = bounds[part], length = bounds[part + 1] - first;
    const token_list some = detail::text_tokens(length, options.axes, static_cast<double>(first));
    results.push_back(detail::run<T>(kernel, x.q.view(), x.k.tokens(first, length), x.v.tokens(first, length),
                                     {tokens.view(), some.view()}, encoding, causal{}));
  }
  std::vector<attention_part<real>> parts;
  for (const auto& result : results) parts.push_back({result.out.view(), result.lse.data()});
  detail::property_result<T> merged(count, options.heads, options.head_dim);
  with_sinks.lse = lse_view(merged.lse.data(), 1, options.heads, count);
  posenc::merge(std::span<const attention_part<real>>(parts), merged.out.view(), with_sinks);
  return detail::deviation(merged, 0, whole, 0, count, detail::largest_element(x.v));
}

}  // namespace posenc::inline POSENC_ABI::testing

#endif  // POSENC_TESTING_PROPERTIES_HPP
