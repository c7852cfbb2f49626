// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_ENGINE_HPP
#define POSENC_ATTENTION_ENGINE_HPP

#include <algorithm>
#include <atomic>

#include "../core/executor.hpp"
#include "call.hpp"
#include "tile.hpp"
#include "workspace.hpp"

/// Cuts a call into tiles, runs them on an executor and finishes what was split. The cut depends on shapes alone, so that
/// results do not depend on the number of threads.
namespace posenc::inline POSENC_ABI::detail {

/// a / b rounded up, a >= 0: also for the largest a.
constexpr index_t ceil_div(index_t a, index_t b) noexcept { return a == 0 ? 0 : (a - 1) / b + 1; }

/// How many KV heads are packed and run at a time: few, so that what is packed is still in a cache when it is read, and
/// enough that the last tiles of a time leave no thread without work for long.
constexpr index_t heads_at_a_time(index_t jobs, index_t kv_heads, index_t workers) noexcept {
  if (workers <= 1 || jobs <= 0) return kv_heads < 1 ? kv_heads : 1;
  const index_t enough = ceil_div(16 * workers, jobs);
  return enough < kv_heads ? enough : kv_heads;
}

template <class Real>
class attention_engine {
 public:
  explicit attention_engine(const attention_call<Real>& call) : call_(call) {}

  /// Tiles of one KV head.
  index_t count_jobs() {
    for_each_job([](const tile_job&) {});
    return job_count_;
  }

  /// Takes the engine's memory; with a counting allocator it tells how much that is. If KV heads are run some at a time,
  /// the rotations of all queries are kept from one time to the next.
  void take(bump_allocator& memory, index_t workers, bool some_at_a_time) {
    const index_t tasks = count_jobs() * call_.kv_heads;
    if (workers > tasks) workers = tasks;
    jobs_ = memory.take<tile_job>(job_count_);
    order_ = memory.take<index_t>(job_count_);
    scratch_ = memory.take<tile_scratch<Real>>(workers);
    const index_t padded = call_.layout().padded_value_dim();
    partial_sums_ = memory.take<Real>(partial_rows_ * call_.kv_heads * padded);
    partial_base_ = memory.take<double>(partial_rows_ * call_.kv_heads);
    partial_sum_ = memory.take<double>(partial_rows_ * call_.kv_heads);
    const index_t rotations = some_at_a_time && job_count_ > 0 ? rotated_queries() * call_.rotation_size() : 0;
    rotations_ = rotations == 0 ? nullptr : memory.take<Real>(rotations);
    for (index_t w = 0; w < workers; ++w) {
      tile_scratch<Real> one;
      one.take(memory, call_, call_.q_tokens.axes());
      one.all_rotations = rotations_;
      if (scratch_ != nullptr) scratch_[w] = one;
    }
    workers_ = workers;
  }

  /// The whole call.
  template <executor X>
  void run(X& executor) {
    plan(executor);
    run_heads(executor, 0, call_.kv_heads);
    finish();
  }

  /// In parts: first the plan, then all KV heads in any order, then the end.
  template <executor X>
  void plan(X& executor) {
    index_t i = 0;
    for_each_job([&](const tile_job& job) {
      jobs_[i] = job;
      order_[i] = i;
      ++i;
    });
    // The longest tiles come first, and of equally long ones the later, which see more under a causal mask, so that no
    // worker is left with a long one at the end.
    std::sort(order_, order_ + job_count_, [this](index_t a, index_t b) {
      const index_t work_a = jobs_[a].rows * jobs_[a].blocks, work_b = jobs_[b].rows * jobs_[b].blocks;
      return work_a != work_b ? work_a > work_b : a > b;
    });
    if (rotations_ != nullptr) rotate_queries(executor);
  }

  /// KV heads [first, first + count). Those of a tile follow each other, so that a worker prepares the rotations of its
  /// queries once.
  template <executor X>
  void run_heads(X& executor, index_t first, index_t count) {
    const index_t tasks = job_count_ * count;
    std::atomic<index_t> next{0};
    executor.parallel_for(workers_ < tasks ? workers_ : tasks, [&](index_t worker) {
      tile_runner<Real> runner(call_, scratch_[worker]);
      for (index_t task = next.fetch_add(1); task < tasks; task = next.fetch_add(1))
        run_tile(runner, scratch_[worker], jobs_[order_[task / count]], first + task % count);
    });
  }

  void finish() {
    if (partial_rows_ > 0) merge_ranges();
  }

 private:
  index_t rotated_queries() const noexcept { return call_.q_tokens.batch() * call_.q_tokens.count(); }

  /// Prepares the rotations of all queries, some in a row at a time.
  template <executor X>
  void rotate_queries(X& executor) {
    constexpr index_t some = 64;
    const index_t count = call_.q_tokens.count(), queries = rotated_queries(), size = call_.rotation_size();
    executor.parallel_for(ceil_div(queries, some), [&](index_t task) {
      for (index_t i = task * some; i < queries && i < (task + 1) * some; ++i)
        prepare_rotation_of(call_.encoding, call_.rotation(), call_.q_tokens, i / count, i % count, token_role::query,
                            rotations_ + i * size);
    });
  }

  /// Calls f for every job in order, and counts.
  template <class F>
  void for_each_job(F&& f) {
    job_count_ = partial_rows_ = 0;
    for (index_t s = 0; s < call_.sequence_count; ++s) {
      const attention_sequence& sequence = call_.sequences[s];
      const index_t rows = sequence.q_count * call_.group();
      for (index_t first = 0; first < rows; first += tile_rows) {
        tile_job job;
        job.sequence = s;
        job.first_row = first;
        job.rows = rows - first < tile_rows ? rows - first : tile_rows;
        for (index_t end = 0; job.first_block == 0 || job.first_block < sequence.blocks; job.first_block = end) {
          end = sequence.splits(rows, call_.kv_heads) ? sequence.range_end(job.first_block) : sequence.blocks;
          job.blocks = end - job.first_block;
          if (job.blocks < sequence.blocks) {
            job.first_partial = partial_rows_;
            partial_rows_ += job.rows;
          }
          f(job);
          ++job_count_;
          if (end == 0) break;  // no keys: a job that writes zeros
        }
      }
    }
  }

  void run_tile(tile_runner<Real>& runner, tile_scratch<Real>& scratch, const tile_job& job, index_t kv_head) {
    runner.run(job, kv_head);
    const index_t padded = call_.layout().padded_value_dim();
    const index_t batch = call_.sequences[job.sequence].batch;
    for (index_t r = 0; r < job.rows; ++r) {
      const auto sum = static_cast<double>(scratch.state->sum[r]);
      const double base = is_zero(sum) ? 0 : static_cast<double>(scratch.state->largest[r]);
      const Real* weighted = scratch.sums + r * padded;
      if (job.first_partial < 0) {
        finish_row(call_, batch, scratch.rows[r], weighted, base, sum, scratch.row);
        continue;
      }
      const index_t at = (job.first_partial + r) * call_.kv_heads + kv_head;
      partial_base_[at] = base;
      partial_sum_[at] = sum;
      for (index_t d = 0; d < padded; ++d) partial_sums_[at * padded + d] = weighted[d];
    }
  }

  /// Adds up the ranges of split rows, in their order. There are few such rows: at most one tile a sequence.
  void merge_ranges() {
    const index_t padded = call_.layout().padded_value_dim(), group = call_.group();
    for (index_t j = 0; j < job_count_; ++j) {
      const tile_job& first = jobs_[j];
      if (first.first_partial < 0 || first.first_block != 0) continue;
      const attention_sequence& sequence = call_.sequences[first.sequence];
      index_t ranges = 1;
      while (j + ranges < job_count_ && jobs_[j + ranges].first_block > 0) ++ranges;
      for (index_t kv_head = 0; kv_head < call_.kv_heads; ++kv_head)
        for (index_t r = 0; r < first.rows; ++r) {
          const auto at = [&](index_t range) {
            return (jobs_[j + range].first_partial + r) * call_.kv_heads + kv_head;
          };
          double top = 0, sum = 0;
          bool any = false;
          for (index_t range = 0; range < ranges; ++range)
            if (!is_zero(partial_sum_[at(range)]) && (!any || partial_base_[at(range)] > top)) {
              top = partial_base_[at(range)];
              any = true;
            }
          Real* total = scratch_[0].sums;
          for (index_t d = 0; d < padded; ++d) total[d] = 0;
          for (index_t range = 0; range < ranges; ++range) {
            if (is_zero(partial_sum_[at(range)])) continue;
            const double factor = std::exp(partial_base_[at(range)] - top);
            sum += partial_sum_[at(range)] * factor;
            for (index_t d = 0; d < padded; ++d)
              total[d] += partial_sums_[at(range) * padded + d] * static_cast<Real>(factor);
          }
          tile_row row;
          row.query = sequence.q_begin + (first.first_row + r) / group;
          row.head = kv_head * group + (first.first_row + r) % group;
          row.document = call_.q_tokens.document(sequence.batch, row.query);
          finish_row(call_, sequence.batch, row, total, top, sum, scratch_[0].row);
        }
    }
  }

  const attention_call<Real>& call_;
  index_t workers_ = 0, job_count_ = 0, partial_rows_ = 0;
  tile_job* jobs_ = nullptr;
  index_t* order_ = nullptr;
  tile_scratch<Real>* scratch_ = nullptr;
  Real *partial_sums_ = nullptr, *rotations_ = nullptr;
  double *partial_base_ = nullptr, *partial_sum_ = nullptr;
};

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ATTENTION_ENGINE_HPP
