// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_CORE_PLATFORM_HPP
#define POSENC_CORE_PLATFORM_HPP

#include <cstddef>

#include "../version.hpp"

/// Kernels stay functions of their own: inlined into one large function, compilers spill in the inner loops.
#define POSENC_NOINLINE __attribute__((noinline))

/// Wrappers of single instructions and the bodies of unrolled loops.
#define POSENC_ALWAYS_INLINE inline __attribute__((always_inline))

/// The same for lambdas, which take the attribute behind their parameter list.
#define POSENC_INLINE_LAMBDA __attribute__((always_inline))

namespace posenc::inline POSENC_ABI {

/// Extents, strides and indices: signed 64 bits, so that an offset of 2^31 elements and more never wraps.
using index_t = std::ptrdiff_t;

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_CORE_PLATFORM_HPP
