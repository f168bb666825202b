// SPDX-License-Identifier: Apache-2.0
// The part of a pattern that says which characters stand at one place: escapes and classes in brackets.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/ops/regex_class.h"

namespace pelton::ir {

// A place in a pattern.
struct RegexCursor {
  explicit RegexCursor(std::string_view text) : points(code_points(text)), pattern(text) {}
  [[noreturn]] void bad(std::string_view what) const;  // bad_format, names the pattern and the place
  bool more() const { return at < points.size(); }
  uint32_t peek() const { return points[at]; }
  uint32_t next() { return points[at++]; }
  bool take(uint32_t c) {
    if (!more() || peek() != c) return false;
    ++at;
    return true;
  }

  std::vector<uint32_t> points;
  std::string pattern;
  size_t at = 0;
};

struct CodeSet {
  std::vector<CodeRange> ranges;
  bool negated = false;
};

// Behind a backslash: a class, or one character.
std::vector<CodeRange> parse_escape(RegexCursor& cursor);
// Behind the opening bracket, to the closing one.
CodeSet parse_bracket(RegexCursor& cursor);

}  // namespace pelton::ir
