// SPDX-License-Identifier: Apache-2.0
// The words of the text form: white space and comments, marks, names, quoted text, numbers, lists. Every
// error says where in the text it is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::ir {

class TextScanner {
 public:
  explicit TextScanner(std::string_view text);

 protected:
  [[noreturn]] void bad(std::string_view expected);
  void skip();
  bool peek(char c);
  bool take(char c);
  void expect(char c);
  static bool word_char(char c);
  std::string_view peek_word();
  std::string word();
  bool take_word(std::string_view w);
  void expect_word(std::string_view w);
  std::string text();
  // The characters of a number, NaN and infinities included.
  std::string_view number_text();
  int64_t integer();
  uint64_t unsigned_integer();
  double real();
  template <class T, class F>
  std::vector<T> list(char open, char close, F&& each) {
    expect(open);
    std::vector<T> out;
    if (take(close)) return out;
    do out.push_back(each());
    while (take(','));
    expect(close);
    return out;
  }

  std::string_view text_;
  size_t at_ = 0;

 private:
  template <class T>
  T number(std::string_view expected);
};

}  // namespace pelton::ir
