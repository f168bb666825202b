// SPDX-License-Identifier: Apache-2.0
// cat(a, b, ...): joins values into one string. The whole message vocabulary of the code base; it keeps
// <sstream> and formatting libraries out of headers.
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace pelton {

inline void append(std::string& out, std::string_view s) {
  out.append(s);
}
inline void append(std::string& out, const std::string& s) {
  out.append(s);
}
inline void append(std::string& out, const char* s) {
  out.append(s);
}
inline void append(std::string& out, char c) {
  out.push_back(c);
}
inline void append(std::string& out, bool b) {
  out.append(b ? "true" : "false");
}

template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char>)
void append(std::string& out, T v) {
  char buffer[24];
  auto r = std::to_chars(buffer, buffer + sizeof buffer, v);
  out.append(buffer, r.ptr);
}

// Shortest text that reads back as the same number.
void append(std::string& out, double v);
inline void append(std::string& out, float v) {
  append(out, static_cast<double>(v));
}

// [a,b,c]
template <class T>
void append(std::string& out, const std::vector<T>& items) {
  out.push_back('[');
  for (size_t i = 0; i < items.size(); ++i) {
    if (i) out.push_back(',');
    append(out, items[i]);
  }
  out.push_back(']');
}

template <class T>
  requires requires(const T& t) {
    { t.str() } -> std::convertible_to<std::string>;
  }
void append(std::string& out, const T& v) {
  out.append(v.str());
}

template <class... Args>
std::string cat(const Args&... args) {
  std::string out;
  (append(out, args), ...);
  return out;
}

}  // namespace pelton
