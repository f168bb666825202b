// SPDX-License-Identifier: Apache-2.0
// The equation of an einsum: its terms, and the axis of each operand that a label stands for.
#include <algorithm>
#include <cctype>
#include <map>

#include "base/error.h"
#include "ir/ops/einsum.h"

namespace pelton::ir {

namespace {

constexpr int kDots = 1;  // a run of three dots, in a term

[[noreturn]] void bad(const std::string& text, std::string_view why) {
  fail(ErrorCode::usage, cat("einsum equation '", text, "' ", why));
}

// A term as characters, "..." as kDots.
std::vector<int> read_term(const std::string& text, std::string_view term) {
  std::vector<int> out;
  for (size_t i = 0; i < term.size(); ++i) {
    char ch = term[i];
    if (ch == ' ') continue;
    if (ch == '.') {
      if (term.substr(i, 3) != "..." || std::count(out.begin(), out.end(), kDots))
        bad(text, "has dots that are not one '...' a term");
      out.push_back(kDots);
      i += 2;
    } else if (std::isalpha(static_cast<unsigned char>(ch))) {
      out.push_back(ch);
    } else {
      bad(text, cat("has the character '", std::string(1, ch), "'"));
    }
  }
  return out;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  for (;;) {
    size_t end = text.find(separator);
    out.push_back(text.substr(0, end));
    if (end == text.npos) return out;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

Equation parse_equation(const std::string& text, const std::vector<size_t>& ranks) {
  size_t arrow = text.find("->");
  std::string_view all = text;
  std::vector<std::string_view> terms = split(all.substr(0, arrow), ',');
  if (terms.size() != ranks.size())
    bad(text, cat("has ", terms.size(), " terms for ", ranks.size(), " operands"));
  std::vector<std::vector<int>> read;
  size_t dots = 0;  // axes of the longest "..."
  std::map<int, int> uses;
  for (size_t i = 0; i < terms.size(); ++i) {
    read.push_back(read_term(text, terms[i]));
    bool has_dots = std::count(read[i].begin(), read[i].end(), kDots) != 0;
    size_t named = read[i].size() - has_dots;
    if (has_dots ? named > ranks[i] : named != ranks[i])
      bad(text, cat("names ", named, " axes of operand ", i, ", which has rank ", ranks[i]));
    if (has_dots) dots = std::max(dots, ranks[i] - named);
    for (int ch : read[i])
      if (ch != kDots) ++uses[ch];
  }
  Equation e;
  e.spread.assign(dots, true);
  std::map<int, size_t> ids;
  auto id_of = [&](int ch) {
    auto [at, fresh] = ids.emplace(ch, e.spread.size());
    if (fresh) e.spread.push_back(false);
    return at->second;
  };
  for (size_t i = 0; i < read.size(); ++i) {
    std::vector<size_t>& labels = e.operands.emplace_back();
    for (int ch : read[i]) {
      if (ch != kDots) {
        labels.push_back(id_of(ch));
        continue;
      }
      size_t own = ranks[i] - (read[i].size() - 1);
      for (size_t d = dots - own; d < dots; ++d) labels.push_back(d);
    }
  }
  std::vector<int> out;
  if (arrow == text.npos) {  // implicit: "..." first, then labels used once, in order
    if (dots) out.push_back(kDots);
    for (auto [ch, count] : uses)
      if (count == 1) out.push_back(ch);
  } else {
    out = read_term(text, all.substr(arrow + 2));
    if (dots && !std::count(out.begin(), out.end(), kDots)) bad(text, "drops the axes of '...'");
  }
  for (int ch : out) {
    if (ch == kDots) {
      for (size_t d = 0; d < dots; ++d) e.output.push_back(d);
      continue;
    }
    if (!ids.count(ch))
      bad(text, cat("yields '", std::string(1, static_cast<char>(ch)), "', which no operand has"));
    if (std::find(e.output.begin(), e.output.end(), ids[ch]) != e.output.end())
      bad(text, cat("yields '", std::string(1, static_cast<char>(ch)), "' twice"));
    e.output.push_back(ids[ch]);
  }
  return e;
}

}  // namespace pelton::ir
