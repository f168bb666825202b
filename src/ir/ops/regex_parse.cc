// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/regex_parse.h"

#include <algorithm>
#include <optional>

#include "ir/ops/regex_sets.h"

namespace pelton::ir {
namespace {

constexpr size_t kMaxStates = 100000;

// Recursive descent over alternation, sequence, repetition, atom; emits states as it goes. A fragment is
// entered at its first state and leaves by falling to the state after its last.
class RegexParser : RegexCursor {
 public:
  explicit RegexParser(std::string_view pattern) : RegexCursor(pattern) {}

  std::vector<RegexState> run() {
    alternation();
    if (more()) bad("unmatched ')'");
    emit({State::Kind::match});
    return std::move(out_);
  }

 private:
  using State = RegexState;

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
    while (more() && peek() != '|' && peek() != ')') repetition();
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
    size_t back = at;
    if (!take('{')) return false;
    auto number = [&]() -> std::optional<int64_t> {
      if (!more() || peek() < '0' || peek() > '9') return std::nullopt;
      int64_t v = 0;
      while (more() && peek() >= '0' && peek() <= '9' && v <= 1000) v = v * 10 + (next() - '0');
      return v;
    };
    auto low = number();
    bool comma = take(',');
    auto high = number();
    if (!low || !take('}')) {  // a brace that counts nothing is a character
      at = back;
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
    uint32_t c = next();
    switch (c) {
      case '(':
        return group();
      case '[': {
        CodeSet s = parse_bracket(*this);
        return set(std::move(s.ranges), s.negated);
      }
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
        --at;
        bad("nothing to repeat");
      default:
        set({{c, c}});
    }
  }

  void group() {
    bool fold = fold_;
    if (take('?')) {
      if (take('P') || (more() && peek() == '<')) {
        if (!take('<')) bad("expected a group name");
        while (more() && peek() != '>') ++at;
        if (!take('>')) bad("a group name without end");
      } else {
        bool on = true;
        while (more() && peek() != ':' && peek() != ')') {
          uint32_t flag = next();
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
    } else if (more() && (peek() == 'p' || peek() == 'P')) {
      bad("Unicode classes are not supported");
    } else {
      set(parse_escape(*this));
    }
  }

  std::vector<State> out_;  // the program so far
  int depth_ = 0;
  bool fold_ = false;
};

}  // namespace

std::vector<RegexState> parse_regex(std::string_view pattern) {
  return RegexParser(pattern).run();
}

}  // namespace pelton::ir
