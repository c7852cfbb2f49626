// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_ROTATE_ROWS_HPP
#define POSENC_ENCODING_ROTATE_ROWS_HPP

#include <algorithm>
#include <type_traits>

#include "../core/dtype.hpp"
#include "../core/executor.hpp"
#include "../core/number_list.hpp"
#include "../core/tokens.hpp"
#include "../simd/convert.hpp"
#include "concepts.hpp"
#include "rotate_checks.hpp"
#include "rotated_dims.hpp"
#include "row_elements.hpp"
#include "store_mode.hpp"

/// How rotations walk over tensors: tokens outside, heads inside, so that what describes a token's rotation is made once
/// for all its heads, of queries and keys.
namespace posenc::inline POSENC_ABI::detail {

/// One that also has the choice of a `store_mode`, and is told where the heads of the next token begin.
template <class E, class Real, class In, class Out>
concept has_streaming_heads =
    requires(const E& e, rotation_shape s, const Real* row, index_t n, const In* in, Out* out) {
      e.rotate_heads(s, row, n, in, n, out, n, store_mode::streaming, in, out);
    };

/// The dimensions that may come out changed. What `rotated_dims` says is about turning; something else may scale the others.
template <class E, class Real, class In, class Out>
dim_range changed_dims_of(const E& e, const rotation_shape& shape) {
  return has_rotate_heads<E, Real, In, Out> ? rotated_dims_of(e, shape) : dim_range{0, shape.head_dim};
}

/// Numbers to work in, without allocating for heads of usual sizes: up to two rows of cosines and sines, and a head.
template <class Real>
class row_memory {
 public:
  explicit row_memory(index_t size) {
    if (size > usual) large_.extend(static_cast<std::size_t>(size));
  }
  Real* data() noexcept { return large_.empty() ? small_ : large_.data(); }

 private:
  static constexpr index_t usual = 3 * 512;
  alignas(64) Real small_[usual];
  number_list<Real> large_;
};

/// Turns one head by `turn(Real* x)`, which works in place. 16-bit elements pass through `spare`; what is not among the
/// changed dimensions keeps its bits.
template <class Real, class In, class Out, class Turn>
POSENC_ALWAYS_INLINE void turn_head(const In* in, Out* out, index_t head_dim, dim_range changed, Real* spare,
                                    Turn&& turn) {
  const bool same = static_cast<const void*>(in) == static_cast<const void*>(out);
  if constexpr (std::is_same_v<Out, Real>) {
    if (!same) copy_elements<Real>(in, head_dim, out);
    turn(out);
  } else {
    simd::load_row(in, head_dim, spare);
    turn(spare);
    simd::store_row(static_cast<const Real*>(spare + changed.begin), changed.end - changed.begin, out + changed.begin);
    if (same) return;
    copy_elements<Real>(in, changed.begin, out);
    copy_elements<Real>(in + changed.end, head_dim - changed.end, out + changed.end);
  }
}

/// Turns all heads of one token.
template <class Real, class E, class In, class Out>
POSENC_ALWAYS_INLINE void turn_token(const E& encoding, const rotation_shape& shape, const Real* row,
                                     const token_heads<In, Out>& x, store_mode store, Real* spare) {
  static_cast<void>(store);
  if constexpr (has_streaming_heads<E, Real, In, Out>) {
    encoding.rotate_heads(shape, row, x.heads, x.in, x.in_stride, x.out, x.out_stride, store, x.next, x.next_out);
  } else if constexpr (has_rotate_heads<E, Real, In, Out>) {
    encoding.rotate_heads(shape, row, x.heads, x.in, x.in_stride, x.out, x.out_stride);
  } else {
    const index_t group = x.heads / shape.kv_heads;
    const dim_range changed = changed_dims_of<E, Real, In, Out>(encoding, shape);
    for (index_t h = 0; h < x.heads; ++h)
      turn_head(x.in + h * x.in_stride, x.out + h * x.out_stride, shape.head_dim, changed, spare,
                [&](Real* head) { encoding.apply_rotation(shape, row, h / group, head); });
  }
}

/// One token, all of whose heads come as single words: a structure that is copied with wider loads than it was just stored
/// with waits until all stores before it are done, those of the former call, and that takes longer than all checks.
template <class Real, class E, class... Heads>
POSENC_NOINLINE void turn_one_token(double position, const E& encoding, rotation_op op, rotation_shape shape,
                                    store_mode store, Heads... heads) {
  const index_t size = encoding.rotation_size(shape);
  row_memory<Real> memory(size + shape.head_dim);
  Real* const row = memory.data();
  bool ready = false;
  const auto turn = [&](const auto& x) POSENC_INLINE_LAMBDA {
    if (!ready || depends_on_role<E>())
      encoding.prepare_rotation(shape, position_span(&position, 1), {x.role, op}, row);
    ready = true;
    turn_token(encoding, shape, static_cast<const Real*>(row), x, store, row + size);
  };
  ((heads.next = nullptr), ...);  // what has just been projected is in the caches
  (turn(heads), ...);
  if (store == store_mode::streaming) simd::streaming_fence();
}

/// The tokens of a call, one step for each token of each row of the batch. Rows that share their description come one
/// after another at each token, so that they share what is made for it too.
struct token_walk {
  const token_view& tokens;
  index_t batch;

  index_t steps() const noexcept { return batch * tokens.count(); }

  /// Calls f(positions, first row, end row, token) until steps [first, last) are done.
  template <class F>
  void run(index_t first, index_t last, F&& f) const {
    if (first >= last) return;
    double position[max_position_axes] = {};
    const auto read = [&](index_t row, index_t token) {
      for (index_t axis = 0; axis < tokens.axes(); ++axis) position[axis] = tokens.position(axis, row, token);
    };
    // Divisions cost as much as half a head: one for each piece.
    if (tokens.batch() == 1 && batch > 1) {
      for (index_t token = first / batch, row = first % batch; first < last; ++token, row = 0) {
        const index_t end = (std::min)(batch, row + (last - first));
        read(row, token);
        f(position, row, end, token);
        first += end - row;
      }
      return;
    }
    const index_t count = tokens.count();
    index_t row = batch == 1 ? 0 : first / count, token = first - row * count;
    for (; first < last; ++first) {
      read(row, token);
      f(position, row, row + 1, token);
      if (++token == count) {
        token = 0;
        ++row;
      }
    }
  }
};

template <class In, class Out>
index_t bytes_a_token(const rotated_heads<In, Out>& x) noexcept {
  return x.in.heads() * x.in.dim() * static_cast<index_t>(sizeof(Out));
}

/// One or several tensors of heads of the same tokens, batch and head_dim.
template <class Real, class E, class Executor, class... Heads>
POSENC_NOINLINE void run_rotation(const token_view& tokens, index_t batch, const E& encoding, rotation_op op,
                                  const rotation_shape& shape, store_mode store, Executor& executor,
                                  const Heads&... heads) {
  const token_walk walk{tokens, batch};
  const index_t size = encoding.rotation_size(shape);
  run_steps(walk.steps(), (bytes_a_token(heads) + ...), executor, [&](index_t first, index_t last) {
    row_memory<Real> memory(size + shape.head_dim);
    Real* const row = memory.data();
    walk.run(first, last, [&](const double* position, index_t begin, index_t end, index_t token) {
      bool ready = false;
      const auto turn = [&](const auto& x) {
        if (!ready || depends_on_role<E>())
          encoding.prepare_rotation(shape, position_span(position, static_cast<std::size_t>(tokens.axes())),
                                    {x.role, op}, row);
        ready = true;
        for (index_t b = begin; b < end; ++b)
          turn_token(encoding, shape, static_cast<const Real*>(row), heads_of_token(x, b, token), store, row + size);
      };
      (turn(heads), ...);
    });
    if (store == store_mode::streaming) simd::streaming_fence();
  });
}

/// From one rotation to another, without rounding in between.
template <class Real, class From, class To, class Executor, class In, class Out>
POSENC_NOINLINE void run_rerotation(const token_view& tokens, const From& from, const To& to, double shift,
                                    const rotation_shape& shape, Executor& executor, const rotated_heads<In, Out>& x) {
  const token_walk walk{tokens, x.in.batch()};
  const index_t from_size = from.rotation_size(shape), to_size = to.rotation_size(shape);
  const index_t heads = x.in.heads(), group = heads / shape.kv_heads;
  using element = std::remove_const_t<In>;
  const dim_range changed =
      hull(changed_dims_of<From, Real, element, Out>(from, shape), changed_dims_of<To, Real, element, Out>(to, shape));
  run_steps(walk.steps(), bytes_a_token(x), executor, [&](index_t first, index_t last) {
    row_memory<Real> memory(from_size + to_size + shape.head_dim);
    Real* const from_row = memory.data();
    Real* const to_row = from_row + from_size;
    walk.run(first, last, [&](double* position, index_t begin, index_t end, index_t token) {
      const auto axes = static_cast<std::size_t>(tokens.axes());
      from.prepare_rotation(shape, position_span(position, axes), {x.role, rotation_op::inverse}, from_row);
      for (std::size_t axis = 0; axis < axes; ++axis) position[axis] += shift;
      to.prepare_rotation(shape, position_span(position, axes), {x.role, rotation_op::rotate}, to_row);
      for (index_t row = begin; row < end; ++row)
        for (index_t h = 0; h < heads; ++h)
          turn_head(static_cast<const element*>(x.in.row(row, h, token)), x.out.row(row, h, token), shape.head_dim,
                    changed, to_row + to_size, [&](Real* head) {
                      from.apply_rotation(shape, static_cast<const Real*>(from_row), h / group, head);
                      to.apply_rotation(shape, static_cast<const Real*>(to_row), h / group, head);
                    });
    });
  });
}

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ENCODING_ROTATE_ROWS_HPP
