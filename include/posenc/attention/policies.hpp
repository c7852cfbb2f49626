// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_POLICIES_HPP
#define POSENC_ATTENTION_POLICIES_HPP

#include <bit>
#include <cmath>
#include <cstdint>

#include "../encoding/concepts.hpp"
#include "key_tokens.hpp"
#include "mask/concepts.hpp"

/// Encodings and masks as the kernel sees them: a pointer to the policy and the functions that it is reached by, each
/// called once for a row or a tile. The kernel is compiled once, whatever the policies, and a policy chosen at run time
/// costs the same as one named in the source.
namespace posenc::inline POSENC_ABI::detail {

/// One row of a score tile: a query of one head.
struct tile_row {
  index_t query = 0;  ///< index in the tensor's row
  index_t head = 0;   ///< query head
  const double* position = nullptr;
  double order = 0;
  std::int64_t document = 0;
};

// ---- rotation ----

template <class Real>
struct rotation_functions {
  index_t (*size)(const void*, const rotation_shape&);
  void (*prepare)(const void*, const rotation_shape&, position_span, rotation_use, Real* row);
  /// Turns the `heads` rows at x, `stride` apart: of one token, with one KV head.
  void (*apply)(const void*, const rotation_shape&, const Real* row, index_t kv_head, Real* x, index_t heads,
                index_t stride);
  bool turns_keys;
  bool heads_alike;  ///< all heads of a token turn by the same
};

/// An encoding may say that it turns queries only: see rotated_keys.
template <class E>
concept leaves_keys = requires { requires E::leaves_keys; };

template <class Real, class E>
inline constexpr rotation_functions<Real> rotation_functions_of{
    [](const void* e, const rotation_shape& shape) -> index_t {
      return static_cast<const E*>(e)->rotation_size(shape);
    },
    [](const void* e, const rotation_shape& shape, position_span position, rotation_use use, Real* row) {
      static_cast<const E*>(e)->prepare_rotation(shape, position, use, row);
    },
    [](const void* e, const rotation_shape& shape, const Real* row, index_t kv_head, Real* x, index_t heads,
       index_t stride) {
      const E& encoding = *static_cast<const E*>(e);
      if constexpr (has_rotate_heads<E, Real, Real, Real>) {
        encoding.rotate_heads(shape, row, heads, static_cast<const Real*>(x), stride, x, stride);
      } else {
        for (index_t h = 0; h < heads; ++h) encoding.apply_rotation(shape, row, kv_head, x + h * stride);
      }
    },
    !leaves_keys<E>, has_rotate_heads<E, Real, Real, Real>};

// ---- bias ----

template <class Real>
struct bias_functions {
  /// Adds to rows [0, rows) of a tile of scores, against one block of keys, in natural units.
  void (*add)(const void*, Real* scores, index_t row_stride, const tile_row* rows, index_t row_count,
              const key_tokens& keys);
  /// The largest bias for distances from low to high on one axis; null where the encoding does not say.
  double (*largest)(const void*, double low, double high, index_t head) = nullptr;
  index_t (*axis)(const void*) = nullptr;
};

template <class Real, bool Consecutive, class E>
POSENC_NOINLINE void add_bias(const E& e, Real* scores, index_t row_stride, const tile_row* rows, index_t row_count,
                              const key_tokens& keys) {
  constexpr index_t lanes = simd::vec<Real>::lanes;
  // After a store the compiler must read again what the encoding holds: some registers share one reading.
  constexpr int together = 4;
  static_assert(block_keys % (together * lanes) == 0);
  for (index_t r = 0; r < row_count; ++r) {
    Real* row = scores + r * row_stride;
    const tile_row query = rows[r];
    for (index_t j = 0; j < block_keys; j += together * lanes) {
      simd::vec<Real> sum[together];
      simd::unroll<together>([&](auto i) POSENC_INLINE_LAMBDA {
        const score_keys<Real, Consecutive> some(keys.positions, block_keys, query.position,
                                                 static_cast<int>(j + i * lanes));
        sum[i] = simd::load(row + j + i * lanes) + simd::vec<Real>(e.bias(some, query.head));
      });
      simd::unroll<together>([&](auto i) POSENC_INLINE_LAMBDA { simd::store(row + j + i * lanes, sum[i]); });
    }
  }
}

template <class Real, class E>
constexpr bias_functions<Real> make_bias_functions() noexcept {
  bias_functions<Real> result{};
  result.add = [](const void* e, Real* scores, index_t row_stride, const tile_row* rows, index_t row_count,
                  const key_tokens& keys) {
    if (keys.consecutive_positions) {
      add_bias<Real, true>(*static_cast<const E*>(e), scores, row_stride, rows, row_count, keys);
    } else {
      add_bias<Real, false>(*static_cast<const E*>(e), scores, row_stride, rows, row_count, keys);
    }
  };
  if constexpr (bounded_bias<E>) {
    result.largest = [](const void* e, double low, double high, index_t head) -> double {
      return static_cast<const E*>(e)->largest_bias(low, high, head);
    };
    result.axis = [](const void* e) -> index_t { return static_cast<const E*>(e)->bias_axis(); };
  }
  return result;
}

template <class Real, class E>
inline constexpr bias_functions<Real> bias_functions_of = make_bias_functions<Real, E>();

/// An encoding for the kernel. Places that it does not act at are null.
template <class Real>
struct encoding_policy {
  const void* encoding = nullptr;
  const rotation_functions<Real>* rotation = nullptr;
  const bias_functions<Real>* bias = nullptr;

  void rotate(const rotation_shape& shape, const Real* row, index_t kv_head, Real* x, index_t heads = 1,
              index_t stride = 0) const {
    rotation->apply(encoding, shape, row, kv_head, x, heads, stride);
  }
};

/// Prepares the rotation of one token as a query or a key.
template <class Real>
void prepare_rotation_of(const encoding_policy<Real>& policy, const rotation_shape& shape, const token_view& tokens,
                         index_t batch, index_t token, token_role role, Real* row) {
  double position[max_position_axes] = {};
  for (index_t axis = 0; axis < tokens.axes(); ++axis) position[axis] = tokens.position(axis, batch, token);
  policy.rotation->prepare(policy.encoding, shape, position_span(position, static_cast<std::size_t>(tokens.axes())),
                           {role, rotation_op::rotate}, row);
}

template <class Real, attention_encoding E>
encoding_policy<Real> encoding_policy_of(const E& e) noexcept {
  if constexpr (requires { e.template erased<Real>(); }) {
    return e.template erased<Real>();
  } else {
    encoding_policy<Real> result;
    result.encoding = &e;
    if constexpr (acts_on<E, on_queries_keys>) result.rotation = &rotation_functions_of<Real, E>;
    if constexpr (acts_on<E, on_scores>) result.bias = &bias_functions_of<Real, E>;
    return result;
  }
}

// ---- mask ----

struct mask_functions {
  visibility (*classify)(const void*, const token_block& queries, const token_block& keys);
  /// Of the keys whose bits are set in `among`, those that the query sees.
  std::uint64_t (*row_bits)(const void*, const token& query, const key_tokens& keys, std::uint64_t among);
  bool per_head;
};

template <class M>
std::uint64_t interval_bits(const M& m, double order, const key_tokens& keys) {
  const order_interval see = m.interval(order);
  const double origin = keys.order[0];
  const auto count = static_cast<double>(keys.count);
  if (see.last < origin || see.first > origin + count - 1) return 0;
  auto first = see.first <= origin ? index_t{0} : static_cast<index_t>(std::ceil(see.first - origin));
  auto end = see.last >= origin + count - 1 ? keys.count : static_cast<index_t>(std::floor(see.last - origin)) + 1;
  // The differences above may round; the orders themselves decide.
  while (first > 0 && keys.order[first - 1] >= see.first) --first;
  while (first < keys.count && keys.order[first] < see.first) ++first;
  while (end < keys.count && keys.order[end] <= see.last) ++end;
  while (end > 0 && keys.order[end - 1] > see.last) --end;
  return end > first ? low_bits(end) & ~low_bits(first) : 0;
}

template <class M>
std::uint64_t mask_row_bits(const M& m, const token& query, const key_tokens& keys, std::uint64_t among) {
  if constexpr (interval_mask<M>) {
    if (keys.consecutive_orders) return interval_bits(m, query.order, keys) & among;
  }
  std::uint64_t bits = 0;
  const auto axes = static_cast<index_t>(query.position.size());
  double position[max_position_axes] = {};
  for (; among != 0; among &= among - 1) {
    const auto j = static_cast<index_t>(std::countr_zero(among));
    const token key = keys.key(j, axes, query.batch, query.head, position);
    bits |= static_cast<std::uint64_t>(static_cast<bool>(m.visible(query, key))) << j;
  }
  return bits;
}

template <class M>
inline constexpr mask_functions mask_functions_of{
    [](const void* m, const token_block& queries, const token_block& keys) -> visibility {
      return static_cast<const M*>(m)->classify(queries, keys);
    },
    [](const void* m, const token& query, const key_tokens& keys, std::uint64_t among) -> std::uint64_t {
      return mask_row_bits(*static_cast<const M*>(m), query, keys, among);
    },
    is_per_head<M>};

struct mask_policy {
  const void* mask = nullptr;
  const mask_functions* functions = nullptr;
};

template <attention_mask M>
mask_policy mask_policy_of(const M& m) noexcept {
  if constexpr (requires { m.erased(); }) {
    return m.erased();
  } else {
    return {&m, &mask_functions_of<M>};
  }
}

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ATTENTION_POLICIES_HPP
