// SPDX-License-Identifier: Apache-2.0
// Attention over a prompt, and of one new token over a cache. Names:
//   prefill/<encoding>/<mask>/<dtype>/head_dim:<d>/heads:<h>x<kv>/tokens:<n>/threads:<t>
//   decode/<encoding>/<dtype>/heads:<h>x<kv>/keys:<n>/threads:<t>        over a cache of the library
//   decode_rows/<encoding>/<dtype>/heads:<h>x<kv>/keys:<n>/threads:<t>   over rotated keys and values in rows
//   decode_paged/<encoding>/<dtype>/heads:<h>x<kv>/keys:<n>/threads:<t>  over blocks in shuffled order, among others
//   decode_batch/<encoding>/<dtype>/heads:<h>x<kv>/sequences:16/keys:128-8192/threads:<t>
// encoding: nope rope alibi t5 softcap (no encoding, scores capped at 30). mask: none causal window<W> (causal, W keys) documents<n> (causal in n equal documents).
// limit: multiply-adds in registers for prompts (operations of visible pairs are counted), reading the cache's bytes for
// new tokens, on as many threads. baseline: the plain loop over one head's keys, for some rows. l2: scaling memory in the
// second cache, and product: score tiles of matrices that stay there, to tell a busy machine from a slow kernel.
// contiguous: the same keys in a cache of their own, block after block.
#include <posenc/core/eigen_executor.hpp>
#include <posenc/posenc.hpp>
#include <posenc/testing/reference.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/buffer.hpp"
#include "support/harness.hpp"
#include "support/limits.hpp"

namespace {

using posenc_bench::buffer;
using posenc_bench::comparison;
using posenc_bench::index_t;

/// The calling thread alone, or with a pool.
class threads {
 public:
  explicit threads(index_t count) : count_(count) {
    if (count > 1) pool_ = std::make_unique<Eigen::ThreadPool>(static_cast<int>(count));
  }
  index_t concurrency() const { return count_; }
  template <class F>
  void parallel_for(index_t n, F&& f) const {
    if (pool_) {
      posenc::eigen_executor(*pool_).parallel_for(n, f);
    } else {
      posenc::serial_executor().parallel_for(n, f);
    }
  }

 private:
  index_t count_;
  std::unique_ptr<Eigen::ThreadPool> pool_;
};

/// `times` calls on each thread: enough that waking them up does not count.
posenc_bench::reference on_all(std::shared_ptr<const threads> on, posenc_bench::reference one, index_t times = 1) {
  one.amount *= static_cast<double>(on->concurrency() * times);
  one.run = [on, times, run = one.run] {
    on->parallel_for(on->concurrency(), [&](index_t) {
      for (index_t i = 0; i < times; ++i) run();
    });
  };
  return one;
}

posenc::any_encoding encoding_named(const std::string& name, index_t heads, index_t head_dim) {
  if (name == "rope") return posenc::rope(posenc::frequency_ladder(head_dim));
  if (name == "alibi") return posenc::alibi(heads);
  if (name == "t5") {
    std::vector<float> table(static_cast<std::size_t>(32 * heads));
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i % 17) / 16.0f;
    return posenc::t5_bucket(posenc::view_thd(table.data(), 32, 1, heads), {.bidirectional = false});
  }
  return posenc::nope{};
}

/// A mask, its tokens and the pairs that are seen.
struct masked {
  std::string name;
  posenc::any_mask mask = posenc::bidirectional{};
  posenc::token_list documents;
  bool packed = false;
  double pairs = 0;

  posenc::token_view tokens(index_t count) const { return packed ? documents.view() : posenc::token_range(count); }
};

masked mask_named(const std::string& name, index_t tokens) {
  masked result;
  result.name = name;
  const auto n = static_cast<double>(tokens);
  result.pairs = n * n;
  if (name == "causal") {
    result.mask = posenc::causal{};
    result.pairs = n * (n + 1) / 2;
  } else if (name.starts_with("window")) {
    const double width = std::stod(name.substr(6));
    result.mask = posenc::window_of(width);
    result.pairs = width * (width + 1) / 2 + (n - width) * width;
  } else if (name.starts_with("documents")) {
    const index_t count = std::stol(name.substr(9));
    result.mask = posenc::causal{};
    result.documents = posenc::packed_documents(std::vector<index_t>(static_cast<std::size_t>(count), tokens / count));
    result.packed = true;
    const double length = n / static_cast<double>(count);
    result.pairs = static_cast<double>(count) * length * (length + 1) / 2;
  }
  return result;
}

/// What everybody writes first: a row of scores, the softmax, the sum. `rows` queries against all `keys`.
template <class T, class Real>
POSENC_NOINLINE void plain_loop(const T* q, const T* k, const T* v, Real* scores, Real* out, index_t rows, index_t keys,
                                index_t dim) {
  const Real scale = Real(1) / std::sqrt(static_cast<Real>(dim));
  for (index_t r = 0; r < rows; ++r, q += dim, out += dim) {
    Real largest = -1e30f, sum = 0;
    for (index_t j = 0; j < keys; ++j) {
      Real s = 0;
      for (index_t d = 0; d < dim; ++d) s += static_cast<Real>(q[d]) * static_cast<Real>(k[j * dim + d]);
      scores[j] = s * scale;
      largest = scores[j] > largest ? scores[j] : largest;
    }
    for (index_t d = 0; d < dim; ++d) out[d] = 0;
    for (index_t j = 0; j < keys; ++j) {
      const Real weight = std::exp(scores[j] - largest);
      sum += weight;
      for (index_t d = 0; d < dim; ++d) out[d] += weight * static_cast<Real>(v[j * dim + d]);
    }
    for (index_t d = 0; d < dim; ++d) out[d] /= sum;
  }
  benchmark::ClobberMemory();
}

template <class T>
double bound() {
  if (sizeof(T) == 8) return 1e-12;
  if (sizeof(T) == 4) return 2e-6;
  return posenc::dtype_of<T> == posenc::dtype::half ? 2e-3 : 1e-2;
}

/// Some queries of all heads against the double-precision reference. Values are in [-1, 1).
template <class T, class K>
std::string deviation(const posenc::tensor_view<T>& q, const K& k, const K& v, const posenc::tensor_view<T>& out,
                      const posenc::token_view& tokens, const posenc::token_view& k_tokens,
                      const posenc::any_encoding& e, const posenc::any_mask& mask, double softcap = 0) {
  double worst = 0;
  posenc::attention_options options;
  options.softcap = softcap;
  for (const index_t t : {index_t{0}, q.tokens() / 2, q.tokens() - 1}) {
    const double position[] = {tokens.position(0, 0, t)};
    const std::int64_t document[] = {tokens.document(0, t)};
    posenc::token_view one = posenc::token_positions(position, 1);
    if (tokens.has_documents()) one = one.with_documents(document);
    const posenc::tensor_view<const T> query(q.row(0, 0, t), {1, q.heads(), 1, q.dim()},
                                             {q.stride(0), q.stride(1), q.stride(2), 1});
    std::vector<double> wanted(static_cast<std::size_t>(q.heads() * out.dim()));
    posenc::testing::attention(query, k, v, posenc::view_bhtd(wanted.data(), 1, q.heads(), 1, out.dim()),
                               posenc::token_pair(one, k_tokens), e, mask, options);
    for (index_t h = 0; h < q.heads(); ++h)
      for (index_t d = 0; d < out.dim(); ++d)
        worst = std::max(worst, std::fabs(static_cast<double>(out(0, h, t, d)) -
                                          wanted[static_cast<std::size_t>(h * out.dim() + d)]));
  }
  if (worst <= bound<T>()) return {};
  char text[80];
  std::snprintf(text, sizeof text, "wrong result: off by %.3g, bound %.3g", worst, bound<T>());
  return text;
}

/// Products of 96 queries and 64 keys of head_dim 128, again and again over 8 blocks: as attention's, with nothing else.
template <class Real>
posenc_bench::reference l2_product() {
  constexpr index_t rows = 96, depth = 128, blocks = 8, keys = posenc::block_keys;
  constexpr index_t stride = depth + 16;
  auto memory = std::make_shared<buffer<Real>>(rows * stride + blocks * depth * keys + rows * keys);
  memory->fill();
  const std::vector<std::uint64_t> all(rows * posenc::detail::chunk_blocks, ~std::uint64_t{0});
  return {"product",
          [memory, all] {
            const Real* queries = memory->data();
            const Real* block = queries + rows * stride;
            Real* scores = memory->data() + rows * stride + blocks * depth * keys;
            for (index_t b = 0; b < blocks; ++b)
              posenc::detail::score_block<posenc::detail::tile_shape<Real>::rows>(
                  queries, stride, all.data(), rows, block + b * depth * keys, depth, scores, keys,
                  reinterpret_cast<const char*>(block));
            benchmark::ClobberMemory();
          },
          2.0 * static_cast<double>(rows * depth * keys * blocks)};
}

double softcap_of(const std::string& encoding) { return encoding == "softcap" ? 30 : 0; }

struct shape {
  index_t head_dim, heads, kv_heads, tokens, threads;
};

template <class T>
comparison compare_prefill(const std::string& encoding, const std::string& mask, const shape& s) {
  using real = posenc::compute_type<T>;
  constexpr index_t baseline_rows = 8;
  struct buffers {
    posenc::any_encoding encoding;
    masked mask;
    buffer<T> q, k, v, out;
    buffer<real> scores, row;
    posenc::workspace memory;
  };
  auto on = std::make_shared<const threads>(s.threads);
  auto all = std::make_shared<buffers>(buffers{encoding_named(encoding, s.heads, s.head_dim),
                                               mask_named(mask, s.tokens),
                                               buffer<T>(s.heads * s.tokens * s.head_dim),
                                               buffer<T>(s.kv_heads * s.tokens * s.head_dim),
                                               buffer<T>(s.kv_heads * s.tokens * s.head_dim),
                                               buffer<T>(s.heads * s.tokens * s.head_dim),
                                               buffer<real>(s.tokens),
                                               buffer<real>(baseline_rows * s.head_dim),
                                               {}});
  all->q.fill(1);
  all->k.fill(2);
  all->v.fill(3);
  const auto view = [s](const buffer<T>& x, index_t heads) {
    return posenc::view_bhtd(x.data(), 1, heads, s.tokens, s.head_dim);
  };
  comparison result;
  result.work = [all, on, s, view, softcap = softcap_of(encoding)] {
    posenc::attention_options options;
    options.memory = &all->memory;
    options.softcap = softcap;
    posenc::attention(view(all->q, s.heads), view(all->k, s.kv_heads), view(all->v, s.kv_heads),
                      view(all->out, s.heads), all->mask.tokens(s.tokens), all->encoding, all->mask.mask, options, *on);
  };
  result.flops = 4.0 * static_cast<double>(s.heads * s.head_dim) * all->mask.pairs;
  result.references.push_back(on_all(on, posenc_bench::fma_peak<real>(), s.threads > 1 ? 100 : 1));
  result.references.push_back({"baseline",
                               [all, s] {
                                 plain_loop(all->q.data(), all->k.data(), all->v.data(), all->scores.data(),
                                            all->row.data(), baseline_rows, s.tokens, s.head_dim);
                               },
                               4.0 * static_cast<double>(baseline_rows * s.tokens * s.head_dim)});
  result.references.push_back(posenc_bench::l2_canary());
  result.references.push_back(l2_product<real>());
  result.verify = [all, s, view, softcap = softcap_of(encoding)] {
    const posenc::token_view tokens = all->mask.tokens(s.tokens);
    return deviation(view(all->q, s.heads), view(all->k, s.kv_heads), view(all->v, s.kv_heads), view(all->out, s.heads),
                     tokens, tokens, all->encoding, all->mask.mask, softcap);
  };
  return result;
}

template <class T>
comparison compare_decode(const std::string& encoding, bool in_rows, const shape& s) {
  using real = posenc::compute_type<T>;
  struct buffers {
    posenc::any_encoding encoding;
    posenc::kv_cache<T> cache;
    buffer<T> q, k, v, out;
    buffer<real> scores, row;
    posenc::workspace memory;
  };
  auto on = std::make_shared<const threads>(s.threads);
  const index_t elements = s.kv_heads * s.tokens * s.head_dim;
  auto all = std::make_shared<buffers>(buffers{encoding_named(encoding, s.heads, s.head_dim),
                                               posenc::kv_cache<T>({.kv_heads = s.kv_heads, .head_dim = s.head_dim}),
                                               buffer<T>(s.heads * s.head_dim),
                                               buffer<T>(elements),
                                               buffer<T>(elements),
                                               buffer<T>(s.heads * s.head_dim),
                                               buffer<real>(s.tokens),
                                               buffer<real>(s.head_dim),
                                               {}});
  all->q.fill(1);
  all->k.fill(2);
  all->v.fill(3);
  const auto keys = [s](const buffer<T>& x) {
    return posenc::view_bhtd(x.data(), 1, s.kv_heads, s.tokens, s.head_dim);
  };
  const auto query = [s](const buffer<T>& x) { return posenc::view_bhtd(x.data(), 1, s.heads, 1, s.head_dim); };
  if (!in_rows) all->cache.append(keys(all->k), keys(all->v), posenc::token_range(s.tokens), all->encoding);

  const posenc::token_view now = posenc::token_range(1, static_cast<double>(s.tokens - 1));
  comparison result;
  result.work = [all, on, s, in_rows, keys, query, now] {
    posenc::attention_options options;
    options.memory = &all->memory;
    if (in_rows) {
      posenc::attention(query(all->q), keys(all->k), keys(all->v), query(all->out),
                        {now, posenc::token_range(s.tokens)}, posenc::rotated_keys(all->encoding), posenc::causal{},
                        options, *on);
      return;
    }
    posenc::attention(query(all->q), all->cache, query(all->out), now, all->encoding, posenc::causal{}, options, *on);
  };
  result.bytes = 2.0 * static_cast<double>(elements) * sizeof(T);
  // The limit reads the cache's own memory once, each thread its share of the blocks or rows.
  result.references.push_back({"limit",
                               [all, on, s, in_rows, elements] {
                                 if (in_rows) {
                                   const index_t share = elements * static_cast<index_t>(sizeof(T)) / on->concurrency();
                                   on->parallel_for(on->concurrency(), [&](index_t t) {
                                     for (const buffer<T>* x : {&all->k, &all->v})
                                       posenc_bench::read(reinterpret_cast<const char*>(x->data()) + t * share, share);
                                   });
                                   return;
                                 }
                                 const posenc::kv_cache<T>& cache = all->cache;
                                 const index_t count = cache.blocks(0) * s.kv_heads, n = on->concurrency();
                                 on->parallel_for(n, [&](index_t t) {
                                   for (index_t i = count * t / n; i < count * (t + 1) / n; ++i)
                                     posenc_bench::read(cache.block_data(0, i / s.kv_heads, i % s.kv_heads),
                                                        cache.layout().elements() * static_cast<index_t>(sizeof(T)));
                                 });
                               },
                               result.bytes});
  result.references.push_back({"baseline",
                               [all, s] {
                                 const index_t group = s.heads / s.kv_heads;
                                 for (index_t h = 0; h < group; ++h)
                                   plain_loop(all->q.data() + h * s.head_dim, all->k.data(), all->v.data(),
                                              all->scores.data(), all->row.data(), 1, s.tokens, s.head_dim);
                               },
                               2.0 * static_cast<double>(s.tokens * s.head_dim) * sizeof(T)});
  result.verify = [all, s, in_rows, keys, query, now] {
    return deviation(query(all->q), keys(all->k), keys(all->v), query(all->out), now, posenc::token_range(s.tokens),
                     in_rows ? posenc::any_encoding(posenc::rotated_keys(all->encoding)) : all->encoding,
                     posenc::any_mask(posenc::causal{}));
  };
  return result;
}

/// One token over a block table whose blocks are spread over a pool that has a quarter more of them. What it is measured
/// against reads the same keys from a cache that took its blocks in order; the results are the same to the bit.
template <class T>
comparison compare_decode_paged(const std::string& encoding, const shape& s) {
  struct buffers {
    posenc::any_encoding encoding;
    posenc::kv_cache<T> cache;
    posenc::kv_pool<T> pool;
    std::vector<std::int32_t> table;
    std::vector<index_t> length;
    buffer<T> q, out, wanted;
    posenc::workspace memory;
  };
  auto on = std::make_shared<const threads>(s.threads);
  const index_t blocks = s.tokens / posenc::block_keys;
  auto all = std::make_shared<buffers>(
      buffers{encoding_named(encoding, s.heads, s.head_dim),
              posenc::kv_cache<T>({.kv_heads = s.kv_heads, .head_dim = s.head_dim}),
              posenc::kv_pool<T>({.kv_heads = s.kv_heads, .head_dim = s.head_dim, .blocks = blocks + blocks / 4}),
              std::vector<std::int32_t>(static_cast<std::size_t>(blocks + blocks / 4)),
              {s.tokens},
              buffer<T>(s.heads * s.head_dim),
              buffer<T>(s.heads * s.head_dim),
              buffer<T>(s.heads * s.head_dim),
              {}});
  all->q.fill(1);
  for (std::size_t i = 0; i < all->table.size(); ++i) all->table[i] = static_cast<std::int32_t>(i);
  std::shuffle(all->table.begin(), all->table.end(), std::mt19937(1));
  buffer<T> k(s.kv_heads * posenc::block_keys * s.head_dim), v(s.kv_heads * posenc::block_keys * s.head_dim);
  for (index_t b = 0; b < blocks; ++b) {
    k.fill(static_cast<unsigned>(2 * b + 2));
    v.fill(static_cast<unsigned>(2 * b + 3));
    const auto view = [&](const buffer<T>& x) {
      return posenc::view_bhtd(x.data(), 1, s.kv_heads, posenc::block_keys, s.head_dim);
    };
    const index_t first = b * posenc::block_keys;
    const posenc::token_view tokens = posenc::token_range(posenc::block_keys, first);
    all->cache.append(view(k), view(v), tokens, all->encoding);
    all->pool.append(all->table[static_cast<std::size_t>(b)], first, view(k), view(v), tokens, all->encoding);
  }

  const posenc::token_view now = posenc::token_range(1, s.tokens - 1);
  const auto query = [s](const buffer<T>& x) { return posenc::view_bhtd(x.data(), 1, s.heads, 1, s.head_dim); };
  comparison result;
  result.work = [all, on, query, now, blocks] {
    posenc::attention_options options;
    options.memory = &all->memory;
    const posenc::kv_view<T> view(all->pool, posenc::block_table(all->table.data(), blocks, all->length.data(), 1));
    posenc::attention(query(all->q), view, query(all->out), now, all->encoding, posenc::causal{}, options, *on);
  };
  result.bytes = 2.0 * static_cast<double>(s.kv_heads * s.tokens * s.head_dim) * sizeof(T);
  result.references.push_back(
      {"limit",
       [all, on, s, blocks] {
         const index_t count = blocks * s.kv_heads, n = on->concurrency();
         const index_t bytes = all->pool.layout().elements() * static_cast<index_t>(sizeof(T));
         on->parallel_for(n, [&](index_t t) {
           for (index_t i = count * t / n; i < count * (t + 1) / n; ++i)
             posenc_bench::read(
                 all->pool.block_data(all->table[static_cast<std::size_t>(i / s.kv_heads)], i % s.kv_heads), bytes);
         });
       },
       result.bytes});
  result.references.push_back({"contiguous",
                               [all, on, query, now] {
                                 posenc::attention_options options;
                                 options.memory = &all->memory;
                                 posenc::attention(query(all->q), all->cache, query(all->wanted), now, all->encoding,
                                                   posenc::causal{}, options, *on);
                               },
                               result.bytes});
  result.verify = [all, s]() -> std::string {
    const auto bytes = static_cast<std::size_t>(s.heads * s.head_dim) * sizeof(T);
    return std::memcmp(all->out.data(), all->wanted.data(), bytes) == 0 ? "" : "differs from the contiguous cache";
  };
  return result;
}

/// 16 sequences of 128, 612, ... keys, one new token each. The limit reads their caches.
template <class T>
comparison compare_decode_batch(const shape& s) {
  constexpr index_t sequences = 16, fewest = 128, most = 8192;
  struct buffers {
    posenc::kv_cache<T> cache;
    buffer<T> q, k, v, out;
    std::vector<double> positions;
    posenc::workspace memory;
  };
  auto on = std::make_shared<const threads>(s.threads);
  auto all = std::make_shared<buffers>(
      buffers{posenc::kv_cache<T>({.kv_heads = s.kv_heads, .head_dim = s.head_dim, .sequences = sequences}),
              buffer<T>(sequences * s.heads * s.head_dim),
              buffer<T>(s.kv_heads * most * s.head_dim),
              buffer<T>(s.kv_heads * most * s.head_dim),
              buffer<T>(sequences * s.heads * s.head_dim),
              {},
              {}});
  all->q.fill(1);
  all->k.fill(2);
  all->v.fill(3);
  comparison result;
  for (index_t i = 0; i < sequences; ++i) {
    const index_t length = fewest + (most - fewest) * i / (sequences - 1);
    const auto rows = [&](const buffer<T>& x) {
      return posenc::view_bhtd(x.data(), 1, s.kv_heads, length, s.head_dim);
    };
    all->cache.append(i, rows(all->k), rows(all->v), posenc::token_range(length), posenc::nope{});
    all->positions.push_back(static_cast<double>(length - 1));
    result.bytes += 2.0 * static_cast<double>(s.kv_heads * length * s.head_dim) * sizeof(T);
  }
  result.work = [all, on, s] {
    posenc::attention_options options;
    options.memory = &all->memory;
    const auto view = [&](const buffer<T>& x) {
      return posenc::view_bhtd(x.data(), sequences, s.heads, 1, s.head_dim);
    };
    posenc::attention(view(all->q), all->cache, view(all->out),
                      posenc::token_positions(all->positions.data(), 1, sequences), posenc::nope{}, posenc::causal{},
                      options, *on);
  };
  result.references.push_back({"limit",
                               [all, on, s] {
                                 const posenc::kv_cache<T>& cache = all->cache;
                                 const index_t bytes = cache.layout().elements() * static_cast<index_t>(sizeof(T));
                                 on->parallel_for(on->concurrency(), [&](index_t t) {
                                   for (index_t i = 0; i < sequences; ++i)
                                     for (index_t b = t; b < cache.blocks(i); b += on->concurrency())
                                       for (index_t h = 0; h < s.kv_heads; ++h)
                                         posenc_bench::read(cache.block_data(i, b, h), bytes);
                                 });
                               },
                               result.bytes});
  return result;
}

std::string shape_name(const shape& s) { return std::to_string(s.heads) + "x" + std::to_string(s.kv_heads); }

template <class T>
void add_prefill(const std::string& encoding, const std::string& mask, const shape& s) {
  posenc_bench::add("prefill/" + encoding + "/" + mask + "/" + posenc::detail::dtype_name(posenc::dtype_of<T>) +
                        "/head_dim:" + std::to_string(s.head_dim) + "/heads:" + shape_name(s) +
                        "/tokens:" + std::to_string(s.tokens) + "/threads:" + std::to_string(s.threads),
                    [=] { return compare_prefill<T>(encoding, mask, s); });
}

template <class T>
void add_decode(const std::string& encoding, const shape& s, bool in_rows = false) {
  posenc_bench::add((in_rows ? "decode_rows/" : "decode/") + encoding + "/" +
                        posenc::detail::dtype_name(posenc::dtype_of<T>) + "/heads:" + shape_name(s) +
                        "/keys:" + std::to_string(s.tokens) + "/threads:" + std::to_string(s.threads),
                    [=] { return compare_decode<T>(encoding, in_rows, s); });
}

template <class T>
void add_decode_paged(const std::string& encoding, const shape& s) {
  posenc_bench::add("decode_paged/" + encoding + "/" + posenc::detail::dtype_name(posenc::dtype_of<T>) + "/heads:" +
                        shape_name(s) + "/keys:" + std::to_string(s.tokens) + "/threads:" + std::to_string(s.threads),
                    [=] { return compare_decode_paged<T>(encoding, s); });
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> encodings = {"nope", "rope", "alibi", "t5", "softcap"};
  for (const index_t count : {1, 2}) {
    for (const std::string& encoding : encodings)
      for (const char* mask : {"none", "causal"})
        for (const index_t tokens : {128, 512, 2048, 8192}) {
          add_prefill<float>(encoding, mask, {128, 32, 32, tokens, count});
          add_prefill<float>(encoding, mask, {128, 32, 8, tokens, count});
        }
    for (const char* mask : {"none", "causal"}) {
      for (const index_t head_dim : {64, 80, 96, 256})
        add_prefill<float>("nope", mask, {head_dim, 32, 32, 2048, count});
      add_prefill<double>("nope", mask, {128, 32, 8, 2048, count});
      add_prefill<posenc::half>("nope", mask, {128, 32, 8, 2048, count});
      add_prefill<posenc::bfloat16>("nope", mask, {128, 32, 8, 2048, count});
      // One head: short enough for a quick look.
      for (const std::string& encoding : encodings) add_prefill<float>(encoding, mask, {128, 1, 1, 2048, count});
    }
    for (const std::string& encoding : encodings)
      for (const char* mask : {"window256", "documents16"})
        add_prefill<float>(encoding, mask, {128, 32, 8, 8192, count});
    for (const char* encoding : {"nope", "rope", "alibi", "t5"})
      for (const index_t keys : {1024, 8192, 65536}) {
        add_decode<float>(encoding, {128, 32, 8, keys, count});
        add_decode<posenc::half>(encoding, {128, 32, 8, keys, count});
        add_decode<posenc::bfloat16>(encoding, {128, 32, 8, keys, count});
      }
    for (const index_t keys : {1024, 8192, 65536}) {
      add_decode<float>("nope", {128, 32, 8, keys, count}, true);
      add_decode<posenc::bfloat16>("nope", {128, 32, 8, keys, count}, true);
    }
    add_decode<double>("nope", {128, 32, 8, 8192, count});
    for (const index_t keys : {1024, 8192, 65536}) {
      add_decode_paged<float>("rope", {128, 32, 8, keys, count});
      add_decode_paged<posenc::half>("rope", {128, 32, 8, keys, count});
      add_decode_paged<posenc::bfloat16>("rope", {128, 32, 8, keys, count});
    }
    posenc_bench::add("decode_batch/nope/float/heads:32x8/sequences:16/keys:128-8192/threads:" + std::to_string(count),
                      [count] { return compare_decode_batch<float>({128, 32, 8, 0, count}); });
  }
  return posenc_bench::run(argc, argv);
}
