// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_SIMD_MATH_HPP
#define POSENC_SIMD_MATH_HPP

#include "exp.hpp"
#include "sincos.hpp"
#include "tanh.hpp"

#endif  // POSENC_SIMD_MATH_HPP
