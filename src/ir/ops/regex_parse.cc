// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/regex_parse.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/error.h"
#include "ir/ops/regex_class.h"

namespace pelton::ir {
namespace {

constexpr size_t kMaxStates = 100000;

// Recursive descent over alternation, sequence, repetition, atom; emits states as it goes. A fragment is
// entered at its first state and leaves by falling to the state after its last.
class RegexParser {
 public:
  explicit RegexParser(std::string_view pattern) : text_(code_points(pattern)), pattern_(pattern) {}

  std::vector<RegexState> run() {
    alternation();
    if (at_ != text_.size()) bad("unmatched ')'");
    emit({State::Kind::match});
    return std::move(out_);
  }

 private:
  using State = RegexState;

  [[noreturn]] void bad(std::string_view what) const {
    fail(ErrorCode::bad_format, cat("regular expression '", pattern_, "': ", what, " at position ", at_));
  }
  bool more() const { return at_ < text_.size(); }
  bool take(uint32_t c) {
    if (!more() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  size_t emit(State s) {
    if (out_.size() >= kMaxStates) bad("more than 100000 states");
    out_.push_back(std::move(s));
    return out_.size() - 1;
  }
  uint32_t here() const { return static_cast<uint32_t>(out_.size()); }
  // Makes room for one state at `place`; targets at or after it move along.
  void insert(size_t place, State s) {
    if (out_.size() >= kMaxStates) bad("more than 100000 states");
    for (size_t i = place; i < out_.size(); ++i) {
      if (out_[i].next >= place) ++out_[i].next;
      if (out_[i].other >= place) ++out_[i].other;
    }
    out_.insert(out_.begin() + static_cast<std::ptrdiff_t>(place), std::move(s));
  }

  void alternation() {
    if (++depth_ > 200) bad("nested deeper than 200");
    bool fold = fold_;
    size_t start = out_.size();
    sequence();
    std::vector<size_t> exits;
    while (take('|')) {
      State split{State::Kind::split};
      insert(start, split);
      exits.push_back(emit({State::Kind::jump}));
      out_[start].next = static_cast<uint32_t>(start + 1);
      out_[start].other = here();
      start = out_.size();
      sequence();
    }
    for (size_t e : exits) out_[e].next = here();
    fold_ = fold;
    --depth_;
  }

  void sequence() {
    while (more() && text_[at_] != '|' && text_[at_] != ')') repetition();
  }

  void repetition() {
    size_t start = out_.size();
    atom();
    for (;;) {
      int64_t least = 0, most = -1;  // most -1: no limit
      if (take('*')) {
      } else if (take('+')) {
        least = 1;
      } else if (take('?')) {
        most = 1;
      } else if (!bounds(least, most)) {
        return;
      }
      take('?');  // a lazy form matches the same texts in full
      repeat(start, least, most);
    }
  }

  bool bounds(int64_t& least, int64_t& most) {
    size_t back = at_;
    if (!take('{')) return false;
    auto number = [&]() -> std::optional<int64_t> {
      if (!more() || text_[at_] < '0' || text_[at_] > '9') return std::nullopt;
      int64_t v = 0;
      while (more() && text_[at_] >= '0' && text_[at_] <= '9' && v <= 1000) v = v * 10 + (text_[at_++] - '0');
      return v;
    };
    auto low = number();
    bool comma = take(',');
    auto high = number();
    if (!low || !take('}')) {  // a brace that counts nothing is a character
      at_ = back;
      return false;
    }
    least = *low;
    most = !comma ? least : high.value_or(-1);
    if (least > 1000 || most > 1000 || (most >= 0 && most < least)) bad("a repeat count outside 0 to 1000");
    return true;
  }

  // The fragment from `start` to the end, `least` to `most` times.
  void repeat(size_t start, int64_t least, int64_t most) {
    std::vector<State> body(out_.begin() + static_cast<std::ptrdiff_t>(start), out_.end());
    out_.resize(start);
    auto copy = [&] {
      auto shift = static_cast<uint32_t>(out_.size() - start);
      for (State s : body) {
        if (s.kind == State::Kind::split || s.kind == State::Kind::jump) {
          s.next += shift;
          s.other += shift;
        }
        emit(std::move(s));
      }
    };
    for (int64_t i = 0; i < least; ++i) copy();
    if (most < 0) {
      size_t split = emit({State::Kind::split});
      out_[split].next = here();
      copy();
      size_t jump = emit({State::Kind::jump});
      out_[jump].next = static_cast<uint32_t>(split);
      out_[split].other = here();
      return;
    }
    std::vector<size_t> splits;
    for (int64_t i = least; i < most; ++i) {
      splits.push_back(emit({State::Kind::split}));
      out_[splits.back()].next = here();
      copy();
    }
    for (size_t s : splits) out_[s].other = here();
  }

  void set(std::vector<CodeRange> ranges, bool negated = false) {
    if (fold_) {
      std::vector<CodeRange> folded;
      for (CodeRange r : ranges)
        for (auto [from, to] : {std::pair{'a', 'A'}, std::pair{'A', 'a'}}) {
          uint32_t low = std::max<uint32_t>(r.low, static_cast<uint32_t>(from));
          uint32_t high = std::min<uint32_t>(r.high, static_cast<uint32_t>(from) + 25);
          if (low <= high)
            folded.push_back({low - static_cast<uint32_t>(from) + static_cast<uint32_t>(to),
                              high - static_cast<uint32_t>(from) + static_cast<uint32_t>(to)});
        }
      ranges.insert(ranges.end(), folded.begin(), folded.end());
    }
    State s{State::Kind::set};
    s.ranges = std::move(ranges);
    s.negated = negated;
    emit(std::move(s));
  }

  void atom() {
    uint32_t c = text_[at_++];
    switch (c) {
      case '(':
        return group();
      case '[':
        return bracket();
      case '.':
        return set({{'\n', '\n'}}, true);
      case '^':
        emit({State::Kind::begin});
        return;
      case '$':
        emit({State::Kind::end});
        return;
      case '\\':
        return escape();
      case '*':
      case '+':
      case '?':
        --at_;
        bad("nothing to repeat");
      default:
        set({{c, c}});
    }
  }

  void group() {
    bool fold = fold_;
    if (take('?')) {
      if (take('P') || (more() && text_[at_] == '<')) {
        if (!take('<')) bad("expected a group name");
        while (more() && text_[at_] != '>') ++at_;
        if (!take('>')) bad("a group name without end");
      } else {
        bool on = true;
        while (more() && text_[at_] != ':' && text_[at_] != ')') {
          uint32_t flag = text_[at_++];
          if (flag == '-')
            on = false;
          else if (flag == 'i')
            fold_ = on;
          else if (flag != 's' && flag != 'm' && flag != 'U')
            bad("an unknown flag");
          else if (flag != 'U')
            bad("flags s and m are not supported");
        }
        if (take(')')) return;  // flags for what follows
        if (!take(':')) bad("a group without end");
      }
    }
    alternation();
    if (!take(')')) bad("a group without end");
    fold_ = fold;
  }

  // After a backslash: a class, or one character.
  std::vector<CodeRange> escaped() {
    if (!more()) bad("a backslash at the end");
    uint32_t c = text_[at_++];
    if (std::vector<CodeRange> r = char_class(c); !r.empty()) return r;
    if (c >= 'A' && c <= 'Z')
      if (std::vector<CodeRange> r = char_class(c + 32); !r.empty()) return inverted(r);
    switch (c) {
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
        return hex();
      default:
        break;
    }
    bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (word) bad("an unknown escape");
    return {{c, c}};
  }
  std::vector<CodeRange> hex() {
    bool braces = take('{');
    uint32_t v = 0;
    size_t digits = 0;
    while (more() && digits < (braces ? 6u : 2u)) {
      uint32_t c = text_[at_];
      uint32_t d = c >= '0' && c <= '9'                 ? c - '0'
                   : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                        : 16;
      if (d == 16) break;
      v = v * 16 + d;
      ++digits;
      ++at_;
    }
    if (digits == 0 || (braces && !take('}')) || (!braces && digits != 2) || v > kMaxCodePoint)
      bad("a bad hex escape");
    return {{v, v}};
  }
  void escape() {
    if (take('A')) {
      emit({State::Kind::begin});
    } else if (take('z')) {
      emit({State::Kind::end});
    } else if (take('b')) {
      emit({State::Kind::boundary});
    } else if (take('B')) {
      State inside{State::Kind::boundary};
      inside.negated = true;
      emit(std::move(inside));
    } else if (more() && (text_[at_] == 'p' || text_[at_] == 'P')) {
      bad("Unicode classes are not supported");
    } else {
      set(escaped());
    }
  }

  void bracket() {
    bool negated = take('^');
    std::vector<CodeRange> ranges;
    for (bool first = true; first || !more() || text_[at_] != ']'; first = false) {
      if (!more()) bad("a class without end");
      if (text_[at_] == '[' && at_ + 1 < text_.size() && text_[at_ + 1] == ':') {
        posix(ranges);
        continue;
      }
      std::vector<CodeRange> r = one();
      bool single = r.size() == 1 && r[0].low == r[0].high;
      if (single && at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        ++at_;
        std::vector<CodeRange> last = one();
        if (last.size() != 1 || last[0].low != last[0].high || last[0].low < r[0].low)
          bad("a range out of order");
        r[0].high = last[0].high;
      }
      ranges.insert(ranges.end(), r.begin(), r.end());
    }
    ++at_;
    set(std::move(ranges), negated);
  }
  std::vector<CodeRange> one() {
    if (!more()) bad("a class without end");
    uint32_t c = text_[at_++];
    return c == '\\' ? escaped() : std::vector<CodeRange>{{c, c}};
  }
  void posix(std::vector<CodeRange>& ranges) {
    at_ += 2;
    std::string name;
    while (more() && text_[at_] >= 'a' && text_[at_] <= 'z') name += static_cast<char>(text_[at_++]);
    if (!take(':') || !take(']')) bad("a class name without end");
    const std::vector<CodeRange> found = posix_class(name);
    if (found.empty()) bad(cat("no class [:", name, ":]"));
    ranges.insert(ranges.end(), found.begin(), found.end());
  }

  std::vector<uint32_t> text_;
  std::string pattern_;
  std::vector<State> out_;  // the program so far
  size_t at_ = 0;
  int depth_ = 0;
  bool fold_ = false;
};

}  // namespace

std::vector<RegexState> parse_regex(std::string_view pattern) {
  return RegexParser(pattern).run();
}

}  // namespace pelton::ir
