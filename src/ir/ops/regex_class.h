// SPDX-License-Identifier: Apache-2.0
// Characters of regular expressions: code points of a text, and the classes that escapes and names stand for.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace pelton::ir {

inline constexpr uint32_t kMaxCodePoint = 0x10FFFF;

struct CodeRange {
  uint32_t low, high;
};

// Bytes that are not UTF-8 stand for themselves.
std::vector<uint32_t> code_points(std::string_view text);
// Of the letter of \d, \w or \s; empty if it is none.
std::vector<CodeRange> char_class(uint32_t letter);
// Of the name in [:name:]; empty if there is none.
std::vector<CodeRange> posix_class(std::string_view name);
// What lies in none of them; they are in order and apart.
std::vector<CodeRange> inverted(const std::vector<CodeRange>& ranges);

}  // namespace pelton::ir
