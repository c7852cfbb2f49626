// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_EXAMPLES_SUPPORT_ARGUMENTS_HPP
#define POSENC_EXAMPLES_SUPPORT_ARGUMENTS_HPP

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#ifndef POSENC_EXAMPLES_DIR
#define POSENC_EXAMPLES_DIR "examples"
#endif

namespace tour {

inline constexpr const char* usage = R"(tour - every positional encoding of posenc on a real text

usage: tour [options] [file]

  file, --file FILE   text to read; paragraphs are documents; binary files are read byte by byte
                      (default: data/order.txt, which comes with the examples)
  --tokens N          how many of its tokens to use, 16 to 16384 (default 1024)
  --threads N         threads of an Eigen thread pool, 1 to 256 (default 1)
  --seed N            of embeddings, projections and learned tables (default 1)
  --help              this text

It returns 0 if all deviations are within their bounds, 1 if one is not, 2 if it could not start.
)";

/// Fewer tell nothing.
inline constexpr std::int64_t least_tokens = 16;

/// What is wrong with the command line.
struct usage_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct arguments {
  std::string file = POSENC_EXAMPLES_DIR "/data/order.txt";
  std::int64_t tokens = 1024;
  int threads = 1;
  std::uint64_t seed = 1;
  bool help = false;
};

/// A whole number of the command line within [low, high].
template <class N>
N number_argument(std::string_view option, std::string_view value, N low, N high) {
  N result{};
  const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (value.empty() || code != std::errc{} || end != value.data() + value.size() || result < low || result > high)
    throw usage_error(std::string(option) + " is '" + std::string(value) + "'; allowed: whole numbers from " +
                      std::to_string(low) + " to " + std::to_string(high));
  return result;
}

/// Options are `--name value` or `--name=value`; what follows `--` is the file.
inline arguments parse(int count, const char* const* values) {
  arguments result;
  bool has_file = false, only_files = false;
  const auto set_file = [&](std::string_view path) {
    if (has_file)
      throw usage_error("there is more than one file: '" + result.file + "' and '" + std::string(path) + "'");
    if (path.empty()) throw usage_error("the name of the file is empty");
    result.file = path;
    has_file = true;
  };
  for (int i = 1; i < count; ++i) {
    const std::string_view word = values[i];
    if (only_files || word.size() < 2 || word[0] != '-') {
      set_file(word);
      continue;
    }
    const std::size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const auto value = [&]() -> std::string_view {
      if (equals != std::string_view::npos) return word.substr(equals + 1);
      if (++i == count) throw usage_error(std::string(name) + " needs a value");
      return values[i];
    };
    if (word == "--") {
      only_files = true;
    } else if (word == "--help" || word == "-h") {
      result.help = true;
    } else if (name == "--file") {
      set_file(value());
    } else if (name == "--tokens") {
      result.tokens = number_argument<std::int64_t>(name, value(), least_tokens, 16384);
    } else if (name == "--threads") {
      result.threads = number_argument<int>(name, value(), 1, 256);
    } else if (name == "--seed") {
      result.seed = number_argument<std::uint64_t>(name, value(), 0, UINT64_MAX);
    } else {
      throw usage_error("there is no option '" + std::string(name) + "'");
    }
  }
  return result;
}

}  // namespace tour

#endif  // POSENC_EXAMPLES_SUPPORT_ARGUMENTS_HPP
