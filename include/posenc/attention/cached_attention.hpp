// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_CACHED_ATTENTION_HPP
#define POSENC_ATTENTION_CACHED_ATTENTION_HPP

#include <type_traits>

#include "attention.hpp"
#include "kv_cache.hpp"
#include "kv_view.hpp"

namespace posenc::inline POSENC_ABI {

namespace detail {

/// Blocks of a pool as a source of keys: a list of all sequences' blocks, one after another.
template <class T>
struct block_source {
  using real = compute_type<T>;

  kv_layout<T> layout;
  const kv_block<T>** blocks = nullptr;
  bool split = false;  ///< for the tiles that want it

  const kv_block<T>& at(index_t block) const noexcept { return *blocks[block]; }
  const T* data(index_t block, index_t kv_head) const noexcept {
    return at(block).data.get() + kv_head * layout.elements();
  }

  key_source<real> source() const noexcept {
    key_source<real> result;
    result.context = this;
    result.tokens = [](const void* self, index_t block) -> const key_tokens& {
      return static_cast<const block_source*>(self)->at(block).tokens;
    };
    if constexpr (!std::is_same_v<T, real>) result.scratch_elements = layout.elements();
    if (split) result.scratch_elements += parts_layout_of(layout).floats();
    result.split = split;
    result.block = [](const void* self, index_t block, index_t kv_head, tile_use use,
                      real* scratch) -> kv_pointer<real> {
      const auto& me = *static_cast<const block_source*>(self);
      const T* stored = me.data(block, kv_head);
      const bool finite = me.at(block).finite[static_cast<std::size_t>(kv_head)] != 0;
      const kv_layout<real> of_real{me.layout.head_dim, me.layout.value_dim};
      if constexpr (!std::is_same_v<T, real>) {
        // Few rows are done before a copy would pay.
        if (use.rows <= split_rows)
          return {stored, stored + me.layout.key_elements(), finite, &block_kernels_of<real, T, streaming_rows>};
        simd::load_row(stored, me.layout.elements(), scratch);
        return number_pointer(of_real, scratch, finite, use, scratch + me.layout.elements());
      } else {
        return number_pointer(of_real, stored, finite, use, scratch);
      }
    };
    result.address = [](const void* self, index_t block, index_t kv_head) -> const void* {
      return static_cast<const block_source*>(self)->data(block, kv_head);
    };
    result.longest_key = [](const void* self, index_t block, index_t kv_head) -> double {
      return static_cast<const block_source*>(self)->at(block).longest[static_cast<std::size_t>(kv_head)];
    };
    return result;
  }
};

template <class T>
kv_view<T> as_kv_view(const kv_cache<T>& cache) noexcept {
  return cache.all();
}
template <class T>
const kv_view<T>& as_kv_view(const kv_view<T>& view) noexcept {
  return view;
}

template <class Q, class T, class Out, attention_encoding E, attention_mask M>
maybe_error check_cached_attention(const tensor_view<Q>& q, const kv_view<T>& keys, const tensor_view<Out>& out,
                                   const token_view& tokens, const E& encoding, const M& mask,
                                   const attention_options& options) noexcept {
  const kv_pool<T>& pool = keys.pool();
  const kv_pool_shape& shape = pool.shape();
  if (maybe_error e = check_layout(q, "q", false)) return e;
  if (maybe_error e = check_layout(out, "out", true)) return e;
  if (q.heads() < 1 || q.heads() % shape.kv_heads != 0)
    return make_error(errc::invalid_shape, "q", "has %td heads; allowed: a multiple of the cache's %td", q.heads(),
                      shape.kv_heads);
  if (maybe_error e = check_extent(q, "q", 3, shape.head_dim, "the cache")) return e;
  if (maybe_error e = check_extent(out, "out", 0, q.batch(), "q")) return e;
  if (maybe_error e = check_extent(out, "out", 1, q.heads(), "q")) return e;
  if (maybe_error e = check_extent(out, "out", 2, q.tokens(), "q")) return e;
  if (maybe_error e = check_extent(out, "out", 3, shape.value_dim, "the cache")) return e;
  if (!identical(out, q) && overlaps(out, q))
    return make_error(errc::invalid_layout, "out", "overlaps q; allowed: memory of its own, or exactly q's");
  if (maybe_error e = check_tokens(tokens, q.batch(), q.tokens(), "tokens")) return e;
  if (tokens.axes() != shape.axes)
    return make_error(errc::invalid_shape, "tokens", "has %td position axes; allowed: the cache's %td", tokens.axes(),
                      shape.axes);
  const index_t sequences = tokens.has_cu_seqlens() ? tokens.sequences() : q.batch();
  if (sequences != keys.sequences())
    return make_error(errc::mismatch, "q", "has %td sequences (batch rows, or cu_seqlens); allowed: the cache's %td",
                      sequences, keys.sequences());
  if (maybe_error e = keys.check()) return e;
  if (pool.tokens() > 0 && tokens.count() > 0 && tokens.has_documents() != pool.has_documents())
    return make_error(errc::mismatch, "tokens", "has %s document ids and the cache has %s; allowed: both or neither",
                      tokens.has_documents() ? "" : "no", pool.has_documents() ? "some" : "none");
  if (maybe_error e =
          check_encoding(encoding, {q.heads(), shape.kv_heads, q.dim(), &tokens, nullptr, pool.whole_positions()}))
    return e;
  if (maybe_error e = pool.check_fingerprint(encoding)) return e;
  if (maybe_error e = check_mask(mask, {q.batch(), q.heads(), q.tokens(), keys.end_index()})) return e;
  if (maybe_error e = check_options(options, q.batch(), q.heads(), q.tokens())) return e;
  if (options.lse.meets(out)) return lse_overlap("out");
  if (options.lse.meets(q)) return lse_overlap("q");
  return {};
}

template <class Real, class T, executor X>
POSENC_NOINLINE void run_cached_attention(attention_call<Real>& call, const kv_view<T>& view, workspace* given,
                                          X& executor) {
  const bool ragged = call.q_tokens.has_cu_seqlens();
  const index_t count = view.sequences(), workers = concurrency_of(executor);
  index_t blocks = 0;
  for (index_t s = 0; s < count; ++s) blocks += view.blocks(s);

  workspace own;
  workspace& memory = given == nullptr ? own : *given;
  attention_sequence* sequences = nullptr;
  block_source<T> keys{view.pool().layout()};
  const auto lists = [&](std::byte* base) {
    bump_allocator allocator(base);
    call.sequences = sequences = allocator.take<attention_sequence>(count);
    keys.blocks = allocator.take<const kv_block<T>*>(blocks);
    return allocator.used();
  };
  const index_t listed = lists(nullptr);
  lists(memory.take(listed));
  index_t at = 0;
  for (index_t s = 0; s < count; ++s) {
    const index_t q_begin = ragged ? call.q_tokens.sequence_begin(s) : 0;
    const index_t q_end = ragged ? call.q_tokens.sequence_begin(s + 1) : call.q_tokens.count();
    sequences[s] = {ragged ? 0 : s, q_begin, q_end - q_begin, at, view.blocks(s), view.kept(), view.dropped(s)};
    for (index_t b = 0; b < view.blocks(s); ++b) keys.blocks[at++] = &view.block(s, b);
  }
  for (index_t s = 0; s < count; ++s) keys.split = keys.split || sequences[s].q_count * call.group() > split_rows;
  keys.split = keys.split && uses_matrix_unit<Real>(call.head_dim, call.value_dim);
  call.sequence_count = count;
  call.keys = keys.source();

  attention_engine<Real> engine(call);
  const auto take = [&](std::byte* base) {
    bump_allocator allocator(base);
    engine.take(allocator, workers, false);
    return allocator.used();
  };
  std::byte* const all = memory.take(listed + take(nullptr), listed);
  lists(all);
  take(all + listed);
  engine.run(executor);
}

}  // namespace detail

/// What attention reads keys in blocks from: a `kv_cache`, or a `kv_view` of some of its sequences or of one's own tables.
template <class C>
concept cached_keys = requires(const C& c) { detail::as_kv_view(c); };

/// What attention over a cache would raise for these arguments, as a value. Never throws; allocates nothing for heads of up
/// to 1024 elements and rotations of up to 4096 numbers a token (to compare encodings takes that much room).
template <class Q, cached_keys C, class Out, class E, class M>
  requires(attention_encoding<E> && attention_mask<M>)
maybe_error check(const Q& q, const C& cache, Out&& out, const token_view& tokens, const E& encoding, const M& mask,
                  const attention_options& options = {}) noexcept {
  return detail::check_cached_attention(as_view(q), detail::as_kv_view(cache), as_view(out), tokens, encoding, mask,
                                        options);
}

/// Attention of new queries over a cache: q and out [sequences, heads, q_tokens, dim], or ragged with as many sequences in
/// `tokens` as the cache has (or the view of it). `tokens` describes the queries; append the new tokens' keys to the cache
/// first if they are to see themselves. Queries are rotated by `encoding`, which must be the one that the keys were
/// appended with. Everything else is as for `attention` over tensors; key indices, which dense masks go by, count from the
/// start of a sequence.
template <class Q, cached_keys C, class Out, class E, class M, class Executor = serial_executor>
void attention(const Q& q, const C& cache, Out&& out, const token_view& tokens, const E& encoding, const M& mask,
               const attention_options& options = {}, Executor&& executor = {}) {
  if constexpr (detail::check_viewable<const Q>() && detail::check_viewable<std::remove_reference_t<Out>>()) {
    using stored = typename C::value_type;
    if constexpr (detail::check_attention_types<const Q, tensor_view<stored>, tensor_view<stored>,
                                                std::remove_reference_t<Out>, E, M>()) {
      const auto q_view = as_view(q);
      const auto out_view = as_view(out);
      const kv_view<stored> view = detail::as_kv_view(cache);
      raise_if(detail::check_cached_attention(q_view, view, out_view, tokens, encoding, mask, options));

      using real = compute_type<stored>;
      detail::attention_call<real> call;
      detail::set_sides(call, q_view, out_view, tokens, options);
      call.kv_heads = view.pool().shape().kv_heads;
      call.encoding = detail::encoding_policy_of<real>(encoding);
      call.mask = detail::mask_policy_of(mask);
      detail::run_cached_attention(call, view, options.memory, executor);
    }
  }
}

/// A call without a mask does not compile: which keys a query sees is never guessed.
template <class Q, cached_keys C, class Out, class E>
void attention(const Q&, const C&, Out&&, const token_view&, const E&) {
  static_assert(detail::never<E>,
                "posenc: attention needs a mask behind the encoding: posenc::causal{}, "
                "posenc::bidirectional{} or another");
}

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ATTENTION_CACHED_ATTENTION_HPP
