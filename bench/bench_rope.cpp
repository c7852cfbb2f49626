// SPDX-License-Identifier: Apache-2.0
// RoPE on the queries and keys of one layer, and tables of cosines and sines. Names:
//   rope/<half|interleaved>/<float|double|half|bfloat16>/<in_place|out_of_place>/tokens:<n>
//   rope_table/<positions>x<frequencies>
// limit: scaling the same elements, in place or into other memory (16-bit: load, convert, scale, convert, store); for
// tables: filling the same memory. baseline: the plain loop with the token's cosines and sines ready; for tables: sine and
// cosine from the C library, in double. The work starts from bare positions.
#include <posenc/core/eigen.hpp>
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

/// [tokens, heads, head_dim], queries and keys.
template <class T>
struct heads_of_layer {
  explicit heads_of_layer(index_t n) : tokens(n), q(n * q_heads * head_dim), k(n * k_heads * head_dim) { fill(); }
  void fill() const {
    q.fill(1);
    k.fill(2);
  }
  auto q_view() const { return posenc::view_thd(q.data(), tokens, q_heads, head_dim); }
  auto k_view() const { return posenc::view_thd(k.data(), tokens, k_heads, head_dim); }
  double bytes() const { return q.bytes() + k.bytes(); }

  index_t tokens;
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
comparison compare_rope(posenc::pairing pairing, bool in_place, index_t tokens) {
  using real = posenc::compute_type<T>;
  struct buffers {
    posenc::rope encoding;
    heads_of_layer<T> in, out;
    buffer<real> cos, sin;
  };
  auto all = std::make_shared<buffers>(buffers{posenc::rope(posenc::frequency_ladder(head_dim), {.pairing = pairing}),
                                               heads_of_layer<T>(tokens), heads_of_layer<T>(in_place ? 0 : tokens),
                                               buffer<real>(tokens * pairs), buffer<real>(tokens * pairs)});
  for (index_t t = 0; t < tokens; ++t)
    posenc::simd::sincos_products(all->encoding.ladder().inv_freq().data(), pairs,
                                  first_position + static_cast<double>(t), 1.0, all->cos.data() + t * pairs,
                                  all->sin.data() + t * pairs);

  const auto target = [all, in_place]() -> const heads_of_layer<T>& { return in_place ? all->in : all->out; };
  const auto work = [all, target, in_place, tokens] {
    if (in_place) {
      rotate_qk(all->in.q_view(), all->in.k_view(), posenc::token_range(tokens, first_position), all->encoding);
    } else {
      rotate_qk(all->in.q_view(), all->in.k_view(), target().q_view(), target().k_view(),
                posenc::token_range(tokens, first_position), all->encoding);
    }
  };
  comparison result;
  result.work = work;
  result.bytes = 2 * all->in.bytes();
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
  if (!in_place)
    result.references.push_back({"memcpy", [all, target] {
                                   std::memcpy(static_cast<void*>(target().q.data()), all->in.q.data(),
                                               static_cast<std::size_t>(all->in.q.bytes()));
                                   std::memcpy(static_cast<void*>(target().k.data()), all->in.k.data(),
                                               static_cast<std::size_t>(all->in.k.bytes()));
                                 }});
  result.verify = [all, target, work, tokens] {
    all->in.fill();
    const heads_of_layer<T> before(tokens);
    work();
    return deviation(before, target(), all->encoding);
  };
  return result;
}

comparison compare_table(index_t positions, index_t frequencies) {
  struct tables {
    posenc::frequency_ladder ladder;
    buffer<float> cos, sin;
  };
  auto all =
      std::make_shared<tables>(tables{posenc::frequency_ladder(2 * frequencies), buffer<float>(positions * frequencies),
                                      buffer<float>(positions * frequencies)});
  const auto work = [all, positions, frequencies] {
    for (index_t p = 0; p < positions; ++p)
      posenc::simd::sincos_products(all->ladder.inv_freq().data(), frequencies, static_cast<double>(p), 1.0,
                                    all->cos.data() + p * frequencies, all->sin.data() + p * frequencies);
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
void add_rope(posenc::pairing pairing, const char* pairing_name, bool in_place) {
  for (const index_t tokens : {1, 128, 2048, 16384})
    posenc_bench::add(std::string("rope/") + pairing_name + "/" + posenc::detail::dtype_name(posenc::dtype_of<T>) +
                          (in_place ? "/in_place" : "/out_of_place") + "/tokens:" + std::to_string(tokens),
                      [=] { return compare_rope<T>(pairing, in_place, tokens); });
}

}  // namespace

int main(int argc, char** argv) {
  for (const auto& [pairing, name] :
       {std::pair{posenc::pairing::half, "half"}, std::pair{posenc::pairing::interleaved, "interleaved"}})
    for (const bool in_place : {true, false}) {
      add_rope<float>(pairing, name, in_place);
      add_rope<double>(pairing, name, in_place);
      add_rope<posenc::half>(pairing, name, in_place);
      add_rope<posenc::bfloat16>(pairing, name, in_place);
    }
  posenc_bench::add("rope_table/131072x64", [] { return compare_table(131072, 64); });
  return posenc_bench::run(argc, argv);
}
