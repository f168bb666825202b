// SPDX-License-Identifier: Apache-2.0
// Regular expressions of RE2's syntax, matched in time linear in the text: a program of states run on all
// positions at once, so that no pattern can take forever or exhaust the stack. Bytes of UTF-8 sequences are
// matched as code points.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ir/ops/regex_class.h"

namespace pelton::ir {

struct RegexState {
  enum class Kind : uint8_t { set, split, jump, begin, end, boundary, match } kind;
  uint32_t next = 0, other = 0;   // split: both
  std::vector<CodeRange> ranges;  // set
  bool negated = false;           // set, boundary
};

class Regex {
 public:
  // bad_format says what was not understood and where. Supported: literals, . \d \D \w \W \s \S, escapes,
  // classes with ranges, negation and [:names:], groups (capturing, (?:), (?i)), | * + ? {m,n} and their lazy
  // forms, ^ $ \A \z \b \B.
  explicit Regex(std::string_view pattern);
  bool full_match(std::string_view text) const;

 private:
  std::vector<RegexState> program_;
};

}  // namespace pelton::ir
