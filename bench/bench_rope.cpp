// SPDX-License-Identifier: Apache-2.0
// RoPE on the queries and keys of one layer, and tables of cosines and sines. Names:
//   rope/<half|interleaved>/<float|double|half|bfloat16>/<in_place|out_of_place|streaming|fused>/tokens:<n>
//   rope_bare/<half|interleaved>/<float|double|half|bfloat16>/tokens:<n>
//   rope_threads/half/<float|bfloat16>/tokens:<n>
//   rope_table/<positions>x<frequencies>/<cached|streaming>
// limit: scaling the same elements, in place or into other memory (16-bit: load, convert, scale, convert, store); for
// tables: filling the same memory. baseline: the plain loop with the token's cosines and sines ready; for tables: sine and
// cosine from the C library, in double. memcpy: as many bytes read and written. rope has a table of positions, rope_bare
// begins at bare positions. fused: q and k are columns of rows of q, k and v; contiguous: the same work on tensors of their
// own. rope_threads: two threads; one_thread: the same work on one.
#include <posenc/core/eigen.hpp>
#include <posenc/core/eigen_executor.hpp>
#include <posenc/encoding/cos_sin.hpp>
#include <posenc/encoding/rope.hpp>
#include <posenc/encoding/rotate.hpp>

#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <type_traits>

#include "support/buffer.hpp"
#include "support/harness.hpp"
#include "support/limits.hpp"

namespace {

using posenc_bench::buffer;
using posenc_bench::comparison;
using posenc_bench::index_t;

// Not the beginning of a text, where nothing turns.
constexpr double first_position = 1000;

constexpr index_t q_heads = 32, k_heads = 8, head_dim = 128, pairs = head_dim / 2;

enum class way { in_place, out_of_place, streaming, fused };

constexpr const char* name_of(way w) {
  switch (w) {
    case way::in_place: return "in_place";
    case way::out_of_place: return "out_of_place";
    case way::streaming: return "streaming";
    default: return "fused";
  }
}

/// [tokens, heads, head_dim], queries and keys; or as columns of fused rows of queries, keys and values.
template <class T>
struct heads_of_layer {
  explicit heads_of_layer(index_t n, bool in_rows = false)
      : tokens(n),
        fused(in_rows),
        q(n * (in_rows ? row : q_heads * head_dim)),
        k(in_rows ? 0 : n * k_heads * head_dim) {
    fill();
  }
  void fill() const {
    q.fill(1);
    k.fill(2);
  }
  auto q_view() const {
    return fused ? posenc::view_fused(q.data(), 1, tokens, row, 0, q_heads, head_dim)
                 : posenc::view_thd(q.data(), tokens, q_heads, head_dim);
  }
  auto k_view() const {
    return fused ? posenc::view_fused(q.data(), 1, tokens, row, q_heads * head_dim, k_heads, head_dim)
                 : posenc::view_thd(k.data(), tokens, k_heads, head_dim);
  }
  double bytes() const { return static_cast<double>(tokens * (q_heads + k_heads) * head_dim) * sizeof(T); }

  static constexpr index_t row = (q_heads + 2 * k_heads) * head_dim;
  index_t tokens;
  bool fused;
  buffer<T> q, k;
};

/// The loop that everybody writes first, one head of it.
template <bool Half, class T, class Real>
POSENC_ALWAYS_INLINE void plain_head(const T* in, T* out, const Real* cos, const Real* sin) {
  constexpr index_t step = Half ? 1 : 2, apart = Half ? pairs : 1;
  for (index_t i = 0; i < pairs; ++i) {
    const Real x = static_cast<Real>(in[step * i]), y = static_cast<Real>(in[step * i + apart]);
    out[step * i] = static_cast<T>(x * cos[i] - y * sin[i]);
    out[step * i + apart] = static_cast<T>(y * cos[i] + x * sin[i]);
  }
}

template <bool Half, class T, class Real>
POSENC_NOINLINE void plain_in_place(T* __restrict x, index_t tokens, index_t heads, const Real* __restrict cos,
                                    const Real* __restrict sin) {
  for (index_t t = 0; t < tokens; ++t, cos += pairs, sin += pairs)
    for (index_t h = 0; h < heads; ++h, x += head_dim) plain_head<Half>(x, x, cos, sin);
}

template <bool Half, class T, class Real>
POSENC_NOINLINE void plain_out_of_place(const T* __restrict in, T* __restrict out, index_t tokens, index_t heads,
                                        const Real* __restrict cos, const Real* __restrict sin) {
  for (index_t t = 0; t < tokens; ++t, cos += pairs, sin += pairs)
    for (index_t h = 0; h < heads; ++h, in += head_dim, out += head_dim) plain_head<Half>(in, out, cos, sin);
}

template <bool Half, class T, class Real>
void plain_loop(const T* in, T* out, index_t tokens, index_t heads, const Real* cos, const Real* sin) {
  if (in == out) {
    plain_in_place<Half>(out, tokens, heads, cos, sin);
  } else {
    plain_out_of_place<Half>(in, out, tokens, heads, cos, sin);
  }
}

/// Tokens from the beginning, the middle and the end against the formula in long double.
template <class T>
std::string deviation(const heads_of_layer<T>& in, const heads_of_layer<T>& out, const posenc::rope& encoding) {
  const bool half = encoding.options().pairing == posenc::pairing::half;
  const double bound = sizeof(T) == 8                               ? 1e-11
                       : sizeof(T) == 4                             ? 4e-7
                       : posenc::dtype_of<T> == posenc::dtype::half ? 1.5e-3
                                                                    : 1.2e-2;
  double worst = 0;
  const auto compare = [&](const auto& from, const auto& to, index_t t) {
    for (index_t h = 0; h < from.heads(); ++h)
      for (index_t i = 0; i < pairs; ++i) {
        const index_t a = half ? i : 2 * i, b = half ? i + pairs : 2 * i + 1;
        const long double angle = (first_position + static_cast<long double>(t)) * encoding.ladder().inv_freq(i);
        const long double c = std::cos(angle), s = std::sin(angle);
        const long double x = static_cast<double>(from(0, h, t, a)), y = static_cast<double>(from(0, h, t, b));
        worst = std::max(worst, std::fabs(static_cast<double>(x * c - y * s) - static_cast<double>(to(0, h, t, a))));
        worst = std::max(worst, std::fabs(static_cast<double>(x * s + y * c) - static_cast<double>(to(0, h, t, b))));
      }
  };
  for (const index_t t : {index_t{0}, in.tokens / 2, in.tokens - 1}) {
    compare(in.q_view(), out.q_view(), t);
    compare(in.k_view(), out.k_view(), t);
  }
  if (worst <= bound) return {};
  char text[80];
  std::snprintf(text, sizeof text, "wrong result: off by %.3g, bound %.3g", worst, bound);
  return text;
}

template <class T>
struct layer {
  using real = posenc::compute_type<T>;

  layer(posenc::pairing pairing, way w, index_t tokens, bool table)
      : encoding(posenc::frequency_ladder(head_dim),
                 {.pairing = pairing, .table = {.first = 0, .count = table ? 32768 : 0}}),
        in(tokens, w == way::fused),
        out(w == way::out_of_place || w == way::streaming ? tokens : 0),
        cos(tokens * pairs),
        sin(tokens * pairs) {
    posenc::write_cos_sin(encoding, posenc::token_range(tokens, first_position), cos.data(), sin.data());
  }

  template <class Executor = posenc::serial_executor>
  void rotate(way w, Executor&& executor = {}) const {
    const auto tokens = posenc::token_range(in.tokens, first_position);
    if (w == way::in_place || w == way::fused) {
      rotate_qk(in.q_view(), in.k_view(), tokens, encoding, executor);
    } else {
      rotate_qk(in.q_view(), in.k_view(), out.q_view(), out.k_view(), tokens, encoding,
                {.store = w == way::streaming ? posenc::store_mode::streaming : posenc::store_mode::cached}, executor);
    }
  }

  posenc::rope encoding;
  heads_of_layer<T> in, out;
  buffer<real> cos, sin;
};

/// As many bytes as `total` read and written: one half of a buffer to the other.
template <class T>
posenc_bench::reference copy_of_halves(std::shared_ptr<layer<T>> all, double total) {
  const double bytes = all->in.q.bytes();
  return {"memcpy",
          [all, bytes] {
            auto* const data = reinterpret_cast<char*>(all->in.q.data());
            const auto half = static_cast<std::size_t>(bytes / 2);
            std::memcpy(data + half, data, half);
            benchmark::ClobberMemory();
          },
          std::min(bytes, total)};
}

template <class T>
comparison compare_rope(posenc::pairing pairing, way w, index_t tokens, bool table) {
  using real = posenc::compute_type<T>;
  auto all = std::make_shared<layer<T>>(pairing, w, tokens, table);
  const bool in_place = w == way::in_place || w == way::fused;
  const auto target = [all, in_place]() -> const heads_of_layer<T>& { return in_place ? all->in : all->out; };
  const auto work = [all, w] { all->rotate(w); };
  comparison result;
  result.work = work;
  result.bytes = 2 * all->in.bytes();
  if (w == way::fused) {
    // The limit scales the fused rows, so that between two runs on either memory, the other memory has passed the caches.
    auto apart = std::make_shared<layer<T>>(pairing, way::in_place, tokens, table);
    result.references.push_back({"contiguous", [apart] { apart->rotate(way::in_place); }});
    result.references.push_back(
        {"limit", [all] {
           const real factor = posenc_bench::unknown_minus_one<real>();
           constexpr index_t row = heads_of_layer<T>::row, turned = (q_heads + k_heads) * head_dim;
           for (index_t t = 0; t < all->in.tokens; ++t)
             posenc_bench::scale(all->in.q.data() + t * row, all->in.q.data() + t * row, turned, factor);
         }});
  } else {
    result.references.push_back({"limit", [all, target] {
                                   const real factor = posenc_bench::unknown_minus_one<real>();
                                   posenc_bench::scale(all->in.q.data(), target().q.data(), all->in.q.size(), factor);
                                   posenc_bench::scale(all->in.k.data(), target().k.data(), all->in.k.size(), factor);
                                 }});
    const auto baseline = [all, target, tokens]<bool Half>(std::bool_constant<Half>) {
      plain_loop<Half>(all->in.q.data(), target().q.data(), tokens, q_heads, all->cos.data(), all->sin.data());
      plain_loop<Half>(all->in.k.data(), target().k.data(), tokens, k_heads, all->cos.data(), all->sin.data());
    };
    if (pairing == posenc::pairing::half) {
      result.references.push_back({"baseline", [baseline] { baseline(std::true_type{}); }});
    } else {
      result.references.push_back({"baseline", [baseline] { baseline(std::false_type{}); }});
    }
    if (in_place) {
      result.references.push_back(copy_of_halves(all, result.bytes));
    } else {
      result.references.push_back({"memcpy", [all, target] {
                                     std::memcpy(static_cast<void*>(target().q.data()), all->in.q.data(),
                                                 static_cast<std::size_t>(all->in.q.bytes()));
                                     std::memcpy(static_cast<void*>(target().k.data()), all->in.k.data(),
                                                 static_cast<std::size_t>(all->in.k.bytes()));
                                   }});
    }
  }
  result.verify = [all, target, work, w, tokens] {
    all->in.fill();
    const heads_of_layer<T> before(tokens, w == way::fused);
    work();
    return deviation(before, target(), all->encoding);
  };
  return result;
}

template <class T>
comparison compare_threads(index_t tokens) {
  struct threaded {
    layer<T> data;
    Eigen::ThreadPool pool{2};
  };
  auto all = std::shared_ptr<threaded>(new threaded{{posenc::pairing::half, way::in_place, tokens, true}});
  comparison result;
  result.work = [all] {
    posenc::eigen_executor executor(all->pool);
    all->data.rotate(way::in_place, executor);
  };
  result.bytes = 2 * all->data.in.bytes();
  result.references.push_back({"one_thread", [all] { all->data.rotate(way::in_place); }});
  return result;
}

comparison compare_table(index_t positions, index_t frequencies, posenc::store_mode store) {
  struct tables {
    posenc::rope encoding;
    buffer<float> cos, sin;
    const posenc::frequency_ladder& ladder = encoding.ladder();
  };
  auto all = std::shared_ptr<tables>(new tables{posenc::rope(posenc::frequency_ladder(2 * frequencies)),
                                                buffer<float>(positions * frequencies),
                                                buffer<float>(positions * frequencies)});
  const auto work = [all, positions, store] {
    posenc::write_cos_sin(all->encoding, posenc::token_range(positions), all->cos.data(), all->sin.data(),
                          {.store = store});
    benchmark::ClobberMemory();
  };
  comparison result;
  result.work = work;
  result.bytes = all->cos.bytes() + all->sin.bytes();
  result.references.push_back({"limit", [all] {
                                 posenc_bench::fill(all->cos.data(), all->cos.size(), 1.0f);
                                 posenc_bench::fill(all->sin.data(), all->sin.size(), 0.0f);
                               }});
  result.references.push_back({"baseline", [all, positions, frequencies] {
                                 const double* inv_freq = all->ladder.inv_freq().data();
                                 for (index_t p = 0; p < positions; ++p)
                                   for (index_t i = 0; i < frequencies; ++i) {
                                     const double angle = static_cast<double>(p) * inv_freq[i];
                                     all->cos.data()[p * frequencies + i] = static_cast<float>(std::cos(angle));
                                     all->sin.data()[p * frequencies + i] = static_cast<float>(std::sin(angle));
                                   }
                                 benchmark::ClobberMemory();
                               }});
  result.verify = [all, work, positions, frequencies]() -> std::string {
    work();
    double worst = 0;
    for (index_t p = 0; p < positions; p += 509)
      for (index_t i = 0; i < frequencies; ++i) {
        const long double angle = static_cast<long double>(p) * all->ladder.inv_freq(i);
        worst = std::max(worst, std::fabs(static_cast<double>(std::cos(angle)) - all->cos.data()[p * frequencies + i]));
        worst = std::max(worst, std::fabs(static_cast<double>(std::sin(angle)) - all->sin.data()[p * frequencies + i]));
      }
    if (worst <= 0x1p-24) return {};
    char text[80];
    std::snprintf(text, sizeof text, "wrong result: off by %.3g, bound %.3g", worst, 0x1p-24);
    return text;
  };
  return result;
}

template <class T>
void add_rope(posenc::pairing pairing, const char* pairing_name) {
  const std::string kind = std::string(pairing_name) + "/" + posenc::detail::dtype_name(posenc::dtype_of<T>);
  for (const way w : {way::in_place, way::out_of_place, way::streaming, way::fused})
    for (const index_t tokens : {1, 128, 2048, 16384})
      posenc_bench::add("rope/" + kind + "/" + name_of(w) + "/tokens:" + std::to_string(tokens),
                        [=] { return compare_rope<T>(pairing, w, tokens, true); });
  for (const index_t tokens : {1, 2048})
    posenc_bench::add("rope_bare/" + kind + "/tokens:" + std::to_string(tokens),
                      [=] { return compare_rope<T>(pairing, way::in_place, tokens, false); });
}

}  // namespace

int main(int argc, char** argv) {
  for (const auto& [pairing, name] :
       {std::pair{posenc::pairing::half, "half"}, std::pair{posenc::pairing::interleaved, "interleaved"}}) {
    add_rope<float>(pairing, name);
    add_rope<double>(pairing, name);
    add_rope<posenc::half>(pairing, name);
    add_rope<posenc::bfloat16>(pairing, name);
  }
  for (const index_t tokens : {2048, 16384}) {
    posenc_bench::add("rope_threads/half/float/tokens:" + std::to_string(tokens),
                      [=] { return compare_threads<float>(tokens); });
    posenc_bench::add("rope_threads/half/bfloat16/tokens:" + std::to_string(tokens),
                      [=] { return compare_threads<posenc::bfloat16>(tokens); });
  }
  posenc_bench::add("rope_table/131072x64/cached",
                    [] { return compare_table(131072, 64, posenc::store_mode::cached); });
  posenc_bench::add("rope_table/131072x64/streaming",
                    [] { return compare_table(131072, 64, posenc::store_mode::streaming); });
  return posenc_bench::run(argc, argv);
}
