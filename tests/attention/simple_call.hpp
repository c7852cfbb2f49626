// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTS_ATTENTION_SIMPLE_CALL_HPP
#define POSENC_TESTS_ATTENTION_SIMPLE_CALL_HPP

#include <posenc/attention/attention.hpp>
#include <posenc/encoding/any_encoding.hpp>
#include <posenc/encoding/nope.hpp>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "attention/attention_support.hpp"
#include "attention/mask_support.hpp"

#ifndef POSENC_TEST_DATA_DIR
#define POSENC_TEST_DATA_DIR "tests/data"
#endif

namespace attention_test {

using matrix = std::vector<std::vector<double>>;

/// One head of attention on small matrices, [token][dim].
template <class T>
struct simple_call {
  matrix q, k, v;
  posenc::token_pair tokens = posenc::token_range(0);
  posenc::any_encoding encoding = posenc::nope{};
  posenc::any_mask mask = posenc::bidirectional{};
  posenc::attention_options options = {};

  struct result {
    matrix out;
    std::vector<double> lse;
  };

  static buffer<T> buffer_of(const matrix& m) {
    auto b = make_buffer<T>(1, 1, static_cast<index_t>(m.size()), m.empty() ? 1 : static_cast<index_t>(m[0].size()));
    b.for_each([&](index_t, index_t, index_t t, index_t d) {
      b.view(0, 0, t, d) = from_double<T>(m[static_cast<std::size_t>(t)][static_cast<std::size_t>(d)]);
    });
    return b;
  }

  result run() {
    const auto qb = buffer_of(q), kb = buffer_of(k), vb = buffer_of(v);
    const auto rows = static_cast<index_t>(q.size());
    const auto out = make_buffer<T>(1, 1, rows, vb.view.dim());
    result r;
    r.lse.resize(q.size());
    posenc::attention_options with_lse = options;
    with_lse.lse = posenc::lse_view(r.lse.data(), 1, 1, rows);
    posenc::attention(qb.read_only(), kb.read_only(), vb.read_only(), out.view, tokens, encoding, mask, with_lse);
    r.out.resize(q.size());
    out.for_each([&](index_t, index_t, index_t t, index_t d) {
      r.out[static_cast<std::size_t>(t)].push_back(to_double(out.view(0, 0, t, d)));
    });
    return r;
  }

  /// How much each query looks at each key: the output where value j is the j-th unit vector.
  matrix weights() {
    v.assign(k.size(), std::vector<double>(k.size(), 0.0));
    for (std::size_t j = 0; j < k.size(); ++j) v[j][j] = 1;
    return run().out;
  }
};

/// A query and keys of one dimension whose products are `dots`.
template <class T>
simple_call<T> call_with_dots(const std::vector<double>& dots) {
  simple_call<T> call;
  call.q = {{1}};
  for (const double dot : dots) call.k.push_back({dot});
  call.tokens = posenc::token_pair(posenc::token_range(1, static_cast<double>(dots.size()) - 1),
                                   posenc::token_range(static_cast<index_t>(dots.size())));
  call.options.scale = 1;
  return call;
}

inline nlohmann::json json_cases(const char* file) {
  const std::string path = std::string(POSENC_TEST_DATA_DIR) + "/" + file;
  std::ifstream stream(path);
  EXPECT_TRUE(stream.good()) << "cannot read " << path;
  if (!stream.good()) return nlohmann::json::array();
  return nlohmann::json::parse(stream).at("cases");
}

}  // namespace attention_test

#endif  // POSENC_TESTS_ATTENTION_SIMPLE_CALL_HPP
