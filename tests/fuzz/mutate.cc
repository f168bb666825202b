// SPDX-License-Identifier: Apache-2.0
#include "fuzz/mutate.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

namespace pelton::fuzz {
namespace {

constexpr uint64_t kInteresting[] = {0,          1,          2,          7,          16,
                                     64,         127,        255,        256,        65535,
                                     1u << 20,   0x7FFFFFFF, 1u << 31,   0xFFFFFFFF, 1ull << 32,
                                     1ull << 62, INT64_MAX,  1ull << 63, UINT64_MAX, UINT64_MAX - 1};

enum Wire : uint8_t { varint = 0, fixed64 = 1, length = 2, fixed32 = 5 };

struct Field {
  uint64_t number = 0;
  Wire wire = varint;
  uint64_t value = 0;         // varint
  std::string bytes;          // fixed32, fixed64, and length without inner fields
  std::vector<Field> fields;  // of a nested message
};

std::optional<uint64_t> take_varint(std::string_view& s) {
  uint64_t v = 0;
  for (int shift = 0; shift < 64 && !s.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(s[0]);
    s.remove_prefix(1);
    v |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return v;
  }
  return std::nullopt;
}

std::optional<std::vector<Field>> parse(std::string_view s, int depth) {
  std::vector<Field> out;
  while (!s.empty()) {
    auto tag = take_varint(s);
    if (!tag || *tag >> 3 == 0 || *tag >> 3 > 1000) return std::nullopt;
    Field f;
    f.number = *tag >> 3;
    f.wire = static_cast<Wire>(*tag & 7);
    size_t size = f.wire == fixed32 ? 4 : 8;
    if (f.wire == varint) {
      auto v = take_varint(s);
      if (!v) return std::nullopt;
      f.value = *v;
    } else if (f.wire == length || f.wire == fixed32 || f.wire == fixed64) {
      if (f.wire == length) {
        auto n = take_varint(s);
        if (!n) return std::nullopt;
        size = *n;
      }
      if (size > s.size()) return std::nullopt;
      f.bytes = s.substr(0, size);
      s.remove_prefix(size);
      if (f.wire == length && size > 1 && depth < 40)
        if (auto inner = parse(f.bytes, depth + 1)) f.fields = std::move(*inner);
    } else {
      return std::nullopt;
    }
    out.push_back(std::move(f));
  }
  return out;
}

void put_varint(std::string& out, uint64_t v) {
  for (; v > 0x7F; v >>= 7) out.push_back(static_cast<char>(v | 0x80));
  out.push_back(static_cast<char>(v));
}

std::string write(const std::vector<Field>& fields) {
  std::string out;
  for (const Field& f : fields) {
    put_varint(out, f.number << 3 | f.wire);
    if (f.wire == varint) {
      put_varint(out, f.value);
      continue;
    }
    const std::string content = f.fields.empty() ? f.bytes : write(f.fields);
    if (f.wire == length) put_varint(out, content.size());
    out += content;
  }
  return out;
}

void collect(std::vector<Field>& fields, std::vector<std::vector<Field>*>& lists) {
  if (fields.empty()) return;
  lists.push_back(&fields);
  for (Field& f : fields) collect(f.fields, lists);
}

}  // namespace

void Mutator::bytes(std::string& data, std::string_view other) {
  for (uint64_t n = 1 + below(4); n > 0; --n) {
    if (data.empty()) {
      data.push_back(static_cast<char>(below(256)));
      continue;
    }
    const size_t at = below(data.size()), run = 1 + below(std::min<size_t>(64, data.size() - at));
    switch (below(7)) {
      case 0:
        data[at] = static_cast<char>(data[at] ^ (1 << below(8)));
        break;
      case 1:
        data[at] = static_cast<char>(below(256));
        break;
      case 2: {
        const uint64_t v = kInteresting[below(std::size(kInteresting))];
        std::memcpy(&data[at], &v, std::min<size_t>(size_t{1} << below(4), data.size() - at));
        break;
      }
      case 3:
        data.erase(at, run);
        break;
      case 4:
        data.insert(at, data.substr(at, run));
        break;
      case 5:
        data.insert(at, std::string(1 + below(8), static_cast<char>(below(256))));
        break;
      default:
        if (!other.empty()) {
          const size_t from = below(other.size());
          data.replace(at, run, other.substr(from, 1 + below(256)));
        }
    }
  }
}

void Mutator::message(std::string& data) {
  auto root = parse(data, 0);
  if (!root || root->empty()) return bytes(data);
  for (uint64_t n = 1 + below(3); n > 0 && !root->empty(); --n) {
    std::vector<std::vector<Field>*> lists;
    collect(*root, lists);
    std::vector<Field>& list = *lists[below(lists.size())];
    const size_t at = below(list.size());
    const auto place = list.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(8)) {
      case 0:
        list.erase(place);
        break;
      case 1: {
        Field copy = list[at];
        list.insert(place, std::move(copy));
        break;
      }
      case 2:
        std::swap(list[at], list[below(list.size())]);
        break;
      case 3: {  // a field of another place
        const std::vector<Field>& from = *lists[below(lists.size())];
        Field copy = from[below(from.size())];
        if (below(2)) copy.number = list[at].number;
        list[at] = std::move(copy);
        break;
      }
      case 4:
        list[at].number = 1 + below(30);
        break;
      default: {
        Field& f = list[at];
        if (f.wire == varint) {
          f.value = below(3) ? kInteresting[below(std::size(kInteresting))] : f.value + below(5) - 2;
        } else {
          std::string content = f.fields.empty() ? f.bytes : write(f.fields);
          bytes(content);
          if (f.wire != length) content.resize(f.wire == fixed32 ? 4 : 8);
          f.fields.clear();
          f.bytes = std::move(content);
        }
      }
    }
  }
  data = write(*root);
}

}  // namespace pelton::fuzz
