// SPDX-License-Identifier: Apache-2.0
#include "runtime/packed_order.h"

#include <charconv>
#include <cstring>
#include <optional>
#include <vector>

#include "base/error.h"
#include "tensor/dim.h"

namespace pelton::runtime {
namespace {

// Blocked data: the place of an element is a sum over the axes, of what is left of its index after the inner
// blocks times the stride, and of its place in the inner blocks, which lie dense, the last one innermost.
struct Order {
  int64_t type = 0;
  Dims dims, strides;
  struct Block {
    int64_t size;
    size_t axis;
  };
  std::vector<Block> blocks;

  int64_t count() const { return element_count(dims); }
  // By axis and index: its part of the place of an element.
  std::vector<std::vector<int64_t>> parts() const {
    std::vector<std::vector<int64_t>> out(dims.size());
    for (size_t axis = 0; axis < dims.size(); ++axis)
      for (int64_t i = 0; i < dims[axis]; ++i) {
        int64_t rest = i, place = 0, dense = 1;
        for (size_t b = blocks.size(); b-- > 0; dense *= blocks[b].size) {
          if (blocks[b].axis != axis) continue;
          place += rest % blocks[b].size * dense;
          rest /= blocks[b].size;
        }
        out[axis].push_back(place + rest * strides[axis]);
      }
    return out;
  }
};

class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}
  bool take(std::string_view word) {
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  bool number(int64_t& value) {
    const auto r = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (r.ec != std::errc() || value < 0 || value > (int64_t{1} << 40)) return false;
    rest_.remove_prefix(static_cast<size_t>(r.ptr - rest_.data()));
    return true;
  }
  bool numbers(Dims& out) {
    if (!take("[")) return false;
    do {
      int64_t v = 0;
      if (!number(v)) return false;
      out.push_back(v);
    } while (take(",") && (take(" ") || true));
    return take("]") && out.size() <= 12;
  }
  bool order(Order& out) {
    if (!take(" ") || !number(out.type) || !numbers(out.dims) || !numbers(out.strides) ||
        out.dims.size() != out.strides.size())
      return false;
    for (Reader ahead = *this; ahead.take(" ");) {
      int64_t size = 0, axis = 0;
      if (!ahead.number(size) || !ahead.take("of")) break;
      if (!ahead.number(axis) || size < 1 || axis >= static_cast<int64_t>(out.dims.size())) return false;
      out.blocks.push_back({size, static_cast<size_t>(axis)});
      *this = ahead;
    }
    return true;
  }
  bool ended() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

struct Orders {
  Order plain, packed;
  size_t element_bytes = 0;
};

// oneDNN's numbers of types in plan files: f16 1, bf16 2, f32 3, s32 4, s8 5, u8 6.
size_t bytes_of_type(int64_t type) {
  return type == 1 || type == 2 ? 2 : type == 3 || type == 4 ? 4 : type == 5 || type == 6 ? 1 : 0;
}

std::optional<Orders> orders_of(std::string_view name) {
  Orders o;
  Reader reader(name);
  int64_t version = 0;
  if (!reader.take("onednn ") || !reader.number(version) || !reader.take(".") || !reader.number(version) ||
      !reader.order(o.plain) || !reader.order(o.packed) || !reader.ended())
    return std::nullopt;
  o.element_bytes = bytes_of_type(o.plain.type);
  if (o.plain.type != o.packed.type || !o.element_bytes || o.plain.dims.size() != o.packed.dims.size())
    return std::nullopt;
  for (size_t a = 0; a < o.plain.dims.size(); ++a)
    if (o.packed.dims[a] < o.plain.dims[a]) return std::nullopt;
  return o;
}

// Whether every place lies inside `count` elements.
bool fits(const Order& order, const Dims& dims, int64_t count) {
  int64_t last = 0;
  const auto parts = order.parts();
  for (size_t a = 0; a < dims.size(); ++a) {
    int64_t most = 0;
    for (int64_t i = 0; i < dims[a]; ++i) most = std::max(most, parts[a][static_cast<size_t>(i)]);
    last += most;
    if (last >= count) return false;
  }
  return true;
}

}  // namespace

bool is_invertible(std::string_view order, size_t packed_bytes, size_t plain_bytes) {
  const auto o = orders_of(order);
  if (!o) return false;
  const auto plain = static_cast<int64_t>(plain_bytes / o->element_bytes),
             packed = static_cast<int64_t>(packed_bytes / o->element_bytes);
  for (const Order* one : {&o->plain, &o->packed})
    for (int64_t d : one->dims)
      if (d > packed) return false;
  return o->plain.count() == plain && plain_bytes % o->element_bytes == 0 &&
         fits(o->plain, o->plain.dims, plain) && fits(o->packed, o->plain.dims, packed);
}

void unpack(std::string_view order, std::span<const std::byte> packed, std::byte* plain) {
  const auto o = orders_of(order);
  PELTON_CHECK(o, "the order '", order, "' cannot be undone");
  const auto from = o->packed.parts(), to = o->plain.parts();
  const Dims& dims = o->plain.dims;
  const size_t bytes = o->element_bytes, last = dims.size() - 1;
  if (element_count(dims) == 0) return;
  Dims at(dims.size(), 0);
  while (true) {
    int64_t source = 0, target = 0;
    for (size_t a = 0; a < last; ++a) {
      source += from[a][static_cast<size_t>(at[a])];
      target += to[a][static_cast<size_t>(at[a])];
    }
    for (size_t i = 0; i < static_cast<size_t>(dims[last]); ++i)
      std::memcpy(plain + static_cast<size_t>(target + to[last][i]) * bytes,
                  packed.data() + static_cast<size_t>(source + from[last][i]) * bytes, bytes);
    size_t a = last;
    while (a > 0 && ++at[a - 1] == dims[a - 1]) at[--a] = 0;
    if (a == 0) return;
  }
}

}  // namespace pelton::runtime
