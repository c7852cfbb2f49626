// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_TESTS_CONFORMANCE_CASES_HPP
#define POSENC_TESTS_CONFORMANCE_CASES_HPP

#include "json_values.hpp"
#include "report.hpp"

/// One function for each kind of case. They throw skip_case, malformed_case, json's exceptions and posenc::error.
namespace conformance {

void run_attention(const json& c, case_report& report);   ///< kind attention and ragged
void run_merge(const json& c, case_report& report);       ///< kind merge
void run_rotation(const json& c, case_report& report);    ///< kind rotation
void run_rerotation(const json& c, case_report& report);  ///< kind rerotation

void run_frequencies(const json& c, case_report& report);  ///< ladders and rows of their tables
void run_cos_sin(const json& c, case_report& report);      ///< exact cosines and sines at far positions
void run_rope_apply(const json& c, case_report& report);   ///< q and k rotated by Hugging Face and vLLM
void run_vision(const json& c, case_report& report);       ///< the same for images, two position axes
void run_ggml(const json& c, case_report& report);         ///< ggml's rope
void run_alibi_slopes(const json& c, case_report& report);
void run_t5_buckets(const json& c, case_report& report);
void run_sinusoidal(const json& c, case_report& report);

}  // namespace conformance

#endif  // POSENC_TESTS_CONFORMANCE_CASES_HPP
