// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_FINGERPRINT_HPP
#define POSENC_ATTENTION_FINGERPRINT_HPP

#include <cstdint>
#include <cstring>
#include <new>

#include "../core/number_list.hpp"
#include "policies.hpp"

namespace posenc::inline POSENC_ABI::detail {

/// Numbers mixed into one, in their order (multiplication by an odd constant and a fold, as in FNV and wyhash).
class number_hash {
 public:
  template <class Real>
  void add(const Real* x, index_t n) noexcept {
    for (index_t i = 0; i < n; ++i) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, x + i, sizeof(Real));
      state_ = (state_ ^ bits) * 0x9e3779b97f4a7c15u;
      state_ ^= state_ >> 29;
    }
  }
  std::uint64_t value() const noexcept { return state_; }

 private:
  std::uint64_t state_ = 0x243f6a8885a308d3u;
};

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

  number_hash hash;
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
    for (index_t h = 0; h < kv_heads; ++h) {
      for (index_t d = 0; d < head_dim; ++d) head[d] = static_cast<Real>(d + 1);
      policy.rotation->apply(policy.encoding, shape, row, h, head);
      for (index_t d = 0; d < head_dim; ++d) turns = turns || head[d] != static_cast<Real>(d + 1);
      hash.add(head, head_dim);
    }
  }
  // Encodings that leave keys alone (rotated_keys, query_temperature) are all the same to a cache.
  return turns || refused ? hash.value() | 1 : 0;
}

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ATTENTION_FINGERPRINT_HPP
