// SPDX-License-Identifier: Apache-2.0
// Headers of some systems define short words as macros. All headers of the library must survive them.
// What the library includes from others comes first: those headers are not what is tested, and some of them undefine
// `min` and `max`.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <Eigen/Core>
#include <algorithm>
#include <any>
#include <array>
#include <atomic>
#include <bit>
#include <bitset>
#include <cassert>
#include <cfloat>
#include <chrono>
#include <cmath>
#include <complex>
#include <concepts>
#include <condition_variable>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <numbers>
#include <numeric>
#include <optional>
#include <ostream>
#include <random>
#include <ranges>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unsupported/Eigen/CXX11/ThreadPool>
#include <utility>
#include <variant>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define min(a, b) (((a) < (b)) ? (a) : (b))
#define max(a, b) (((a) > (b)) ? (a) : (b))
#define near
#define far
#define small char
#define IN
#define OUT
#define ERROR 0
#define CONST const
#define OPTIONAL
#define interface struct
#define B0 0000000
#define I 1  // <complex.h>

#include "all_headers.hpp"

#ifdef POSENC_CONTROL
int control = std::min(1, 2);
#endif
