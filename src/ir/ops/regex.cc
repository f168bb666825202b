// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/regex.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"

namespace pelton::ir {
namespace {

// Code points; bytes that are not UTF-8 stand for themselves.
std::vector<uint32_t> code_points(std::string_view s) {
  std::vector<uint32_t> out;
  for (size_t i = 0; i < s.size();) {
    auto lead = static_cast<unsigned char>(s[i]);
    int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
    uint32_t v = more == 3 ? lead & 0x07u : more == 2 ? lead & 0x0Fu : more == 1 ? lead & 0x1Fu : lead;
    bool valid = i + static_cast<size_t>(more) < s.size() + (more == 0);
    for (int k = 1; valid && k <= more; ++k) {
      auto c = static_cast<unsigned char>(s[i + static_cast<size_t>(k)]);
      valid = (c & 0xC0) == 0x80;
      v = (v << 6) | (c & 0x3Fu);
    }
    out.push_back(valid ? v : lead);
    i += valid ? static_cast<size_t>(more) + 1 : 1;
  }
  return out;
}

constexpr size_t kMaxStates = 100000;
constexpr uint32_t kMaxPoint = 0x10FFFF;

}  // namespace

// Recursive descent over alternation, sequence, repetition, atom; emits states as it goes. A fragment is
// entered at its first state and leaves by falling to the state after its last.
class RegexParser {
 public:
  RegexParser(std::string_view pattern, std::vector<Regex::State>& program)
      : text_(code_points(pattern)), pattern_(pattern), out_(program) {}

  void run() {
    alternation();
    if (at_ != text_.size()) bad("unmatched ')'");
    emit({State::Kind::match});
  }

 private:
  using State = Regex::State;
  using Range = Regex::Range;

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

  void set(std::vector<Range> ranges, bool negated = false) {
    if (fold_) {
      std::vector<Range> folded;
      for (Range r : ranges)
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

  // Ranges of a class letter; empty if it is none.
  static std::vector<Range> named(uint32_t letter) {
    switch (letter) {
      case 'd':
        return {{'0', '9'}};
      case 'w':
        return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
      case 's':
        return {{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}};
      default:
        return {};
    }
  }
  static std::vector<Range> inverted(std::vector<Range> ranges) {
    std::vector<Range> out;
    uint32_t next = 0;
    for (Range r : ranges) {
      if (r.low > next) out.push_back({next, r.low - 1});
      next = r.high + 1;
    }
    out.push_back({next, kMaxPoint});
    return out;
  }
  // After a backslash: a class, or one character.
  std::vector<Range> escaped() {
    if (!more()) bad("a backslash at the end");
    uint32_t c = text_[at_++];
    if (std::vector<Range> r = named(c); !r.empty()) return r;
    if (c >= 'A' && c <= 'Z')
      if (std::vector<Range> r = named(c + 32); !r.empty()) return inverted(r);
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
  std::vector<Range> hex() {
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
    if (digits == 0 || (braces && !take('}')) || (!braces && digits != 2) || v > kMaxPoint)
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
    std::vector<Range> ranges;
    for (bool first = true; first || !more() || text_[at_] != ']'; first = false) {
      if (!more()) bad("a class without end");
      if (text_[at_] == '[' && at_ + 1 < text_.size() && text_[at_ + 1] == ':') {
        posix(ranges);
        continue;
      }
      std::vector<Range> r = one();
      bool single = r.size() == 1 && r[0].low == r[0].high;
      if (single && at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        ++at_;
        std::vector<Range> last = one();
        if (last.size() != 1 || last[0].low != last[0].high || last[0].low < r[0].low)
          bad("a range out of order");
        r[0].high = last[0].high;
      }
      ranges.insert(ranges.end(), r.begin(), r.end());
    }
    ++at_;
    set(std::move(ranges), negated);
  }
  std::vector<Range> one() {
    if (!more()) bad("a class without end");
    uint32_t c = text_[at_++];
    return c == '\\' ? escaped() : std::vector<Range>{{c, c}};
  }
  void posix(std::vector<Range>& ranges) {
    struct Class {
      std::string_view name;
      std::vector<Range> ranges;
    };
    static const Class classes[] = {{"alpha", {{'A', 'Z'}, {'a', 'z'}}},
                                    {"digit", {{'0', '9'}}},
                                    {"alnum", {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}},
                                    {"upper", {{'A', 'Z'}}},
                                    {"lower", {{'a', 'z'}}},
                                    {"space", {{'\t', '\r'}, {' ', ' '}}},
                                    {"punct", {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}},
                                    {"xdigit", {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}},
                                    {"word", {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}}};
    at_ += 2;
    std::string name;
    while (more() && text_[at_] >= 'a' && text_[at_] <= 'z') name += static_cast<char>(text_[at_++]);
    if (!take(':') || !take(']')) bad("a class name without end");
    for (const Class& c : classes)
      if (c.name == name) {
        ranges.insert(ranges.end(), c.ranges.begin(), c.ranges.end());
        return;
      }
    bad(cat("no class [:", name, ":]"));
  }

  std::vector<uint32_t> text_;
  std::string pattern_;
  std::vector<State>& out_;
  size_t at_ = 0;
  int depth_ = 0;
  bool fold_ = false;
};

Regex::Regex(std::string_view pattern) {
  RegexParser(pattern, program_).run();
}

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
      const State& st = program_[s];
      switch (st.kind) {
        case State::Kind::split:
          stack.push_back(st.other);
          stack.push_back(st.next);
          break;
        case State::Kind::jump:
          stack.push_back(st.next);
          break;
        case State::Kind::begin:
          if (position == 0) stack.push_back(s + 1);
          break;
        case State::Kind::end:
          if (position == points.size()) stack.push_back(s + 1);
          break;
        case State::Kind::boundary:
          if (boundary(position) != st.negated) stack.push_back(s + 1);
          break;
        case State::Kind::set:
          into.push_back(s);
          break;
        case State::Kind::match:
          matched |= position == points.size();
          break;
      }
    }
  };
  add(0, 0, now);
  for (size_t i = 0; i < points.size() && !now.empty(); ++i) {
    next.clear();
    for (uint32_t s : now) {
      const State& st = program_[s];
      bool inside = std::any_of(st.ranges.begin(), st.ranges.end(),
                                [&](const Range& r) { return points[i] >= r.low && points[i] <= r.high; });
      if (inside != st.negated) add(s + 1, i + 1, next);
    }
    std::swap(now, next);
  }
  return matched;
}

}  // namespace pelton::ir
