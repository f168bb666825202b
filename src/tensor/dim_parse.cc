// SPDX-License-Identifier: Apache-2.0
// Dimensions from their text.
#include <cctype>
#include <charconv>

#include "tensor/dim.h"
#include "tensor/dim_scan.h"

namespace pelton {

namespace {

// expr = term (('+'|'-') term)*; term = factor ('*' factor)*; factor = integer | name | name(expr, expr) |
// -factor
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}
  Dim run() {
    Dim d = expr(0);
    skip();
    if (at_ != text_.size()) bad();
    return d;
  }

 private:
  [[noreturn]] void bad() {
    fail(ErrorCode::bad_format, cat("'", text_.substr(0, 200), "' is not a dimension"),
         cat("character ", at_), "write for example 128, N or 2*N + 1");
  }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Dim expr(int depth) {
    if (depth > 64) fail(ErrorCode::limit, "a dimension is nested deeper than 64");
    Dim sum = term(depth);
    for (;;) {
      if (take('+'))
        sum = sum + term(depth);
      else if (take('-'))
        sum = sum - term(depth);
      else
        return sum;
    }
  }
  Dim term(int depth) {
    Dim product = factor(depth);
    while (take('*')) product = product * factor(depth);
    return product;
  }
  Dim factor(int depth) {
    if (depth > 64) fail(ErrorCode::limit, "a dimension is nested deeper than 64");
    if (take('-')) return -factor(depth + 1);
    skip();
    if (at_ >= text_.size()) bad();
    size_t begin = at_;
    if (std::isdigit(static_cast<unsigned char>(text_[at_]))) {
      int64_t v = 0;
      auto r = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
      if (r.ec != std::errc()) bad();
      at_ = static_cast<size_t>(r.ptr - text_.data());
      return Dim(v);
    }
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_' || text_[at_] == '.'))
      ++at_;
    std::string_view word = text_.substr(begin, at_ - begin);
    if (!Dim::is_symbol_name(word)) bad();
    if (!take('(')) return Dim::symbol(word);
    Dim a = expr(depth + 1);
    if (!take(',')) bad();
    Dim b = expr(depth + 1);
    if (!take(')')) bad();
    return Dim::apply(word, a, b);
  }
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Dim scan_dim(std::string_view text, size_t& at, std::string_view ends) {
  size_t end = at;
  for (int depth = 0; end < text.size(); ++end) {
    const char c = text[end];
    if (c == '(')
      ++depth;
    else if (c == ')' && --depth < 0)
      break;
    else if (depth == 0 && ends.find(c) != ends.npos)
      break;
  }
  std::string_view t = text.substr(at, end - at);
  while (!t.empty() && t.back() == ' ') t.remove_suffix(1);
  const Dim d = Dim::parse(t);
  at = end;
  return d;
}

Dim Dim::parse(std::string_view text) {
  return Parser(text).run();
}

}  // namespace pelton
