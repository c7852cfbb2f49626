// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTS_ATTENTION_MASK_SUPPORT_HPP
#define POSENC_TESTS_ATTENTION_MASK_SUPPORT_HPP

#include <posenc/attention/mask/any_mask.hpp>
#include <posenc/attention/mask/dense_mask.hpp>
#include <posenc/attention/mask/mask_algebra.hpp>
#include <posenc/attention/mask/masks.hpp>

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace mask_test {

using posenc::index_t;
using random_engine = std::mt19937_64;

inline index_t pick(random_engine& random, index_t low, index_t high) {
  return std::uniform_int_distribution<index_t>(low, high)(random);
}

/// What a mask means, in terms of orders and documents, written without the library's masks.
using rule = std::function<bool(double q, double k, std::int64_t q_document, std::int64_t k_document)>;

/// A mask beside its meaning.
struct known_mask {
  posenc::any_mask mask;
  rule visible;
  std::string name;
};

inline known_mask causal_mask() {
  return {posenc::causal{}, [](double q, double k, auto, auto) { return k <= q; }, "causal"};
}
inline known_mask bidirectional_mask() {
  return {posenc::bidirectional{}, [](double, double, auto, auto) { return true; }, "bidirectional"};
}
inline known_mask window_mask(double left, double right) {
  return {posenc::sliding_window{.left = left, .right = right},
          [=](double q, double k, auto, auto) { return k - q >= -left && k - q <= right; },
          "window{" + std::to_string(left) + ", " + std::to_string(right) + "}"};
}
inline known_mask prefix_mask(double n) {
  return {posenc::prefix{.length = n}, [=](double, double k, auto, auto) { return k < n; },
          "prefix{" + std::to_string(n) + "}"};
}
inline known_mask chunk_mask(double c) {
  // Sizes are sums of few powers of two in these tests, so that the quotients are exact at the borders.
  return {posenc::chunk{.size = c},
          [=](double q, double k, auto, auto) {
            const double start = c * std::floor(q / c);
            return k >= start && k < start + c;
          },
          "chunk{" + std::to_string(c) + "}"};
}
inline known_mask documents_mask() {
  return {posenc::documents{}, [](double, double, std::int64_t q, std::int64_t k) { return q == k && k != -1; },
          "documents"};
}

inline known_mask operator&(const known_mask& a, const known_mask& b) {
  return {a.mask & b.mask, [=](auto... x) { return a.visible(x...) && b.visible(x...); },
          "(" + a.name + " & " + b.name + ")"};
}
inline known_mask operator|(const known_mask& a, const known_mask& b) {
  return {a.mask | b.mask, [=](auto... x) { return a.visible(x...) || b.visible(x...); },
          "(" + a.name + " | " + b.name + ")"};
}
inline known_mask operator!(const known_mask& a) {
  return {!a.mask, [=](auto... x) { return !a.visible(x...); }, "!" + a.name};
}

/// A mask of one of the simple kinds with parameters that fit orders of some tens.
inline known_mask random_leaf(random_engine& random) {
  const auto quarter = [&](index_t low, index_t high) { return static_cast<double>(pick(random, low, high)) / 4; };
  switch (pick(random, 0, 7)) {
    case 0: return bidirectional_mask();
    case 1: return window_mask(static_cast<double>(pick(random, 0, 20)), 0);
    case 2: return window_mask(quarter(0, 80), quarter(0, 80));
    case 3: return prefix_mask(quarter(-60, 240));
    case 4:
      return chunk_mask(static_cast<double>(pick(random, 1, 3)) * std::exp2(static_cast<double>(pick(random, -1, 4))));
    case 5: return documents_mask();
    default: return causal_mask();
  }
}

inline known_mask random_tree(random_engine& random, int depth) {
  if (depth == 0 || pick(random, 0, 3) == 0) return random_leaf(random);
  switch (pick(random, 0, 2)) {
    case 0: return random_tree(random, depth - 1) & random_tree(random, depth - 1);
    case 1: return random_tree(random, depth - 1) | random_tree(random, depth - 1);
    default: return !random_tree(random, depth - 1);
  }
}

/// How the orders of a run of tokens go.
enum class orders { consecutive, gapped, quarters, repeated, shuffled };
inline constexpr orders all_orders[] = {orders::consecutive, orders::gapped, orders::quarters, orders::repeated,
                                        orders::shuffled};

inline std::vector<double> random_orders(random_engine& random, orders kind, index_t count) {
  std::vector<double> result;
  double at = static_cast<double>(pick(random, -40, 60));
  if (kind == orders::quarters) at += static_cast<double>(pick(random, 0, 3)) / 4;
  for (index_t i = 0; i < count; ++i) {
    if (kind == orders::shuffled) at = static_cast<double>(pick(random, -40, 60));
    result.push_back(at);
    if (kind == orders::consecutive) at += 1;
    if (kind == orders::gapped) at += static_cast<double>(pick(random, 1, 6));
    if (kind == orders::quarters) at += static_cast<double>(pick(random, 0, 4)) / 4;
    if (kind == orders::repeated) at += static_cast<double>(pick(random, 0, 1));
  }
  return result;
}

}  // namespace mask_test

#endif  // POSENC_TESTS_ATTENTION_MASK_SUPPORT_HPP
