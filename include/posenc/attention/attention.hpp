// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_ATTENTION_HPP
#define POSENC_ATTENTION_ATTENTION_HPP

#include <type_traits>

#include "../core/as_view.hpp"
#include "../core/eigen.hpp"
#include "../core/executor.hpp"
#include "../core/tokens.hpp"
#include "../encoding/concepts.hpp"
#include "../encoding/diagnostics.hpp"
#include "call.hpp"
#include "checks.hpp"
#include "engine.hpp"
#include "mask/concepts.hpp"
#include "options.hpp"
#include "plain_keys.hpp"
#include "row_kernel.hpp"

namespace posenc::inline POSENC_ABI {

namespace detail {

template <class Q, class K, class V, class Out, class E, class M>
consteval bool check_attention_types() {
  if constexpr (check_viewable<Q>() && check_viewable<K>() && check_viewable<V>() && check_viewable<Out>())
    if constexpr (check_attention_dtypes<view_element<Q>, view_element<K>, view_element<V>, view_element<Out>>())
      if constexpr (check_attention_encoding<E>()) return check_is_mask<M>();
  return false;
}

template <class Q, class K, class V, class Out, attention_encoding E, attention_mask M>
maybe_error check_attention(const tensor_view<Q>& q, const tensor_view<K>& k, const tensor_view<V>& v,
                            const tensor_view<Out>& out, const token_pair& tokens, const E& encoding, const M& mask,
                            const attention_options& options) noexcept {
  if (maybe_error e = check_shapes(q, k, v, out)) return e;
  if (maybe_error e = check_tokens(tokens.q, q.batch(), q.tokens(), "tokens.q", layout_hint(q))) return e;
  if (maybe_error e = check_tokens(tokens.k, k.batch(), k.tokens(), "tokens.k", layout_hint(k))) return e;
  if (maybe_error e = check_token_pair(tokens)) return e;
  if (maybe_error e = check_encoding(encoding, {q.heads(), k.heads(), q.dim(), &tokens.q, &tokens.k})) return e;
  if (maybe_error e = check_mask(mask, {q.batch(), q.heads(), q.tokens(), k.tokens()})) return e;
  if (maybe_error e = check_options(options, q.batch(), q.heads(), q.tokens())) return e;
  if (options.lse.meets(out)) return lse_overlap("out");
  if (options.lse.meets(q)) return lse_overlap("q");
  if (options.lse.meets(k)) return lse_overlap("k");
  if (options.lse.meets(v)) return lse_overlap("v");
  return {};
}

template <class Real, class Q, class Out>
void set_sides(attention_call<Real>& call, const tensor_view<Q>& q, const tensor_view<Out>& out,
               const token_view& q_tokens, const attention_options& options) {
  call.heads = q.heads();
  call.head_dim = q.dim();
  call.value_dim = out.dim();
  call.q = byte_rows_of(tensor_view<const Q>(q));
  call.load_q = row_loader_of<Real, std::remove_const_t<Q>>;
  call.out = byte_rows_of(out);
  call.store_out = row_storer_of<Real, Out>;
  call.q_tokens = q_tokens;
  call.scale = scale_of(options, q.dim());
  call.softcap = options.softcap;
  call.sinks = options.sinks;
  call.lse = options.lse;
}

/// The sequences of a call: the rows of the batch, or what cu_seqlens say.
struct sequence_bounds {
  const token_view *q = nullptr, *k = nullptr;
  index_t batch = 0;

  bool ragged() const noexcept { return q->has_cu_seqlens(); }
  index_t count() const noexcept { return batch == 0 || !ragged() ? batch : q->sequences(); }
  index_t begin(const token_view& side, index_t s) const noexcept { return ragged() ? side.sequence_begin(s) : 0; }
  index_t end(const token_view& side, index_t s) const noexcept {
    return ragged() ? side.sequence_begin(s + 1) : side.count();
  }
};

/// Everything behind the checks, once for each compute type and executor.
template <class Real, executor X>
POSENC_NOINLINE void run_attention(attention_call<Real>& call, plain_keys<Real>& keys, index_t batch, workspace* given,
                                   X& executor) {
  const sequence_bounds bounds{&call.q_tokens, &keys.tokens, batch};
  const index_t workers = concurrency_of(executor);
  workspace own;
  workspace& memory = given == nullptr ? own : *given;

  const index_t count = bounds.count();
  const index_t list = (count * static_cast<index_t>(sizeof(attention_sequence)) + 63) / 64 * 64;
  auto* sequences = reinterpret_cast<attention_sequence*>(memory.take(list));
  keys.pack_ahead = keys.encoding.rotation != nullptr;
  for (index_t s = 0; s < count; ++s) {
    const index_t q_begin = bounds.begin(*bounds.q, s), q_count = bounds.end(*bounds.q, s) - q_begin;
    const index_t first = keys.add_sequence(bounds.end(*bounds.k, s) - bounds.begin(*bounds.k, s));
    sequences[s] = {bounds.ragged() ? 0 : s, q_begin, q_count, first, keys.blocks() - first};
    // More rows than one tile read each block more than once.
    keys.pack_ahead = keys.pack_ahead || q_count * call.group() > tile_rows;
    keys.split = keys.split || q_count * call.group() > split_rows;
  }
  keys.split = keys.split && uses_matrix_unit<Real>(keys.head_dim, keys.value_dim);
  call.sequences = sequences;
  call.sequence_count = count;

  attention_engine<Real> engine(call);
  const index_t heads = keys.pack_ahead ? heads_at_a_time(engine.count_jobs(), call.kv_heads, workers) : call.kv_heads;
  keys.heads_at_a_time = heads;
  const auto take = [&](std::byte* base) {
    bump_allocator allocator(base);
    keys.take(allocator, workers);
    call.keys = keys.source();
    engine.take(allocator, workers, heads < call.kv_heads);
    return allocator.used();
  };
  std::byte* const all = memory.take(list + take(nullptr), list);
  call.sequences = sequences = reinterpret_cast<attention_sequence*>(all);
  take(all + list);
  for (index_t s = 0; s < count; ++s) {
    const index_t begin = bounds.begin(*bounds.k, s);
    keys.describe(sequences[s].first_block, sequences[s].batch, begin, bounds.end(*bounds.k, s) - begin,
                  sequences[s].q_count * call.group());
  }
  engine.plan(executor);
  for (index_t first = 0; first < call.kv_heads; first += heads) {
    const index_t some = call.kv_heads - first < heads ? call.kv_heads - first : heads;
    keys.pack(executor, workers, first, some);
    engine.run_heads(executor, first, some);
  }
  engine.finish();
}

}  // namespace detail

/// What attention would raise for these arguments, as a value. Never throws and allocates nothing.
template <class Q, class K, class V, class Out, class E, class M>
  requires(attention_encoding<E> && attention_mask<M>)
maybe_error check(const Q& q, const K& k, const V& v, Out&& out, const token_pair& tokens, const E& encoding,
                  const M& mask, const attention_options& options = {}) noexcept {
  return detail::check_attention(as_view(q), as_view(k), as_view(v), as_view(out), tokens, encoding, mask, options);
}

/// Scaled dot-product attention with positions (Vaswani et al., arXiv:1706.03762):
///
///     out = softmax(mask(softcap(scale * q' k'^T) + biases)) v,   q', k': q and k rotated by the encoding
///
/// in one pass over the keys (online softmax), with memory linear in the tokens.
///
/// q    [batch, heads, q_tokens, head_dim]        k  [batch, kv_heads, k_tokens, head_dim]
/// out  [batch, heads, q_tokens, value_dim]       v  [batch, kv_heads, k_tokens, value_dim]
///
/// Query head h reads KV head h / (heads / kv_heads). Any strides with a contiguous dim; out may be q itself, and must not
/// overlap k or v. Elements are float, half and bfloat16 in any mix (arithmetic in float), or all double.
///
/// `tokens` describes both sides: position, order, document, and for ragged batches (batch 1) the bounds of the sequences.
/// `encoding` turns queries and keys and adds biases; `mask` says which keys a query sees. A key that a query does not see
/// never reaches it, whatever its bits. A row that sees nothing is 0, with lse the sink or -infinity; padding queries
/// (document -1) are 0 with lse -infinity.
///
/// Errors: `check` with the same arguments gives them as a value. Nothing has been written when one is raised.
/// Accuracy, of the largest |v| that is seen: float within 2.5e-7 max(8, s), which is 2e-6 for ordinary scores; double
/// 1e-12, half 2e-3, bfloat16 1e-2 for s below 8. s is the largest size of a score among the keys that weigh something: the
/// sum of all |scale q_d k_d|, and biases. (It is rounded in proportion to that size, and no softmax takes that back.)
/// Scores, and |v| times the number of keys, must stay within the range of the arithmetic (float: 3e38): beyond, results
/// are infinite or NaN. Hooks of encodings and masks must not throw; should one, out may have been written in part.
/// The executor does not change a bit of the result.
/// Compiled for AMX, float arithmetic for more than 16 rows of queries runs on the matrix unit where Linux allows it
/// (`simd::matrix_unit_allowed`), within the same bounds: floats are sums of three bfloat16 numbers (arXiv:1904.06376).
/// Blocks of keys and tiles of queries with a number that is neither 0 nor between 2^-60 and 2^60 are multiplied without
/// it, so that there such numbers may change the last digits of rows that do not see them.
template <class Q, class K, class V, class Out, class E, class M, class Executor = serial_executor>
void attention(const Q& q, const K& k, const V& v, Out&& out, const token_pair& tokens, const E& encoding,
               const M& mask, const attention_options& options = {}, Executor&& executor = {}) {
  if constexpr (detail::check_attention_types<const Q, const K, const V, std::remove_reference_t<Out>, E, M>()) {
    const auto q_view = as_view(q);
    const auto k_view = as_view(k);
    const auto v_view = as_view(v);
    const auto out_view = as_view(out);
    raise_if(detail::check_attention(q_view, k_view, v_view, out_view, tokens, encoding, mask, options));

    using key_type = std::remove_const_t<view_element<const K>>;
    using real = compute_type<key_type>;
    detail::attention_call<real> call;
    detail::set_sides(call, q_view, out_view, tokens.q, options);
    call.kv_heads = k_view.heads();
    call.encoding = detail::encoding_policy_of<real>(encoding);
    call.mask = detail::mask_policy_of(mask);

    detail::plain_keys<real> keys;
    keys.kv_heads = k_view.heads();
    keys.head_dim = k_view.dim();
    keys.value_dim = v_view.dim();
    keys.k = detail::byte_rows_of(tensor_view<const key_type>(k_view));
    keys.v = detail::byte_rows_of(tensor_view<const key_type>(v_view));
    keys.load = detail::row_loader_of<real, key_type>;
    keys.direct = std::is_same_v<real, key_type>;
    keys.row_kernels = &detail::row_kernels_of<real, key_type>;
    keys.element_size = sizeof(key_type);
    keys.tokens = tokens.k;
    keys.encoding = call.encoding;
    if (keys.encoding.rotation != nullptr && !keys.encoding.rotation->turns_keys) keys.encoding.rotation = nullptr;
    detail::run_attention(call, keys, q_view.batch(), options.memory, executor);
  }
}

/// A call without a mask does not compile: which keys a query sees is never guessed.
template <class Q, class K, class V, class Out, class E>
void attention(const Q&, const K&, const V&, Out&&, const token_pair&, const E&) {
  static_assert(detail::never<E>,
                "posenc: attention needs a mask behind the encoding: posenc::causal{}, "
                "posenc::bidirectional{} or another");
}

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ATTENTION_ATTENTION_HPP
