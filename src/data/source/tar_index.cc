// SPDX-License-Identifier: Apache-2.0
#include "data/source/tar_index.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace pelton::data {
namespace {

constexpr int64_t kBlock = 512;
constexpr int64_t kMaxMeta = 1 << 20;  // long names and pax records

std::string text(std::string_view field) {
  return std::string(field.substr(0, field.find('\0')));
}

// Octal text, or base 256 when the top bit is set (GNU).
int64_t number(std::string_view field, const std::string& where) {
  int64_t v = 0;
  if (static_cast<uint8_t>(field[0]) & 0x80) {
    for (size_t i = 1; i < field.size(); ++i) {
      if (v > (int64_t{1} << 54)) fail(ErrorCode::bad_format, "a tar size is out of range", where);
      v = v << 8 | static_cast<uint8_t>(field[i]);
    }
    return v;
  }
  for (char c : field) {
    if (c == ' ' || c == '\0') {
      if (v) break;
      continue;
    }
    if (c < '0' || c > '7') fail(ErrorCode::bad_format, "a tar number is not octal", where);
    v = v << 3 | (c - '0');
  }
  return v;
}

// The value of `key` in pax records "LENGTH KEY=VALUE\n"; empty when absent.
std::string pax_value(std::string_view records, std::string_view key) {
  std::string found;
  while (!records.empty()) {
    size_t length = 0;
    auto r = std::from_chars(records.data(), records.data() + records.size(), length);
    const size_t digits = static_cast<size_t>(r.ptr - records.data());
    if (r.ec != std::errc() || length <= digits + 1 || length > records.size()) return found;
    std::string_view body = records.substr(digits + 1, length - digits - 2);
    if (body.starts_with(key) && body.size() > key.size() && body[key.size()] == '=')
      found = body.substr(key.size() + 1);
    records.remove_prefix(length);
  }
  return found;
}

}  // namespace

std::vector<TarMember> tar_members(int64_t archive_size,
                                   const std::function<std::string(int64_t, int64_t)>& read,
                                   const std::string& where) {
  std::vector<TarMember> out;
  std::string long_name, pax;
  for (int64_t at = 0; at < archive_size;) {
    const std::string place = cat(where, " at byte ", at);
    const std::string block = read(at, kBlock);
    if (static_cast<int64_t>(block.size()) < kBlock)
      fail(ErrorCode::bad_format, "the tar header is cut short", place);
    if (std::ranges::all_of(block, [](char c) { return c == '\0'; })) return out;
    const std::string_view h = block;
    int64_t sum = 0;
    for (size_t i = 0; i < h.size(); ++i) sum += i >= 148 && i < 156 ? ' ' : static_cast<uint8_t>(h[i]);
    if (sum != number(h.substr(148, 8), place))
      fail(ErrorCode::bad_format, "the tar header's checksum is wrong", place,
           "the archive is damaged, or not a tar file");
    int64_t size = number(h.substr(124, 12), place);
    const char type = h[156];
    if (std::string s = pax_value(pax, "size"); !s.empty() && type != 'x' && type != 'g')
      std::from_chars(s.data(), s.data() + s.size(), size);
    const int64_t content = at + kBlock;
    if (size < 0 || size > archive_size - content)
      fail(ErrorCode::bad_format, cat("a member of ", size, " bytes runs past the end of the archive"), place,
           "the archive is cut short");
    if (type == 'L' || type == 'x') {
      if (size > kMaxMeta) fail(ErrorCode::limit, cat("a tar name record of ", size, " bytes"), place);
      (type == 'L' ? long_name : pax) = read(content, size);
    } else if (type == '0' || type == '\0' || type == '7') {
      TarMember m;
      std::string prefix = h.substr(257, 5) == "ustar" ? text(h.substr(345, 155)) : "";
      m.name = prefix.empty() ? text(h.substr(0, 100)) : cat(prefix, "/", text(h.substr(0, 100)));
      if (!long_name.empty()) m.name = text(long_name);
      if (std::string p = pax_value(pax, "path"); !p.empty()) m.name = p;
      m.offset = content;
      m.size = size;
      out.push_back(std::move(m));
      long_name.clear();
      pax.clear();
    } else if (type != 'g') {
      long_name.clear();
      pax.clear();
    }
    at = content + (size + kBlock - 1) / kBlock * kBlock;
  }
  return out;
}

std::string tar_entry(std::string_view name, std::string_view content) {
  std::string out;
  auto header = [&](std::string_view entry_name, char type, size_t size) {
    std::string h(static_cast<size_t>(kBlock), '\0');
    auto put = [&](size_t at, std::string_view s) {
      std::copy(s.begin(), s.end(), h.begin() + static_cast<ptrdiff_t>(at));
    };
    put(0, entry_name.substr(0, 100));
    put(100, "0000644");
    put(108, "0000000");
    put(116, "0000000");
    char digits[13];
    std::snprintf(digits, sizeof digits, "%011llo", static_cast<unsigned long long>(size));
    put(124, digits);
    put(136, "00000000000");
    put(148, "        ");
    h[156] = type;
    put(257, std::string_view("ustar\00000", 8));
    unsigned sum = 0;
    for (char c : h) sum += static_cast<uint8_t>(c);
    std::snprintf(digits, sizeof digits, "%06o", sum);
    put(148, std::string_view(digits, 6));
    h[154] = '\0';
    out += h;
  };
  auto padded = [&](std::string_view s) {
    out += s;
    out.resize((out.size() + 511) / 512 * 512, '\0');
  };
  if (name.size() > 100) {
    header("././@LongLink", 'L', name.size() + 1);
    padded(std::string(name) + '\0');
  }
  header(name, '0', content.size());
  padded(content);
  return out;
}

}  // namespace pelton::data
