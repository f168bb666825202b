// SPDX-License-Identifier: Apache-2.0
#include "tensor/npy_header.h"

#include <charconv>

namespace pelton {
namespace {

[[noreturn]] void bad(std::string what) {
  fail(ErrorCode::bad_format, std::move(what), ".npy header");
}

// A cursor over the dictionary literal.
struct Literal {
  std::string_view s;

  void blanks() {
    while (!s.empty() && (s[0] == ' ' || s[0] == '\n' || s[0] == '\t')) s.remove_prefix(1);
  }
  bool eat(char c) {
    blanks();
    if (s.empty() || s[0] != c) return false;
    s.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!eat(c)) bad(cat("'", c, "' expected before \"", s.substr(0, 20), "\""));
  }
  std::string_view text() {
    blanks();
    if (s.empty() || (s[0] != '\'' && s[0] != '"'))
      bad(s.starts_with("[") ? "structured arrays are not supported" : "a quoted string is expected");
    size_t end = s.find(s[0], 1);
    if (end == s.npos) bad("a string is not closed");
    std::string_view out = s.substr(1, end - 1);
    s.remove_prefix(end + 1);
    return out;
  }
  bool boolean() {
    blanks();
    for (auto [word, value] : {std::pair{std::string_view("True"), true}, {std::string_view("False"), false}})
      if (s.starts_with(word)) {
        s.remove_prefix(word.size());
        return value;
      }
    bad("fortran_order is neither True nor False");
  }
  int64_t integer() {
    blanks();
    int64_t v = 0;
    auto r = std::from_chars(s.data(), s.data() + s.size(), v);
    if (r.ec != std::errc() || v < 0) bad("a size in shape is not a number from 0 to 2^63-1");
    s.remove_prefix(static_cast<size_t>(r.ptr - s.data()));
    eat('L');
    return v;
  }
  Dims tuple() {
    Dims out;
    expect('(');
    while (!eat(')')) {
      out.push_back(integer());
      if (!eat(',')) {
        expect(')');
        break;
      }
    }
    return out;
  }
};

void set_descr(std::string_view descr, NpyHeader& h) {
  if (descr.empty()) bad("descr is empty");
  if (descr[0] == '<' || descr[0] == '>' || descr[0] == '|' || descr[0] == '=') {
    h.order = descr[0];
    descr.remove_prefix(1);
  }
  if (!descr.empty() && descr[0] == 'O')
    bad("the array holds pickled Python objects, which are never loaded");
  if (descr.empty() || std::string_view("fiubcVUS?").find(descr[0]) == std::string_view::npos)
    bad(cat("element type \"", descr, "\" is not supported"));
  h.kind = descr[0] == '?' ? 'b' : descr[0];
  h.size = 1;
  descr.remove_prefix(1);
  if (descr.empty()) return;
  auto r = std::from_chars(descr.data(), descr.data() + descr.size(), h.size);
  if (r.ec != std::errc() || r.ptr != descr.data() + descr.size() || h.size < 0 ||
      h.size > (int64_t{1} << 30))
    bad(cat("element size \"", descr, "\" is not supported"));
}

}  // namespace

NpyHeader parse_npy_header(std::string_view file) {
  if (!file.starts_with("\x93NUMPY")) bad("the file does not begin with the .npy magic");
  if (file.size() < 12) bad("the file ends inside the header");
  auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<uint8_t>(file[i])); };
  size_t version = byte(6), start = version == 1 ? 10 : 12;
  if (version < 1 || version > 3) bad(cat("format version ", version, " is newer than 3"));
  size_t length = byte(8) | byte(9) << 8;
  if (version > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (length > file.size() - start)
    bad(cat("it claims ", length, " bytes where ", file.size() - start, " are left"));
  NpyHeader h;
  h.data_offset = start + length;
  Literal text{file.substr(start, length)};
  int seen = 0;
  text.expect('{');
  while (!text.eat('}')) {
    std::string_view key = text.text();
    text.expect(':');
    if (key == "descr")
      set_descr(text.text(), h), seen |= 1;
    else if (key == "fortran_order")
      h.fortran = text.boolean(), seen |= 2;
    else if (key == "shape")
      h.dims = text.tuple(), seen |= 4;
    else
      bad(cat("unknown key \"", key, "\""));
    if (!text.eat(',')) {
      text.expect('}');
      break;
    }
  }
  if (seen != 7) bad("descr, fortran_order or shape is missing");
  return h;
}

std::string format_npy_header(std::string_view descr, const Dims& dims) {
  std::string shape;
  for (int64_t d : dims) append(shape, cat(d, ", "));
  if (dims.size() == 1)
    shape = cat(dims[0], ",");
  else if (!shape.empty())
    shape.resize(shape.size() - 2);
  std::string dict = cat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (", shape, "), }");
  size_t prefix = dict.size() + 11 > 0xffff ? 12 : 10;
  while ((prefix + dict.size() + 1) % 64) dict.push_back(' ');
  dict.push_back('\n');
  std::string out = "\x93NUMPY";
  out.push_back(prefix == 12 ? 2 : 1);
  out.push_back(0);
  for (size_t i = 0; i < prefix - 8; ++i) out.push_back(static_cast<char>(dict.size() >> (8 * i)));
  return out + dict;
}

}  // namespace pelton
