// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_SCORE_PASS_HPP
#define POSENC_ATTENTION_SCORE_PASS_HPP

#include <cstdint>
#include <limits>
#include <numbers>

#include "../core/finite.hpp"
#include "../simd/math.hpp"
#include "../simd/simd.hpp"
#include "tile_shape.hpp"

/// What happens to a tile of scores between the two products: softcap, (biases: policies.hpp,) mask and online softmax
/// (Milakov and Gimelshein, arXiv:1805.02867; Dao et al., arXiv:2205.14135).
namespace posenc::inline POSENC_ABI::detail {

/// scores = cap * tanh(scores), where the queries already carry scale / cap.
template <class Real>
POSENC_NOINLINE void softcap_block(Real* scores, index_t stride, index_t rows, double cap) noexcept {
  using simd::vec;
  for (index_t r = 0; r < rows; ++r)
    for (index_t j = 0; j < block_keys; j += vec<Real>::lanes) {
      Real* at = scores + r * stride + j;
      simd::store(at, simd::tanh(simd::load(at)) * vec<Real>(cap));
    }
}

/// The running state of the rows of a tile: the largest score so far and the sum of e^(score - largest).
template <class Real>
struct softmax_state {
  Real largest[tile_rows];
  Real sum[tile_rows];
  Real rescale[tile_rows];  ///< what the accumulated values must be multiplied by after the latest step

  static constexpr Real lowest = std::numeric_limits<Real>::lowest();

  void reset() noexcept {
    for (index_t r = 0; r < tile_rows; ++r) {
      largest[r] = lowest;
      sum[r] = 0;
      rescale[r] = 1;
    }
  }
};

/// e^(score - largest), exactly 1 for the largest itself.
template <class Real>
POSENC_ALWAYS_INLINE simd::vec<Real> softmax_weight(simd::vec<Real> score, simd::vec<Real> largest) noexcept {
  return simd::softmax_exp2((score - largest) * simd::vec<Real>(std::numbers::log2e_v<Real>));
}

/// One step over `blocks` blocks: turns scores into weights in place and brings the state forward. Bit j of
/// bits[r * chunk_blocks + b] says whether row r sees key j of block b; the scores of the others are not looked at.
/// Rows that see nothing get weights of 0.
template <class Real>
POSENC_NOINLINE void softmax_step(Real* scores, index_t stride, index_t rows, index_t blocks, const std::uint64_t* bits,
                                  softmax_state<Real>& state) noexcept {
  using simd::vec;
  constexpr index_t lanes = vec<Real>::lanes;
  constexpr std::uint64_t all = ~std::uint64_t{0};
  const vec<Real> lowest(softmax_state<Real>::lowest), zero(Real{0});
  for (index_t r = 0; r < rows; ++r) {
    Real* row = scores + r * stride;
    const std::uint64_t* visible = bits + r * chunk_blocks;
    std::uint64_t any = 0;
    vec<Real> largest = lowest;
    for (index_t b = 0; b < blocks; ++b) {
      any |= visible[b];
      const Real* block = row + b * block_keys;
      if (visible[b] == all) {
        for (index_t j = 0; j < block_keys; j += lanes) largest = (simd::max)(largest, simd::load(block + j));
      } else if (visible[b] != 0) {
        for (index_t j = 0; j < block_keys; j += lanes)
          largest = (simd::max)(
              largest, simd::select(simd::mask_from_bits<Real>(visible[b] >> j), simd::load(block + j), lowest));
      }
    }
    if (any == 0) {
      for (index_t j = 0; j < blocks * block_keys; j += lanes) simd::store(row + j, zero);
      state.rescale[r] = 1;
      continue;
    }
    const Real before = state.largest[r], here = simd::reduce_max(largest);
    const Real after = here > before ? here : before;
    state.largest[r] = after;
    const vec<Real> offset(after);
    vec<Real> sum = zero;
    for (index_t b = 0; b < blocks; ++b) {
      Real* block = row + b * block_keys;
      if (visible[b] == all) {
        for (index_t j = 0; j < block_keys; j += lanes) {
          const vec<Real> weight = softmax_weight(simd::load(block + j), offset);
          sum = sum + weight;
          simd::store(block + j, weight);
        }
      } else if (visible[b] == 0) {
        for (index_t j = 0; j < block_keys; j += lanes) simd::store(block + j, zero);
      } else {
        for (index_t j = 0; j < block_keys; j += lanes) {
          const vec<Real> weight = simd::select(simd::mask_from_bits<Real>(visible[b] >> j),
                                                softmax_weight(simd::load(block + j), offset), zero);
          sum = sum + weight;
          simd::store(block + j, weight);
        }
      }
    }
    Real rescale = 1;
    if (is_zero(state.sum[r])) {
      rescale = 0;
    } else if (after != before) {
      Real lane[lanes];
      simd::store(lane, softmax_weight(vec<Real>(before), offset));
      rescale = lane[0];
    }
    state.rescale[r] = rescale;
    state.sum[r] = state.sum[r] * rescale + simd::reduce_add(sum);
  }
}

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ATTENTION_SCORE_PASS_HPP
