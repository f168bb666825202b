// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/regex_class.h"

namespace pelton::ir {

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

std::vector<CodeRange> char_class(uint32_t letter) {
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

std::vector<CodeRange> inverted(const std::vector<CodeRange>& ranges) {
  std::vector<CodeRange> out;
  uint32_t next = 0;
  for (CodeRange r : ranges) {
    if (r.low > next) out.push_back({next, r.low - 1});
    next = r.high + 1;
  }
  out.push_back({next, kMaxCodePoint});
  return out;
}

std::vector<CodeRange> posix_class(std::string_view name) {
  struct Class {
    std::string_view name;
    std::vector<CodeRange> ranges;
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
  for (const Class& c : classes)
    if (c.name == name) return c.ranges;
  return {};
}

}  // namespace pelton::ir
