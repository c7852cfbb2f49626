// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_EXAMPLES_SUPPORT_TEXT_HPP
#define POSENC_EXAMPLES_SUPPORT_TEXT_HPP

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tour {

/// A file as a model reads it.
struct text {
  std::vector<std::uint32_t> tokens;    ///< numbers of a vocabulary
  std::vector<std::int64_t> documents;  ///< how many tokens each document has
  std::size_t file_size = 0, file_tokens = 0;
  bool is_binary = false;  ///< then each byte is a token

  std::int64_t size() const noexcept { return static_cast<std::int64_t>(tokens.size()); }
};

/// Words are hashed into so many numbers.
inline constexpr std::uint32_t vocabulary = 32768;

inline std::string read_file(const std::string& path) {
  const auto fail = [&] { throw std::runtime_error("cannot read '" + path + "': " + std::strerror(errno)); };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) fail();
  std::string content;
  char buffer[65536];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, file.get())) content.append(buffer, n);
  if (std::ferror(file.get()) != 0) fail();
  return content;
}

/// Text has no zero bytes and hardly any control characters.
inline bool looks_binary(std::string_view content) {
  std::size_t odd = 0;
  for (const char c : content) {
    if (c == '\0') return true;
    if (static_cast<unsigned char>(c) < 32 && std::strchr("\t\n\v\f\r", c) == nullptr) ++odd;
  }
  return odd * 50 > content.size();
}

/// The number of a word: FNV-1a of its lower-case letters.
inline std::uint32_t word_number(std::string_view word) {
  std::uint32_t hash = 2166136261u;
  for (const char c : word) {
    const bool capital = c >= 'A' && c <= 'Z';
    hash = (hash ^ static_cast<unsigned char>(capital ? c - 'A' + 'a' : c)) * 16777619u;
  }
  return hash % vocabulary;
}

/// Words, and every other visible sign by itself. Blank lines end a document. In binary files bytes are tokens.
inline text tokenize(std::string_view content) {
  text result;
  result.file_size = content.size();
  result.is_binary = looks_binary(content);
  std::int64_t in_document = 0;
  const auto add = [&](std::string_view word) {
    result.tokens.push_back(word_number(word));
    ++in_document;
  };
  const auto end_document = [&] {
    if (in_document > 0) result.documents.push_back(in_document);
    in_document = 0;
  };
  // Bytes of 128 and more belong to letters of other alphabets.
  const auto in_word = [](char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return letter || c == '\'' || static_cast<unsigned char>(c) >= 128;
  };
  for (std::size_t i = 0, newlines = 0; i < content.size();) {
    std::size_t length = 1;
    if (result.is_binary) {
      add(content.substr(i, 1));
    } else if (content[i] == '\n') {
      if (++newlines == 2) end_document();
    } else if (static_cast<unsigned char>(content[i]) > 32) {
      newlines = 0;
      while (in_word(content[i]) && i + length < content.size() && in_word(content[i + length])) ++length;
      add(content.substr(i, length));
    }
    i += length;
  }
  end_document();
  result.file_tokens = result.tokens.size();
  return result;
}

/// Keeps the first `count` tokens. A text of one document is cut into four, so that there is something to pack.
inline void shorten(text& t, std::size_t count) {
  if (t.tokens.size() > count) t.tokens.resize(count);
  auto left = t.size();
  std::vector<std::int64_t> kept;
  for (const std::int64_t length : t.documents) {
    if (left == 0) break;
    kept.push_back((std::min)(length, left));
    left -= kept.back();
  }
  if (kept.size() == 1 && t.size() >= 4) {
    const std::int64_t quarter = t.size() / 4;
    kept = {quarter, quarter, quarter, t.size() - 3 * quarter};
  }
  t.documents = kept;
}

}  // namespace tour

#endif  // POSENC_EXAMPLES_SUPPORT_TEXT_HPP
