// SPDX-License-Identifier: Apache-2.0
// M_PI and its relatives are no part of C++: the library must do without them.
#include <cmath>
#include <numbers>

#undef M_E
#undef M_LOG2E
#undef M_LOG10E
#undef M_LN2
#undef M_LN10
#undef M_PI
#undef M_PI_2
#undef M_PI_4
#undef M_1_PI
#undef M_2_PI
#undef M_2_SQRTPI
#undef M_SQRT2
#undef M_SQRT1_2

#include "all_headers.hpp"

static_assert(std::numbers::pi == 3.141592653589793);

#ifdef POSENC_CONTROL
double control = M_PI;
#endif
