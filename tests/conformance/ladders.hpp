// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTS_CONFORMANCE_LADDERS_HPP
#define POSENC_TESTS_CONFORMANCE_LADDERS_HPP

#include <posenc/ladder/dialect.hpp>
#include <posenc/ladder/frequency_ladder.hpp>

#include <optional>

#include "json_values.hpp"

namespace conformance {

/// What a ladder depends on beside the rope parameters.
struct ladder_use {
  posenc::dialect reading = posenc::dialect::huggingface;
  index_t head_dim = 0;
  std::optional<index_t> max_position_embeddings = {};
};

/// Of a case of Hugging Face's or vLLM's.
ladder_use ladder_use_of(const json& c);

/// Reads rope_parameters as Hugging Face or vLLM do. Throws skip_case for types that are not there yet.
posenc::frequency_ladder ladder_from(const json& rope_parameters, const ladder_use& use);

/// Reads the arguments of the YaRN repository's classes.
posenc::frequency_ladder ladder_of_yarn_repository(const json& c);

/// Reads the arguments of ggml's rope for `n_dims` rotated dimensions.
posenc::frequency_ladder ladder_of_ggml(const json& c, index_t n_dims);

}  // namespace conformance

#endif  // POSENC_TESTS_CONFORMANCE_LADDERS_HPP
