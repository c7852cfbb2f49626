// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_LADDER_DIALECT_HPP
#define POSENC_LADDER_DIALECT_HPP

#include <optional>

#include "ntk_aware.hpp"
#include "yarn.hpp"

namespace posenc::inline POSENC_ABI {

/// Whose reading of a scaling's keys is meant, where implementations read the same keys differently.
enum class dialect {
  huggingface,  ///< transformers, version 5
  vllm,         ///< vLLM 0.19
  llama_cpp     ///< llama.cpp since the end of 2025
};

/// The keys of a YaRN configuration as a checkpoint gives them; what it does not give stays empty.
struct yarn_keys {
  std::optional<double> factor = {};
  std::optional<index_t> original_max_position_embeddings = {};
  std::optional<index_t> max_position_embeddings = {};
  std::optional<double> beta_fast = {};
  std::optional<double> beta_slow = {};
  std::optional<bool> truncate = {};
  std::optional<double> attention_factor = {};
  std::optional<double> attn_factor = {};
  std::optional<double> mscale = {};
  std::optional<double> mscale_all_dim = {};
  std::optional<double> extrapolation_factor = {};  ///< llama.cpp's ext_factor
  std::optional<bool> apply_yarn_scaling = {};
  bool deepseek = false;  ///< DeepSeek's own variant: vLLM's type deepseek_yarn, llama.cpp's architecture deepseek2
};

namespace detail {

/// Whether a key is there and not 0, NaN included: a bad value is for yarn to report, not to be taken for a missing one.
inline bool given_and_not_zero(const std::optional<double>& key) noexcept {
  return key.has_value() && (!is_finite(*key) || *key != 0);
}

inline yarn yarn_as_huggingface(const yarn_keys& keys, yarn result) {
  // Zero counts as "not given" for the betas.
  if (given_and_not_zero(keys.beta_fast)) result.beta_fast = *keys.beta_fast;
  if (given_and_not_zero(keys.beta_slow)) result.beta_slow = *keys.beta_slow;
  result.truncate = !keys.truncate || *keys.truncate;
  result.attention_factor = keys.attention_factor;
  result.mscale = keys.mscale;
  result.mscale_all_dim = keys.mscale_all_dim;
  return result;
}

inline yarn yarn_as_vllm(const yarn_keys& keys, yarn result) {
  if (keys.beta_fast) result.beta_fast = *keys.beta_fast;
  if (keys.beta_slow) result.beta_slow = *keys.beta_slow;
  if (keys.attn_factor) result.attn_factor = *keys.attn_factor;
  if (keys.extrapolation_factor) result.extrapolation_factor = *keys.extrapolation_factor;
  if (keys.deepseek) {
    result.mscale = keys.mscale;
    result.mscale_all_dim = keys.mscale_all_dim;
    result.mscale_rule = yarn_mscale_rule::each;
  } else {
    result.truncate = !keys.truncate || *keys.truncate;
    result.apply_yarn_scaling = !keys.apply_yarn_scaling || *keys.apply_yarn_scaling;
  }
  return result;
}

inline yarn yarn_as_llama_cpp(const yarn_keys& keys, yarn result) {
  if (keys.beta_fast) result.beta_fast = *keys.beta_fast;
  if (keys.beta_slow) result.beta_slow = *keys.beta_slow;
  result.ramp_width = yarn_ramp_width::at_least_0_001;
  if (keys.attn_factor) result.attn_factor = *keys.attn_factor;
  // -1 is its own way to say "not given"; 0 leaves out the magnitude.
  const std::optional<double>& weight = keys.extrapolation_factor;
  if (weight && !(is_finite(*weight) && *weight == -1)) result.extrapolation_factor = *weight;
  result.apply_yarn_scaling = !weight || given_and_not_zero(weight);
  if (given_and_not_zero(keys.mscale_all_dim)) {
    // Model files have no mscale. It counts as 1, and for DeepSeek as equal to mscale_all_dim.
    if (keys.deepseek) {
      result.mscale = keys.mscale_all_dim;
    } else {
      result.mscale = 1.0;
    }
    result.mscale_all_dim = keys.mscale_all_dim;
  }
  return result;
}

}  // namespace detail

/// YaRN as one implementation reads the keys, with every difference spelled out in the fields of the result.
///
/// | key | huggingface | vllm | llama_cpp |
/// |---|---|---|---|
/// | factor | if missing max_position_embeddings / original length | mandatory | if missing 1 |
/// | original_max_position_embeddings | if missing max_position_embeddings | mandatory | as huggingface |
/// | truncate | read | read; always on for DeepSeek | always on |
/// | width of the ramp | 0.001 if its ends are equal | the same | at least 0.001 |
/// | beta_fast, beta_slow | 0 means the default | as given | as given |
/// | attention_factor | replaces the magnitude | not read | not read |
/// | attn_factor | not read | multiplies | multiplies |
/// | mscale, mscale_all_dim | both or neither | not read; each for DeepSeek | mscale_all_dim only |
/// | extrapolation_factor | not read | read | read; 0 leaves attn_factor as the whole magnitude |
/// | apply_yarn_scaling | not read | read | not read |
///
/// A key that the implementation does not read is left out, whatever it holds; the others are checked when the scaling is
/// applied. Two older readings are fields of `yarn`: transformers 4.50 to 4.57 used max_position_embeddings / original
/// length in place of a given factor, and llama.cpp until 2025 computed its magnitude below factor 1, too
/// (magnitude_below_one).
inline yarn yarn_as(dialect reading, const yarn_keys& keys) {
  yarn result;
  const bool fills_in = reading != dialect::vllm;
  if (keys.original_max_position_embeddings) {
    result.original_context = *keys.original_max_position_embeddings;
  } else if (fills_in && keys.max_position_embeddings) {
    result.original_context = *keys.max_position_embeddings;
  }
  if (keys.factor) {
    result.factor = *keys.factor;
  } else if (reading == dialect::llama_cpp) {
    result.factor = 1;
  } else if (reading == dialect::huggingface && keys.max_position_embeddings && result.original_context > 0) {
    result.factor = static_cast<double>(*keys.max_position_embeddings) / static_cast<double>(result.original_context);
  }
  switch (reading) {
    case dialect::huggingface: return detail::yarn_as_huggingface(keys, result);
    case dialect::vllm: return detail::yarn_as_vllm(keys, result);
    case dialect::llama_cpp: return detail::yarn_as_llama_cpp(keys, result);
  }
  return result;
}

/// The keys of a static NTK configuration as a checkpoint gives them.
struct ntk_keys {
  std::optional<double> factor = {};
  std::optional<double> alpha = {};
  std::optional<double> mixed_b = {};
};

/// NTK-aware scaling as one implementation reads the keys: `alpha` rescales the base in vllm and llama_cpp; `factor` is
/// vLLM's type "ntk" (ntk_rule::scaled_base, with mixed_b). Errors: mismatch for what the implementation does not know:
/// huggingface has no static NTK type, llama_cpp no `factor`, and nobody both keys.
inline ntk_aware ntk_as(dialect reading, const ntk_keys& keys) {
  if (reading == dialect::huggingface) {
    raise(make_error(errc::mismatch, "dialect",
                     "is huggingface, which has no static NTK scaling; allowed: vllm, llama_cpp, "
                     "or ntk_aware{...} with a rule"));
  }
  if (keys.factor && keys.alpha) {
    raise(make_error(errc::mismatch, "alpha", "is %g beside factor %g; allowed: one of the two", *keys.alpha,
                     *keys.factor));
  }
  if (keys.mixed_b && !keys.factor) {
    raise(make_error(errc::mismatch, "mixed_b", "is %g without factor; allowed: beside factor", *keys.mixed_b));
  }
  ntk_aware result;
  if (keys.alpha) {
    result.factor = *keys.alpha;
    return result;
  }
  if (reading == dialect::llama_cpp) {
    raise(make_error(errc::mismatch, "factor", "is not read by llama_cpp's NTK scaling; allowed: alpha"));
  }
  if (keys.factor) result.factor = *keys.factor;
  result.rule = ntk_rule::scaled_base;
  if (keys.mixed_b) result.mixed_b = *keys.mixed_b;
  return result;
}

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_LADDER_DIALECT_HPP
