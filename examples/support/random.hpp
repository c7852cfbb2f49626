// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_EXAMPLES_SUPPORT_RANDOM_HPP
#define POSENC_EXAMPLES_SUPPORT_RANDOM_HPP

#include <cstdint>

namespace tour {

/// Random numbers that are the same on every machine and with every compiler, unlike the distributions of <random>.
/// One stream for each pair of seed and name (Steele et al. 2014, SplitMix64).
class random_stream {
 public:
  random_stream(std::uint64_t seed, std::uint64_t name) noexcept : state_(mixed(seed) ^ mixed(name + step)) {}

  std::uint64_t bits() noexcept { return mixed(state_ += step); }

  /// Bell-shaped around 0, standard deviation 0.71, a multiple of 1/256 within +-3. Sums of products of a few hundred of
  /// them are exact in float, so that projections do not depend on the order of summation.
  float bell() noexcept {
    const std::uint64_t b = bits();
    int sum = 0;
    for (int byte = 0; byte < 6; ++byte) sum += static_cast<int>(b >> (8 * byte) & 255);
    return static_cast<float>(sum - 765) / 256;
  }

 private:
  static constexpr std::uint64_t step = 0x9e3779b97f4a7c15;

  static std::uint64_t mixed(std::uint64_t x) noexcept {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
  }

  std::uint64_t state_;
};

}  // namespace tour

#endif  // POSENC_EXAMPLES_SUPPORT_RANDOM_HPP
