// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_STORE_MODE_HPP
#define POSENC_ENCODING_STORE_MODE_HPP

#include "../core/platform.hpp"

namespace posenc::inline POSENC_ABI {

/// How results are written that do not replace their input.
enum class store_mode {
  cached,    ///< as any other store: right for what fits the caches, or is read again soon
  streaming  ///< past the caches, where rows are aligned to registers: right for results of many megabytes, which memory
             ///< then does not read before it writes them. The same bits
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_STORE_MODE_HPP
