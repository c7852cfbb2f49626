// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_NOPE_HPP
#define POSENC_ENCODING_NOPE_HPP

#include "concepts.hpp"

namespace posenc::inline POSENC_ABI {

/// No positional encoding (Kazemnejad et al. 2023, "The Impact of Positional Encoding on Length Generalization in
/// Transformers"): position enters nowhere. Without a mask, permuting the tokens then permutes the outputs and changes
/// nothing else; a causal mask alone makes order visible. Also what attention takes when positions were added to the
/// inputs.
struct nope {
  using acts_on = places<>;
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_NOPE_HPP
