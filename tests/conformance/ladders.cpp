// SPDX-License-Identifier: Apache-2.0
#include "ladders.hpp"

#include <posenc/ladder/dialect.hpp>
#include <posenc/ladder/frequency_factors.hpp>
#include <posenc/ladder/llama3.hpp>
#include <posenc/ladder/ntk_aware.hpp>
#include <posenc/ladder/position_interpolation.hpp>
#include <posenc/ladder/rotary_dim.hpp>
#include <posenc/ladder/yarn.hpp>

#include <string>

namespace conformance {

ladder_use ladder_use_of(const json& c) {
  ladder_use use;
  const std::string implementation = c.value("implementation", "");
  // vLLM's cases name a class or vLLM; transformers' name a version.
  const bool vllm = implementation.find("vllm") != std::string::npos ||
                    (c.contains("class") && !c.contains("implementation")) || c.contains("is_neox_style") ||
                    c.value("file", "").find("vllm") != std::string::npos;
  if (implementation.find("transformers v4") != std::string::npos && has(c, "rope_parameters") &&
      c.at("rope_parameters").value("rope_type", "") == "yarn")
    throw skip_case("yarn as transformers v4 reads it is not offered");
  use.reading = vllm ? posenc::dialect::vllm : posenc::dialect::huggingface;
  use.head_dim = whole(c, "head_dim");
  use.max_position_embeddings = optional_whole(c, vllm ? "max_position" : "max_position_embeddings");
  return use;
}

namespace {

posenc::yarn_keys yarn_keys_of(const json& p, const ladder_use& use) {
  posenc::yarn_keys keys;
  keys.factor = optional_number(p, "factor");
  keys.original_max_position_embeddings = optional_whole(p, "original_max_position_embeddings");
  keys.max_position_embeddings = use.max_position_embeddings;
  keys.beta_fast = optional_number(p, "beta_fast");
  keys.beta_slow = optional_number(p, "beta_slow");
  keys.truncate = optional_bool(p, "truncate");
  keys.attention_factor = optional_number(p, "attention_factor");
  keys.attn_factor = optional_number(p, "attn_factor");
  keys.mscale = optional_number(p, "mscale");
  keys.mscale_all_dim = optional_number(p, "mscale_all_dim");
  keys.extrapolation_factor = optional_number(p, "extrapolation_factor");
  keys.apply_yarn_scaling = optional_bool(p, "apply_yarn_scaling");
  keys.deepseek = p.value("rope_type", "") == "deepseek_yarn";
  return keys;
}

}  // namespace

posenc::frequency_ladder ladder_from(const json& p, const ladder_use& use) {
  using namespace posenc;
  if (!p.is_object()) throw malformed_case("rope_parameters is not an object");
  for (const auto& [name, value] : p.items())
    if (value.is_object()) throw skip_case("rope_parameters by layer type (" + name + ") are not known");
  const std::string type = p.contains("rope_type") ? text(p, "rope_type") : "default";
  index_t rotary_dim = partial_rotary_dim(use.head_dim, optional_number(p, "partial_rotary_factor").value_or(1));
  if (has(p, "rotary_dim")) rotary_dim = whole(p, "rotary_dim");
  const frequency_ladder plain(rotary_dim, {.base = optional_number(p, "rope_theta").value_or(10000)});
  const bool vllm = use.reading == dialect::vllm;
  // "openpangu" deals the axes out differently; its frequencies are the plain ones.
  if (type == "default" || (vllm && type == "openpangu")) return plain;
  if (type == "linear") return plain | position_interpolation{.factor = number(p, "factor")};
  if (type == "llama3") {
    return plain | llama3{.factor = number(p, "factor"),
                          .low_freq_factor = number(p, "low_freq_factor"),
                          .high_freq_factor = number(p, "high_freq_factor"),
                          .original_context = whole(p, "original_max_position_embeddings")};
  }
  if (vllm && (type == "ntk" || (type == "dynamic" && has(p, "alpha")))) {
    ntk_keys keys;
    keys.factor = optional_number(p, "factor");
    keys.alpha = optional_number(p, "alpha");
    keys.mixed_b = optional_number(p, "mixed_b");
    return plain | ntk_as(dialect::vllm, keys);
  }
  if (type == "yarn" || (vllm && type == "deepseek_yarn")) {
    yarn_keys keys = yarn_keys_of(p, use);
    // vLLM's class for several axes makes its table, and with it the ramp's length, four times as long.
    if (vllm && has(p, "mrope_section") && keys.original_max_position_embeddings)
      *keys.original_max_position_embeddings *= 4;
    return plain | yarn_as(use.reading, keys);
  }
  for (const char* later : {"dynamic", "longrope", "su", "proportional", "xdrope"})
    if (type == later) throw skip_case(type + " is not there yet");
  throw skip_case("rope_type " + type + " is not known");
}

posenc::frequency_ladder ladder_of_yarn_repository(const json& c) {
  using namespace posenc;
  const std::string name = text(c, "class");
  const json& arguments = field(c, "args");
  const frequency_ladder plain(whole(arguments, "dim"), {.base = optional_number(arguments, "base").value_or(10000)});
  if (name == "LlamaNTKScaledRotaryEmbedding") return plain | ntk_aware{.factor = number(arguments, "alpha")};
  if (name == "LlamaLinearScaledRotaryEmbedding")
    return plain | position_interpolation{.factor = number(arguments, "scale")};
  if (name == "LlamaYaRNScaledRotaryEmbedding") {
    return plain |
           yarn{.factor = number(arguments, "scale"),
                .original_context = optional_whole(arguments, "original_max_position_embeddings").value_or(2048),
                .beta_fast = optional_number(arguments, "beta_fast").value_or(32),
                .beta_slow = optional_number(arguments, "beta_slow").value_or(1),
                .extrapolation_factor = optional_number(arguments, "extrapolation_factor").value_or(1),
                .attn_factor = optional_number(arguments, "attn_factor").value_or(1)};
  }
  if (name.find("Dynamic") != std::string::npos || name.find("PartNTK") != std::string::npos)
    throw skip_case(name + " is not there yet");
  throw skip_case("class " + name + " is not known");
}

posenc::frequency_ladder ladder_of_ggml(const json& c, index_t n_dims) {
  using namespace posenc;
  frequency_ladder ladder(n_dims, {.base = number(c, "freq_base")});
  if (has(c, "freq_factors")) ladder = ladder | frequency_factors{list(c, "freq_factors")};
  yarn scaling{.factor = 1 / optional_number(c, "freq_scale").value_or(1),
               .original_context = whole(c, "n_ctx_orig"),
               .beta_fast = optional_number(c, "beta_fast").value_or(32),
               .beta_slow = optional_number(c, "beta_slow").value_or(1),
               .ramp_width = yarn_ramp_width::at_least_0_001,
               .extrapolation_factor = optional_number(c, "ext_factor").value_or(0),
               .attn_factor = optional_number(c, "attn_factor").value_or(1),
               .magnitude_below_one = true};
  // The magnitude is part of it only where frequencies are blended.
  scaling.apply_yarn_scaling = scaling.extrapolation_factor != 0;
  return ladder | stacked(scaling);
}

}  // namespace conformance
