// SPDX-License-Identifier: Apache-2.0
#include "ir/text_scanner.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"

namespace pelton::ir {

TextScanner::TextScanner(std::string_view text) : text_(text) {
  if (text.size() > (size_t{1} << 30)) fail(ErrorCode::limit, "graph text above 1 GiB");
}

void TextScanner::bad(std::string_view expected) {
  size_t line = 1, column = 1;
  for (size_t i = 0; i < at_ && i < text_.size(); ++i) {
    ++column;
    if (text_[i] == '\n') {
      ++line;
      column = 1;
    }
  }
  std::string near(text_.substr(std::min(at_, text_.size()), 24));
  fail(ErrorCode::bad_format,
       cat("graph text: ", expected, near.empty() ? ", found the end" : cat(" near '", near, "'")),
       cat("line ", line, ", column ", column));
}

void TextScanner::skip() {
  while (at_ < text_.size()) {
    if (std::isspace(static_cast<unsigned char>(text_[at_])))
      ++at_;
    else if (text_.substr(at_, 2) == "//")
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    else
      break;
  }
}

bool TextScanner::peek(char c) {
  skip();
  return at_ < text_.size() && text_[at_] == c;
}

bool TextScanner::take(char c) {
  if (!peek(c)) return false;
  ++at_;
  return true;
}

void TextScanner::expect(char c) {
  if (!take(c)) bad(cat("expected '", c, "'"));
}

bool TextScanner::word_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
}

std::string_view TextScanner::peek_word() {
  skip();
  size_t end = at_;
  while (end < text_.size() && word_char(text_[end])) ++end;
  return text_.substr(at_, end - at_);
}

std::string TextScanner::word() {
  std::string_view w = peek_word();
  if (w.empty()) bad("expected a word");
  at_ += w.size();
  return std::string(w);
}

bool TextScanner::take_word(std::string_view w) {
  if (peek_word() != w) return false;
  at_ += w.size();
  return true;
}

void TextScanner::expect_word(std::string_view w) {
  if (!take_word(w)) bad(cat("expected '", w, "'"));
}

std::string TextScanner::text() {
  expect('"');
  std::string out;
  while (at_ < text_.size() && text_[at_] != '"') {
    char c = text_[at_++];
    if (c != '\\') {
      out += c;
      continue;
    }
    if (at_ >= text_.size()) break;
    c = text_[at_++];
    if (c == 'n')
      out += '\n';
    else if (c == 'x') {
      unsigned v = 0;
      auto r = std::from_chars(text_.data() + at_, text_.data() + std::min(at_ + 2, text_.size()), v, 16);
      if (r.ptr != text_.data() + at_ + 2) bad("expected two hex digits");
      at_ += 2;
      out += static_cast<char>(v);
    } else
      out += c;
  }
  if (at_ >= text_.size()) bad("text without end");
  ++at_;
  return out;
}

std::string_view TextScanner::number_text() {
  skip();
  size_t end = at_;
  if (end < text_.size() && (text_[end] == '-' || text_[end] == '+')) ++end;
  while (end < text_.size() &&
         (word_char(text_[end]) || ((text_[end] == '-' || text_[end] == '+') && (text_[end - 1] == 'e'))))
    ++end;
  if (end == at_) bad("expected a number");
  return text_.substr(at_, end - at_);
}

template <class T>
T TextScanner::number(std::string_view expected) {
  std::string_view t = number_text();
  T v = 0;
  auto r = std::from_chars(t.data(), t.data() + t.size(), v);
  if (r.ec != std::errc() || r.ptr != t.data() + t.size()) bad(expected);
  at_ += t.size();
  return v;
}

int64_t TextScanner::integer() {
  return number<int64_t>("expected an integer");
}

uint64_t TextScanner::unsigned_integer() {
  return number<uint64_t>("expected an integer of 0 or more");
}

double TextScanner::real() {
  return number<double>("expected a real number");
}

}  // namespace pelton::ir
