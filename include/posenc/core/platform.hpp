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

/// The result refers to the object: Clang warns where it outlives a temporary one.
#if defined(__clang__)
#define POSENC_LIFETIME_BOUND [[clang::lifetimebound]]
#else
#define POSENC_LIFETIME_BOUND
#endif

namespace posenc::inline POSENC_ABI {

namespace detail {
/// False, for assertions that fail only when a template is used.
template <class...>
inline constexpr bool never = false;
}  // namespace detail

/// Extents, strides and indices: signed 64 bits, so that an offset of 2^31 elements and more never wraps.
using index_t = std::ptrdiff_t;

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_CORE_PLATFORM_HPP
