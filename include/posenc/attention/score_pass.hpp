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

inline constexpr std::uint64_t every_key = ~std::uint64_t{0};

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

/// The largest of the scores of one row that `visible` says it sees; lowest() if it sees none.
template <class Real>
POSENC_ALWAYS_INLINE Real largest_score(const Real* row, index_t blocks, const std::uint64_t* visible) noexcept {
  using simd::vec;
  constexpr int vectors = static_cast<int>(block_keys / vec<Real>::lanes);
  const vec<Real> lowest(softmax_state<Real>::lowest);
  vec<Real> largest[vectors];
  simd::unroll<vectors>([&](auto i) POSENC_INLINE_LAMBDA { largest[i] = lowest; });
  for (index_t b = 0; b < blocks; ++b) {
    const Real* block = row + b * block_keys;
    if (visible[b] == every_key) {
      simd::unroll<vectors>([&](auto i) POSENC_INLINE_LAMBDA {
        largest[i] = (simd::max)(largest[i], simd::load(block + i * vec<Real>::lanes));
      });
    } else if (visible[b] != 0) {
      simd::unroll<vectors>([&](auto i) POSENC_INLINE_LAMBDA {
        constexpr index_t j = i * vec<Real>::lanes;
        largest[i] = (simd::max)(
            largest[i], simd::select(simd::mask_from_bits<Real>(visible[b] >> j), simd::load(block + j), lowest));
      });
    }
  }
  simd::unroll<vectors - 1>([&](auto i) POSENC_INLINE_LAMBDA { largest[0] = (simd::max)(largest[0], largest[i + 1]); });
  return simd::reduce_max(largest[0]);
}

/// Turns the scores of one row into weights; their sum.
template <class Real>
POSENC_ALWAYS_INLINE Real weigh_scores(Real* row, index_t blocks, const std::uint64_t* visible, Real offset) noexcept {
  using simd::vec;
  constexpr int vectors = static_cast<int>(block_keys / vec<Real>::lanes);
  const vec<Real> zero(Real{0}), largest(offset);
  vec<Real> sum[vectors];
  simd::unroll<vectors>([&](auto i) POSENC_INLINE_LAMBDA { sum[i] = zero; });
  for (index_t b = 0; b < blocks; ++b) {
    Real* block = row + b * block_keys;
    if (visible[b] == every_key) {
      simd::unroll<vectors>([&](auto i) POSENC_INLINE_LAMBDA {
        Real* at = block + i * vec<Real>::lanes;
        const vec<Real> weight = softmax_weight(simd::load(at), largest);
        sum[i] = sum[i] + weight;
        simd::store(at, weight);
      });
    } else if (visible[b] == 0) {
      simd::unroll<vectors>([&](auto i) POSENC_INLINE_LAMBDA { simd::store(block + i * vec<Real>::lanes, zero); });
    } else {
      simd::unroll<vectors>([&](auto i) POSENC_INLINE_LAMBDA {
        constexpr index_t j = i * vec<Real>::lanes;
        const vec<Real> weight = simd::select(simd::mask_from_bits<Real>(visible[b] >> j),
                                              softmax_weight(simd::load(block + j), largest), zero);
        sum[i] = sum[i] + weight;
        simd::store(block + j, weight);
      });
    }
  }
  simd::unroll<vectors - 1>([&](auto i) POSENC_INLINE_LAMBDA { sum[0] = sum[0] + sum[i + 1]; });
  return simd::reduce_add(sum[0]);
}

/// One step over `blocks` blocks: turns scores into weights in place and brings the state forward. Bit j of
/// bits[r * chunk_blocks + b] says whether row r sees key j of block b; the scores of the others are not looked at.
/// Rows that see nothing get weights of 0. Three passes, since one row's maximum, its factor and its weights wait for each
/// other, and rows do not.
template <class Real>
POSENC_NOINLINE void softmax_step(Real* scores, index_t stride, index_t rows, index_t blocks, const std::uint64_t* bits,
                                  softmax_state<Real>& state) noexcept {
  using simd::vec;
  constexpr index_t lanes = vec<Real>::lanes;
  for (index_t r = 0; r < rows; ++r)
    state.rescale[r] = largest_score(scores + r * stride, blocks, bits + r * chunk_blocks);
  for (index_t r = 0; r < rows; r += lanes) {
    const vec<Real> sum = simd::load(state.sum + r), before = simd::load(state.largest + r);
    const vec<Real> after = (simd::max)(simd::load(state.rescale + r), before);
    // Of a row that has seen nothing yet there is nothing to rescale, and its maximum is too low to take differences.
    const auto empty = sum == vec<Real>(Real{0});
    const vec<Real> rescale = softmax_weight(simd::select(empty, after, before), after);
    simd::store(state.largest + r, after);
    simd::store(state.rescale + r, rescale);
    simd::store(state.sum + r, sum * rescale);
  }
  for (index_t r = 0; r < rows; ++r)
    state.sum[r] += weigh_scores(scores + r * stride, blocks, bits + r * chunk_blocks, state.largest[r]);
}

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ATTENTION_SCORE_PASS_HPP
