// SPDX-License-Identifier: Apache-2.0
// An encoding of one's own: the logarithmic bias of KERPLE (Chi et al. 2022), -p ln(1 + a |k - q|), p and a learned.
#include <posenc/posenc.hpp>
#include <posenc/testing/properties.hpp>
#include <posenc/testing/reference.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

namespace pe = posenc;

struct kerple_log {
  using acts_on = pe::places<pe::on_scores>;  // it adds something to scores, so it needs the member `bias`

  struct head {
    double p = 1, a = 1;
  };
  std::vector<head> heads;  // one for each query head

  // Called for one query and a vector of keys; the result is added to their scores.
  template <class Keys>
  auto bias(const Keys& keys, pe::index_t h) const {
    const auto [p, a] = heads[static_cast<std::size_t>(h)];
    return keys.map([p = p, a = a](double distance) { return -p * std::log1p(a * std::fabs(distance)); });
  }

  // Optional: looks at a call before anything is computed.
  pe::maybe_error check(const pe::encoding_use& use) const noexcept {
    const auto count = static_cast<pe::index_t>(heads.size());
    if (use.heads == count) return {};
    return pe::make_error(pe::errc::invalid_shape, "encoding", "has %td heads; allowed: the call's %td", count,
                          use.heads);
  }
};

int main() {
  const kerple_log kerple{{{.p = 1, .a = 1}, {.p = 0.5, .a = 0.1}}};

  const pe::testing::head_matrices bias = pe::testing::bias_matrix(kerple, pe::token_range(100), 2);
  std::puts("bias at distance      1      10      99");
  for (pe::index_t h = 0; h < 2; ++h)
    std::printf("  head %td          %7.3f %7.3f %7.3f\n", h, bias(0, h, 99, 98), bias(0, h, 99, 89),
                bias(0, h, 99, 0));

  // It goes wherever the library's own encodings go: into attention, or together with another one.
  constexpr pe::index_t tokens = 100, heads = 2, head_dim = 32;
  std::vector<float> x(tokens * heads * head_dim, 0.1f), out(x.size());
  const auto view = pe::view_thd(x.data(), tokens, heads, head_dim);
  const auto both = pe::combine(pe::rope(pe::frequency_ladder(head_dim)), kerple);
  pe::attention(view, view, view, pe::view_thd(out.data(), tokens, heads, head_dim), pe::token_range(tokens), both,
                pe::causal{});

  // Does it do what it should? Scores must not change if query and key move together.
  const double error =
      pe::testing::relative_position_error(both, {.heads = heads, .kv_heads = 1, .head_dim = head_dim});
  std::printf("relative-position error together with rope: %.0e\n", error);
}
