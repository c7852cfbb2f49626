// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_FINGERPRINT_HPP
#define POSENC_ATTENTION_FINGERPRINT_HPP

#include <cstdint>
#include <cstring>
#include <new>

#include "../core/number_list.hpp"
#include "policies.hpp"

namespace posenc::inline POSENC_ABI::detail {

/// The bits of numbers mixed into one, in their order (multiplication by an odd constant and a fold, as in FNV and wyhash).
/// Four chains take turns, since each step of one waits for the last.
template <class T>
std::uint64_t hash_of(const T* x, index_t n) noexcept {
  constexpr index_t chains = 4;
  std::uint64_t state[chains] = {0x243f6a8885a308d3u, 0x13198a2e03707344u, 0xa4093822299f31d0u, 0x082efa98ec4e6c89u};
  const auto mix = [](std::uint64_t& into, std::uint64_t bits) {
    into = (into ^ bits) * 0x9e3779b97f4a7c15u;
    into ^= into >> 29;
  };
  const auto add = [&](index_t chain, const T& number) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &number, sizeof number);
    mix(state[chain], bits);
  };
  index_t i = 0;
  for (; i + chains <= n; i += chains)
    for (index_t chain = 0; chain < chains; ++chain) add(chain, x[i + chain]);
  for (; i < n; ++i) add(i % chains, x[i]);
  for (index_t chain = 1; chain < chains; ++chain) mix(state[0], state[chain]);
  return state[0];
}

/// A number that tells rotations of keys apart by what they do, at three positions, to a probe vector on every KV head.
/// Positions that the encoding's check refuses are left out. Encodings that rotate keys alike share it, whatever their type.
/// 0: keys are not rotated.
/// Allocates only for rows of more than 4096 numbers or heads of more than 1024.
template <class Real, attention_encoding E>
std::uint64_t key_fingerprint(const E& encoding, index_t head_dim, index_t kv_heads, index_t axes) noexcept {
  const encoding_policy<Real> policy = encoding_policy_of<Real>(encoding);
  if (policy.rotation == nullptr) return 0;
  const rotation_shape shape{head_dim, kv_heads};
  const index_t size = policy.rotation->size(policy.encoding, shape);
  if (size == 0) return 0;

  constexpr index_t usual_row = 4096, usual_head = 1024;
  Real row_buffer[usual_row], head_buffer[usual_head];
  number_list<Real> large;
  Real *row = row_buffer, *head = head_buffer;
  if (size > usual_row || head_dim > usual_head) {
    row = large.extend(static_cast<std::size_t>(size + head_dim));
    head = row + size;
  }

  std::uint64_t hash = 0;
  bool turns = false, refused = false;
  const bool checks = !check_encoding(encoding, {0, kv_heads, head_dim});  // else it objects to more than positions
  for (const double at : {1.0, 12345.0, 1048573.0}) {
    double position[max_position_axes] = {};
    for (index_t axis = 0; axis < axes; ++axis) position[axis] = at + static_cast<double>(axis);
    const token_view probe = token_positions(position, 1, 1, axes).with_order(position);
    if (checks && check_encoding(encoding, {0, kv_heads, head_dim, nullptr, &probe})) {
      refused = policy.rotation->turns_keys;
      continue;
    }
    policy.rotation->prepare(policy.encoding, shape, position_span(position, static_cast<std::size_t>(axes)),
                             {token_role::key, rotation_op::rotate}, row);
    // The first head, and others where they differ from it: encodings that turn all heads alike need not show that.
    std::uint64_t first = 0;
    for (index_t h = 0; h < (policy.rotation->heads_alike ? 1 : kv_heads); ++h) {
      for (index_t d = 0; d < head_dim; ++d) head[d] = static_cast<Real>(d + 1);
      policy.rotate(shape, row, h, head);
      for (index_t d = 0; d < head_dim; ++d) turns = turns || head[d] != static_cast<Real>(d + 1);
      const std::uint64_t own = hash_of(head, head_dim);
      if (h == 0) first = own;
      if (h == 0 || own != first) {
        const std::uint64_t chain[] = {hash, static_cast<std::uint64_t>(h), own};
        hash = hash_of(chain, 3);
      }
    }
  }
  // Encodings that leave keys alone (rotated_keys, query_temperature) are all the same to a cache.
  return turns || refused ? hash | 1 : 0;
}

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ATTENTION_FINGERPRINT_HPP
