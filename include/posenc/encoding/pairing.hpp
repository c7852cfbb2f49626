// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_PAIRING_HPP
#define POSENC_ENCODING_PAIRING_HPP

#include "../core/error.hpp"
#include "../core/platform.hpp"

namespace posenc::inline POSENC_ABI {

/// Which two of the d rotated dimensions make pair i.
enum class pairing {
  half,        ///< i and i + d/2: GPT-NeoX, and Llama as Hugging Face stores it ("rotate half", "neox style")
  interleaved  ///< 2i and 2i + 1: the paper, GPT-J, Llama as Meta stores it ("normal", "gptj style")
};

namespace detail {
/// The check of every rotation's `offset`, the first rotated dimension: no sum with a width overflows.
inline maybe_error check_rotary_offset(index_t offset) noexcept {
  if (offset >= 0 && offset <= index_t{1} << 40) return {};
  return make_error(errc::invalid_value, "offset", "is %td; allowed: 0 to 2^40", offset);
}
}  // namespace detail

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_PAIRING_HPP
