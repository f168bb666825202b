// SPDX-License-Identifier: Apache-2.0
#include "base/toml_text.h"

#include <algorithm>

#include "base/cat.h"
#include "base/error.h"

namespace pelton {
namespace {

constexpr int kMostBrackets = 64;

class Scan {
 public:
  Scan(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  void run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') {
        ++line_;
        ++at_;
        header();
      } else if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == '"' || c == '\'') {
        quoted(c);
      } else {
        plain(c);
      }
    }
  }

  // At the begin of a line: a table header, whose first key must follow its one or two brackets.
  void header() {
    if (depth_ > 0) return;
    size_t i = skip_blank(at_);
    if (peek(i) != '[') return;
    i = skip_blank(peek(i + 1) == '[' ? i + 2 : i + 1);
    const char c = peek(i);
    const bool key =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    if (!key && c != '"' && c != '\'') bad("a table header does not begin with a key");
  }

 private:
  void plain(char c) {
    if (static_cast<unsigned char>(c) >= 0x80)
      bad("a character beyond ASCII stands outside of quotes and comments");
    if (c == '[' || c == '{') ++depth_;
    if ((c == ']' || c == '}') && depth_ > 0) --depth_;
    if (depth_ > kMostBrackets) bad(cat("more than ", kMostBrackets, " brackets are open"));
    ++at_;
  }

  // A string from its first quote to behind its last; one that does not end is left to the parser.
  void quoted(char quote) {
    const bool many = peek(at_ + 1) == quote && peek(at_ + 2) == quote;
    at_ += many ? 3 : 1;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\\' && quote == '"') {
        at_ += peek(at_ + 1) == '\n' ? 1 : 2;
        continue;
      }
      if (c == '\n') {
        if (!many) return;
        ++line_;
      }
      if (c == quote && (!many || (peek(at_ + 1) == quote && peek(at_ + 2) == quote))) {
        at_ += many ? 3 : 1;
        while (many && peek(at_) == quote) ++at_;  // up to two quotes may stand before the last three
        return;
      }
      ++at_;
    }
  }

  size_t skip_blank(size_t i) const {
    while (peek(i) == ' ' || peek(i) == '\t') ++i;
    return i;
  }
  char peek(size_t i) const { return i < text_.size() ? text_[i] : '\0'; }
  [[noreturn]] void bad(std::string_view what) const {
    fail(ErrorCode::bad_format, std::string(what), cat(where_, " line ", line_));
  }

  std::string_view text_, where_;
  size_t at_ = 0;
  int line_ = 1, depth_ = 0;
};

}  // namespace

void check_toml_text(std::string_view text, std::string_view where) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  Scan scan(text, where);
  scan.header();
  scan.run();
}

}  // namespace pelton
