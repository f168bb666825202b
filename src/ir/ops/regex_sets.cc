// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/regex_sets.h"

#include "base/error.h"

namespace pelton::ir {

void RegexCursor::bad(std::string_view what) const {
  fail(ErrorCode::bad_format, cat("regular expression '", pattern, "': ", what, " at position ", at));
}

namespace {

std::vector<CodeRange> hex(RegexCursor& c) {
  bool braces = c.take('{');
  uint32_t v = 0;
  size_t digits = 0;
  while (c.more() && digits < (braces ? 6u : 2u)) {
    uint32_t point = c.peek();
    uint32_t d = point >= '0' && point <= '9'                 ? point - '0'
                 : (point | 32) >= 'a' && (point | 32) <= 'f' ? (point | 32) - 'a' + 10
                                                              : 16;
    if (d == 16) break;
    v = v * 16 + d;
    ++digits;
    ++c.at;
  }
  if (digits == 0 || (braces && !c.take('}')) || (!braces && digits != 2) || v > kMaxCodePoint)
    c.bad("a bad hex escape");
  return {{v, v}};
}

}  // namespace

std::vector<CodeRange> parse_escape(RegexCursor& c) {
  if (!c.more()) c.bad("a backslash at the end");
  uint32_t point = c.next();
  if (std::vector<CodeRange> r = char_class(point); !r.empty()) return r;
  if (point >= 'A' && point <= 'Z')
    if (std::vector<CodeRange> r = char_class(point + 32); !r.empty()) return inverted(r);
  switch (point) {
    case 'n':
      return {{'\n', '\n'}};
    case 't':
      return {{'\t', '\t'}};
    case 'r':
      return {{'\r', '\r'}};
    case 'f':
      return {{'\f', '\f'}};
    case 'v':
      return {{'\v', '\v'}};
    case 'a':
      return {{'\a', '\a'}};
    case 'x':
      return hex(c);
    default:
      break;
  }
  bool word =
      (point >= '0' && point <= '9') || (point >= 'a' && point <= 'z') || (point >= 'A' && point <= 'Z');
  if (word) c.bad("an unknown escape");
  return {{point, point}};
}

namespace {

std::vector<CodeRange> one(RegexCursor& c) {
  if (!c.more()) c.bad("a class without end");
  uint32_t point = c.next();
  return point == '\\' ? parse_escape(c) : std::vector<CodeRange>{{point, point}};
}

void posix(RegexCursor& c, std::vector<CodeRange>& ranges) {
  c.at += 2;
  std::string name;
  while (c.more() && c.peek() >= 'a' && c.peek() <= 'z') name += static_cast<char>(c.next());
  if (!c.take(':') || !c.take(']')) c.bad("a class name without end");
  const std::vector<CodeRange> found = posix_class(name);
  if (found.empty()) c.bad(cat("no class [:", name, ":]"));
  ranges.insert(ranges.end(), found.begin(), found.end());
}

}  // namespace

CodeSet parse_bracket(RegexCursor& c) {
  bool negated = c.take('^');
  std::vector<CodeRange> ranges;
  for (bool first = true; first || !c.more() || c.peek() != ']'; first = false) {
    if (!c.more()) c.bad("a class without end");
    if (c.peek() == '[' && c.at + 1 < c.points.size() && c.points[c.at + 1] == ':') {
      posix(c, ranges);
      continue;
    }
    std::vector<CodeRange> r = one(c);
    bool single = r.size() == 1 && r[0].low == r[0].high;
    if (single && c.at + 1 < c.points.size() && c.peek() == '-' && c.points[c.at + 1] != ']') {
      ++c.at;
      std::vector<CodeRange> last = one(c);
      if (last.size() != 1 || last[0].low != last[0].high || last[0].low < r[0].low)
        c.bad("a range out of order");
      r[0].high = last[0].high;
    }
    ranges.insert(ranges.end(), r.begin(), r.end());
  }
  ++c.at;
  return {std::move(ranges), negated};
}

}  // namespace pelton::ir
