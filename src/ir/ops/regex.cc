// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/regex.h"

#include <algorithm>
#include <utility>

#include "ir/ops/regex_parse.h"

namespace pelton::ir {

Regex::Regex(std::string_view pattern) : program_(parse_regex(pattern)) {}

bool Regex::full_match(std::string_view text) const {
  std::vector<uint32_t> points = code_points(text);
  std::vector<uint32_t> now, next, stack;
  std::vector<size_t> seen(program_.size(), SIZE_MAX);  // position at which a state was added last
  bool matched = false;
  auto word = [&](size_t i) {  // of \w: ASCII only, as in RE2
    const uint32_t c = points[i], lower = c | 32;
    return c == '_' || (c >= '0' && c <= '9') || (c < 128 && lower >= 'a' && lower <= 'z');
  };
  auto boundary = [&](size_t i) { return (i > 0 && word(i - 1)) != (i < points.size() && word(i)); };
  // Adds a state and all it reaches without reading.
  auto add = [&](uint32_t state, size_t position, std::vector<uint32_t>& into) {
    stack.push_back(state);
    while (!stack.empty()) {
      uint32_t s = stack.back();
      stack.pop_back();
      if (seen[s] == position) continue;
      seen[s] = position;
      const RegexState& st = program_[s];
      switch (st.kind) {
        case RegexState::Kind::split:
          stack.push_back(st.other);
          stack.push_back(st.next);
          break;
        case RegexState::Kind::jump:
          stack.push_back(st.next);
          break;
        case RegexState::Kind::begin:
          if (position == 0) stack.push_back(s + 1);
          break;
        case RegexState::Kind::end:
          if (position == points.size()) stack.push_back(s + 1);
          break;
        case RegexState::Kind::boundary:
          if (boundary(position) != st.negated) stack.push_back(s + 1);
          break;
        case RegexState::Kind::set:
          into.push_back(s);
          break;
        case RegexState::Kind::match:
          matched |= position == points.size();
          break;
      }
    }
  };
  add(0, 0, now);
  for (size_t i = 0; i < points.size() && !now.empty(); ++i) {
    next.clear();
    for (uint32_t s : now) {
      const RegexState& st = program_[s];
      bool inside = std::any_of(st.ranges.begin(), st.ranges.end(), [&](const CodeRange& r) {
        return points[i] >= r.low && points[i] <= r.high;
      });
      if (inside != st.negated) add(s + 1, i + 1, next);
    }
    std::swap(now, next);
  }
  return matched;
}

}  // namespace pelton::ir
