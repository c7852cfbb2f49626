// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTS_SUPPORT_SMALL_ORACLE_HPP
#define POSENC_TESTS_SUPPORT_SMALL_ORACLE_HPP

#include <posenc/core/token_builders.hpp>

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

/// Attention and its encodings as their formulas stand in the papers: plain loops in double over plain arrays. Nothing of
/// the library but `token_list`, which holds numbers, takes part.
namespace small_oracle {

using posenc::index_t;
using numbers = std::vector<double>;

inline std::size_t at(index_t i) { return static_cast<std::size_t>(i); }

/// RoFormer, equation 34: pairs of dimensions turn by position * inv_freq, and are multiplied by `factor`.
struct rotation {
  numbers inv_freq;
  bool interleaved = false;
  index_t offset = 0;
  std::vector<index_t> axis;  ///< of each pair; empty: 0
  double factor = 1;

  void turn(const double* position, index_t axis_stride, double* x) const {
    const auto pairs = static_cast<index_t>(inv_freq.size());
    for (index_t i = 0; i < pairs; ++i) {
      const index_t on = axis.empty() ? 0 : axis[at(i)];
      const double angle = position[on * axis_stride] * inv_freq[at(i)];
      double& a = x[offset + (interleaved ? 2 * i : i)];
      double& b = x[offset + (interleaved ? 2 * i + 1 : i + pairs)];
      const double c = factor * std::cos(angle), s = factor * std::sin(angle), old = a;
      a = old * c - b * s;
      b = old * s + b * c;
    }
  }
};

/// -slope |k - q|, or slope (k - q), for each query head.
struct linear_bias {
  numbers slopes;
  bool is_signed = false;
  index_t axis = 0;
};

/// T5's buckets by the formula of its code, in double; distances that lie on the border of a bucket to 1e-9 belong to the
/// farther one.
struct bucket_bias {
  index_t buckets = 32, max_distance = 128;
  bool bidirectional = true;
  numbers table;  ///< [buckets][heads]
  index_t axis = 0;

  index_t bucket(double relative) const {
    index_t count = buckets, first = 0;
    double distance = -relative;
    if (bidirectional) {
      count /= 2;
      if (relative > 0) first = count;
      distance = std::fabs(relative);
    } else if (distance < 0) {
      distance = 0;
    }
    const index_t exact = count / 2;
    if (distance < static_cast<double>(exact)) return first + static_cast<index_t>(distance);
    const double place = std::log(distance / static_cast<double>(exact)) /
                         std::log(static_cast<double>(max_distance) / static_cast<double>(exact)) *
                         static_cast<double>(count - exact);
    const auto far = exact + static_cast<index_t>(place + 1e-9);
    return first + (far < count - 1 ? far : count - 1);
  }
};

struct encoding {
  std::vector<rotation> rotations;            ///< all are applied
  std::vector<rotation> rotation_of_kv_head;  ///< one is, if there are any
  std::vector<linear_bias> linear;
  std::vector<bucket_bias> bucketed;
  std::function<double(double)> query_factor;  ///< of the position on axis 0; empty: 1
};

struct problem {
  index_t batch = 1, heads = 1, kv_heads = 1, q_len = 1, kv_len = 1, head_dim = 1, value_dim = 1;
  numbers q, k, v;  ///< [batch][heads or kv_heads][token][dim]
  posenc::token_list q_tokens, k_tokens;
  encoding positions;
  /// What the mask says of batch row, query head, query and key; documents and sequences restrict in addition.
  std::function<bool(index_t b, index_t h, index_t i, index_t j)> mask;
  double scale = 1, softcap = 0;
  numbers sinks;
};

struct result {
  numbers out;                 ///< [batch][heads][q][value_dim]
  numbers lse;                 ///< [batch][heads][q]; meaningful where `has_lse`
  std::vector<bool> has_lse;   ///< false: -infinity
  std::vector<bool> sees;      ///< [batch][heads][q]: the row sees some key
  std::vector<bool> key_seen;  ///< [batch][kv_heads][key]
  double largest_value = 1;    ///< max |v| of a key that some query sees
};

inline double position_of(const posenc::token_list& t, index_t axis, index_t b, index_t i) {
  return t.positions[at((axis * t.batch + (t.batch == 1 ? 0 : b)) * t.count + i)];
}
inline double order_of(const posenc::token_list& t, index_t b, index_t i) {
  return t.order.empty() ? position_of(t, 0, b, i) : t.order[at((t.batch == 1 ? 0 : b) * t.count + i)];
}
inline std::int64_t document_of(const posenc::token_list& t, index_t b, index_t i) {
  return t.documents.empty() ? 0 : t.documents[at((t.batch == 1 ? 0 : b) * t.count + i)];
}
/// Which sequence of a ragged row a token is in.
inline index_t sequence_of(const posenc::token_list& t, index_t i) {
  index_t s = 0;
  while (!t.cu_seqlens.empty() && t.cu_seqlens[at(s + 1)] <= i) ++s;
  return s;
}

/// Whether query head h of row b sees key j with query i.
inline bool visible(const problem& p, index_t b, index_t h, index_t i, index_t j) {
  const std::int64_t document = document_of(p.q_tokens, b, i);
  return document != -1 && document == document_of(p.k_tokens, b, j) &&
         sequence_of(p.q_tokens, i) == sequence_of(p.k_tokens, j) && p.mask(b, h, i, j);
}

inline void rotate(const encoding& e, const posenc::token_list& tokens, index_t b, index_t i, index_t kv_head,
                   double* x) {
  const double* const position = &tokens.positions[at((tokens.batch == 1 ? 0 : b) * tokens.count + i)];
  const index_t stride = tokens.batch * tokens.count;
  for (const rotation& r : e.rotations) r.turn(position, stride, x);
  if (!e.rotation_of_kv_head.empty()) e.rotation_of_kv_head[at(kv_head)].turn(position, stride, x);
}

inline result attend(const problem& p) {
  result r;
  const index_t group = p.heads / p.kv_heads, rows = p.batch * p.heads * p.q_len;
  r.out.assign(at(rows * p.value_dim), 0.0);
  r.lse.assign(at(rows), 0.0);
  r.has_lse.assign(at(rows), false);
  r.sees.assign(at(rows), false);
  r.key_seen.assign(at(p.batch * p.kv_heads * p.kv_len), false);
  double largest = 0;
  numbers query(at(p.head_dim)), key(at(p.head_dim));
  for (index_t b = 0; b < p.batch; ++b)
    for (index_t h = 0; h < p.heads; ++h) {
      const index_t kv_head = h / group, kv_row = (b * p.kv_heads + kv_head) * p.kv_len;
      // The keys of this head, rotated.
      numbers keys(at(p.kv_len * p.head_dim));
      for (index_t j = 0; j < p.kv_len; ++j) {
        for (index_t d = 0; d < p.head_dim; ++d) key[at(d)] = p.k[at((kv_row + j) * p.head_dim + d)];
        rotate(p.positions, p.k_tokens, b, j, kv_head, key.data());
        for (index_t d = 0; d < p.head_dim; ++d) keys[at(j * p.head_dim + d)] = key[at(d)];
      }
      for (index_t i = 0; i < p.q_len; ++i) {
        const index_t row = (b * p.heads + h) * p.q_len + i;
        for (index_t d = 0; d < p.head_dim; ++d) query[at(d)] = p.q[at(row * p.head_dim + d)];
        rotate(p.positions, p.q_tokens, b, i, kv_head, query.data());
        const double factor = p.positions.query_factor ? p.positions.query_factor(position_of(p.q_tokens, 0, b, i)) : 1;
        std::vector<index_t> seen;
        numbers scores;
        for (index_t j = 0; j < p.kv_len; ++j) {
          if (!visible(p, b, h, i, j)) continue;
          double score = 0;
          for (index_t d = 0; d < p.head_dim; ++d) score += query[at(d)] * keys[at(j * p.head_dim + d)];
          score *= factor * p.scale;
          if (p.softcap > 0) score = p.softcap * std::tanh(score / p.softcap);
          for (const linear_bias& bias : p.positions.linear) {
            const double distance = position_of(p.k_tokens, bias.axis, b, j) - position_of(p.q_tokens, bias.axis, b, i);
            score += bias.slopes[at(h)] * (bias.is_signed ? distance : -std::fabs(distance));
          }
          for (const bucket_bias& bias : p.positions.bucketed) {
            const double distance = position_of(p.k_tokens, bias.axis, b, j) - position_of(p.q_tokens, bias.axis, b, i);
            score += bias.table[at(bias.bucket(distance) * p.heads + h)];
          }
          seen.push_back(j);
          scores.push_back(score);
          r.key_seen[at(kv_row + j)] = true;
          for (index_t d = 0; d < p.value_dim; ++d)
            largest = std::fmax(largest, std::fabs(p.v[at((kv_row + j) * p.value_dim + d)]));
        }
        r.sees[at(row)] = !seen.empty();
        if (document_of(p.q_tokens, b, i) == -1) continue;
        const bool has_sink = !p.sinks.empty();
        if (seen.empty() && !has_sink) continue;
        double top = has_sink ? p.sinks[at(h)] : scores[0];
        for (const double score : scores) top = std::fmax(top, score);
        double sum = has_sink ? std::exp(p.sinks[at(h)] - top) : 0;
        for (const double score : scores) sum += std::exp(score - top);
        r.lse[at(row)] = top + std::log(sum);
        r.has_lse[at(row)] = true;
        for (std::size_t n = 0; n < seen.size(); ++n) {
          const double weight = std::exp(scores[n] - top) / sum;
          for (index_t d = 0; d < p.value_dim; ++d)
            r.out[at(row * p.value_dim + d)] += weight * p.v[at((kv_row + seen[n]) * p.value_dim + d)];
        }
      }
    }
  if (largest > 0) r.largest_value = largest;
  return r;
}

}  // namespace small_oracle

#endif  // POSENC_TESTS_SUPPORT_SMALL_ORACLE_HPP
