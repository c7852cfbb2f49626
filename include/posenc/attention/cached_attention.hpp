// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_CACHED_ATTENTION_HPP
#define POSENC_ATTENTION_CACHED_ATTENTION_HPP

#include <type_traits>

#include "attention.hpp"
#include "kv_cache.hpp"

namespace posenc::inline POSENC_ABI {

namespace detail {

/// A cache as a source of key blocks. Block numbers run over all sequences, one after another.
template <class T>
struct cached_keys {
  using real = compute_type<T>;
  struct place {
    index_t sequence, block;
  };

  const kv_cache<T>* cache;
  const place* places;

  key_source<real> source() const noexcept {
    key_source<real> result;
    result.context = this;
    result.tokens = [](const void* self, index_t block) -> const key_tokens& {
      const auto& me = *static_cast<const cached_keys*>(self);
      return me.cache->block_tokens(me.places[block].sequence, me.places[block].block);
    };
    if constexpr (!std::is_same_v<T, real>) result.scratch_elements = cache->layout().elements();
    result.block = [](const void* self, index_t block, index_t kv_head, index_t rows,
                      real* scratch) -> kv_pointer<real> {
      const auto& me = *static_cast<const cached_keys*>(self);
      const place at = me.places[block];
      const T* stored = me.cache->block_data(at.sequence, at.block, kv_head);
      const index_t keys = me.cache->layout().key_elements();
      const bool finite = me.cache->finite_values(at.sequence, at.block, kv_head);
      if constexpr (!std::is_same_v<T, real>) {
        // Few rows are done before a copy would pay.
        if (rows <= split_rows) return {stored, stored + keys, finite, &block_kernels_of<real, T, streaming_rows>};
        simd::load_row(stored, me.cache->layout().elements(), scratch);
        return {scratch, scratch + keys, finite, kernels_for<real>(rows)};
      } else {
        return {stored, stored + keys, finite, kernels_for<real>(rows)};
      }
    };
    result.address = [](const void* self, index_t block, index_t kv_head) -> const void* {
      const auto& me = *static_cast<const cached_keys*>(self);
      return me.cache->block_data(me.places[block].sequence, me.places[block].block, kv_head);
    };
    result.longest_key = [](const void* self, index_t block, index_t kv_head) -> double {
      const auto& me = *static_cast<const cached_keys*>(self);
      const place at = me.places[block];
      return me.cache->longest_key(at.sequence, at.block, kv_head);
    };
    return result;
  }
};

template <class Q, class T, class Out, attention_encoding E, attention_mask M>
maybe_error check_cached_attention(const tensor_view<Q>& q, const kv_cache<T>& cache, const tensor_view<Out>& out,
                                   const token_view& tokens, const E& encoding, const M& mask,
                                   const attention_options& options) noexcept {
  const kv_cache_shape& shape = cache.shape();
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
  if (sequences != cache.sequences())
    return make_error(errc::mismatch, "q", "has %td sequences (batch rows, or cu_seqlens); allowed: the cache's %td",
                      sequences, cache.sequences());
  if (cache.longest() > 0 && tokens.has_documents() != cache.has_documents())
    return make_error(errc::mismatch, "tokens", "has %s document ids and the cache has %s; allowed: both or neither",
                      tokens.has_documents() ? "" : "no", cache.has_documents() ? "some" : "none");
  if (maybe_error e =
          check_encoding(encoding, {q.heads(), shape.kv_heads, q.dim(), &tokens, nullptr, cache.whole_positions()}))
    return e;
  if (maybe_error e = cache.check_fingerprint(encoding)) return e;
  if (maybe_error e = check_mask(mask, {q.batch(), q.heads(), q.tokens(), cache.longest()})) return e;
  if (maybe_error e = check_options(options, q.batch(), q.heads(), q.tokens())) return e;
  if (options.lse.meets(out)) return lse_overlap("out");
  if (options.lse.meets(q)) return lse_overlap("q");
  return {};
}

template <class Real, class T, executor X>
POSENC_NOINLINE void run_cached_attention(attention_call<Real>& call, const kv_cache<T>& cache, workspace* given,
                                          X& executor) {
  using keys_type = cached_keys<T>;
  const bool ragged = call.q_tokens.has_cu_seqlens();
  const index_t count = cache.sequences(), workers = concurrency_of(executor);
  index_t blocks = 0;
  for (index_t s = 0; s < count; ++s) blocks += cache.blocks(s);

  workspace own;
  workspace& memory = given == nullptr ? own : *given;
  attention_sequence* sequences = nullptr;
  typename keys_type::place* places = nullptr;
  const auto lists = [&](std::byte* base) {
    bump_allocator allocator(base);
    sequences = allocator.take<attention_sequence>(count);
    places = allocator.take<typename keys_type::place>(blocks);
    return allocator.used();
  };
  lists(memory.reserve_sequences(lists(nullptr)));
  index_t at = 0;
  for (index_t s = 0; s < count; ++s) {
    const index_t q_begin = ragged ? call.q_tokens.sequence_begin(s) : 0;
    const index_t q_end = ragged ? call.q_tokens.sequence_begin(s + 1) : call.q_tokens.count();
    sequences[s] = {ragged ? 0 : s, q_begin, q_end - q_begin, at, cache.blocks(s)};
    for (index_t b = 0; b < cache.blocks(s); ++b) places[at++] = {s, b};
  }
  const keys_type keys{&cache, places};
  call.sequences = sequences;
  call.sequence_count = count;
  call.keys = keys.source();

  attention_engine<Real> engine(call);
  const auto take = [&](std::byte* base) {
    bump_allocator allocator(base);
    engine.take(allocator, workers);
    return allocator.used();
  };
  take(memory.reserve_tiles(take(nullptr)));
  engine.run(executor);
}

}  // namespace detail

/// What attention over a cache would raise for these arguments, as a value. Never throws; allocates nothing for heads of up
/// to 1024 elements and rotations of up to 4096 numbers a token (to compare encodings takes that much room).
template <class Q, class T, class Out, class E, class M>
  requires(attention_encoding<E> && attention_mask<M>)
maybe_error check(const Q& q, const kv_cache<T>& cache, Out&& out, const token_view& tokens, const E& encoding,
                  const M& mask, const attention_options& options = {}) noexcept {
  return detail::check_cached_attention(as_view(q), cache, as_view(out), tokens, encoding, mask, options);
}

/// Attention of new queries over a cache: q and out [sequences, heads, q_tokens, dim], or ragged with as many sequences in
/// `tokens` as the cache has. `tokens` describes the queries; append the new tokens' keys to the cache first if they are to
/// see themselves. Queries are rotated by `encoding`, which must be the one that the keys were appended with.
/// Everything else is as for `attention` over tensors; key indices, which dense masks go by, count from the start of a
/// sequence.
template <class Q, class T, class Out, class E, class M, class Executor = serial_executor>
void attention(const Q& q, const kv_cache<T>& cache, Out&& out, const token_view& tokens, const E& encoding,
               const M& mask, const attention_options& options = {}, Executor&& executor = {}) {
  if constexpr (detail::check_viewable<const Q>() && detail::check_viewable<std::remove_reference_t<Out>>()) {
    if constexpr (detail::check_attention_types<const Q, tensor_view<T>, tensor_view<T>, std::remove_reference_t<Out>,
                                                E, M>()) {
      const auto q_view = as_view(q);
      const auto out_view = as_view(out);
      raise_if(detail::check_cached_attention(q_view, cache, out_view, tokens, encoding, mask, options));

      using real = compute_type<T>;
      detail::attention_call<real> call;
      detail::set_sides(call, q_view, out_view, tokens, options);
      call.kv_heads = cache.shape().kv_heads;
      call.encoding = detail::encoding_policy_of<real>(encoding);
      call.mask = detail::mask_policy_of(mask);
      detail::run_cached_attention(call, cache, options.memory, executor);
    }
  }
}

/// A call without a mask does not compile: which keys a query sees is never guessed.
template <class Q, class T, class Out, class E>
void attention(const Q&, const kv_cache<T>&, Out&&, const token_view&, const E&) {
  static_assert(detail::never<E>,
                "posenc: attention needs a mask behind the encoding: posenc::causal{}, "
                "posenc::bidirectional{} or another");
}

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ATTENTION_CACHED_ATTENTION_HPP
