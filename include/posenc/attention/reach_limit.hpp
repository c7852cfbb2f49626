// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_REACH_LIMIT_HPP
#define POSENC_ATTENTION_REACH_LIMIT_HPP

#include <cmath>
#include <limits>

#include "tile_scratch.hpp"

namespace posenc::inline POSENC_ABI::detail {

/// Biases that fall with distance without end (ALiBi) make far keys weigh nothing. Where an encoding bounds its biases, a
/// tile walks from the block nearest to its queries outward and leaves out blocks whose every score is, by that bound and
/// |q.k| <= |q| |k|, so far below the largest score so far that its weight is exactly 0 (`softmax_exp2`). So not a bit of
/// the result depends on what is left out, and no key that a row does not see decides about it. Blocks with keys that are
/// not finite are never left out. For other encodings this does nothing.
template <class Real>
class reach_limit {
 public:
  reach_limit(const attention_call<Real>& call, const tile_scratch<Real>& scratch, const tile_job& job, index_t kv_head)
      : call_(call), scratch_(scratch), kv_head_(kv_head), rows_(job.rows), blocks_(job.blocks) {
    const bias_functions<Real>* bias = call.encoding.bias;
    if (bias == nullptr || bias->largest == nullptr || call.keys.longest_key == nullptr || job.blocks < 2) return;
    axis_ = bias->axis(call.encoding.encoding);
    const attention_sequence& sequence = call.sequences[job.sequence];
    low_ = high_ = scratch.rows[0].position[axis_];
    for (index_t r = 0; r < rows_; ++r) {
      const double at = scratch.rows[r].position[axis_];
      low_ = at < low_ ? at : low_;
      high_ = at > high_ ? at : high_;
      const Real* query = scratch.queries + r * scratch.query_stride;
      simd::vec<Real> sums(Real{0});
      for (index_t d = 0; d < scratch.query_stride; d += simd::vec<Real>::lanes)  // zeros from head_dim on
        sums = simd::fma(simd::load(query + d), simd::load(query + d), sums);
      const Real squares = simd::reduce_add(sums);
      if (!is_finite(squares)) return;
      const double length =
          std::sqrt(static_cast<double>(squares)) * (call.softcap > 0 ? call.softcap : 1) * (1 + 1e-4);
      scratch.lengths[r] = static_cast<Real>(length);
    }
    double nearest = (std::numeric_limits<double>::max)();
    for (index_t b = 0; b < job.blocks; ++b) {
      const key_tokens& keys = call.keys.tokens(call.keys.context, sequence.first_block + job.first_block + b);
      if (keys.count == 0) continue;
      const double first = keys.positions[axis_ * block_keys],
                   last = keys.positions[axis_ * block_keys + keys.count - 1];
      const double middle = std::fabs((first + last) / 2 - (low_ + high_) / 2);
      if (middle > nearest) continue;
      nearest = middle;
      start_ = b;
    }
    limits_ = true;
  }

  /// The block to visit at a step: the nearest one, then to both sides in turns as long as there are two.
  index_t nearest_first(index_t step) const noexcept {
    if (!limits_) return step;
    const index_t below = start_, above = blocks_ - 1 - start_, both = below < above ? below : above;
    if (step <= 2 * both) return step % 2 == 0 ? start_ + step / 2 : start_ - (step + 1) / 2;
    return below > above ? blocks_ - 1 - step : step;
  }

  /// Whether no key of the block matters to any row, given the largest scores so far.
  bool beyond(index_t block, const key_tokens& keys) const noexcept {
    if (!limits_ || keys.count == 0) return false;
    const double longest_key = call_.keys.longest_key(call_.keys.context, block, kv_head_);
    if (longest_key < 0) return false;
    const double* positions = keys.positions + axis_ * block_keys;
    double first = positions[0], last = positions[0];
    for (index_t j = keys.consecutive_positions ? keys.count - 1 : 0; j < keys.count; ++j) {
      first = positions[j] < first ? positions[j] : first;
      last = positions[j] > last ? positions[j] : last;
    }
    const index_t group = call_.group();
    for (index_t h = 0; h < group && h < rows_; ++h) {
      const index_t head = scratch_.rows[h].head;
      const double bias = call_.encoding.bias->largest(call_.encoding.encoding, first - high_, last - low_, head);
      const auto weighs_nothing = [&](index_t r) {
        const double product = static_cast<double>(scratch_.lengths[r]) * longest_key;
        const double content = call_.softcap > 0 && call_.softcap < product ? call_.softcap : product;
        return content < greatest_content &&
               (static_cast<double>(scratch_.state->largest[r]) - content - bias > weightless);
      };
      for (index_t r = h; r < rows_; r += group)
        if (!weighs_nothing(r)) return false;
    }
    return true;
  }

 private:
  /// e^-weightless is below 2^-99.5 by more than the scores' rounding can be, if they are not too large.
  static constexpr double weightless = 70, greatest_content = 1e5;

  const attention_call<Real>& call_;
  const tile_scratch<Real>& scratch_;
  index_t kv_head_, rows_, blocks_, axis_ = 0, start_ = 0;
  double low_ = 0, high_ = 0;
  bool limits_ = false;
};

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ATTENTION_REACH_LIMIT_HPP
