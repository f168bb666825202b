// SPDX-License-Identifier: Apache-2.0
#include "interp/stack.h"

#include <cstring>

namespace pelton::interp {
namespace {

// Bytes of one index of `axis` (with all axes behind it), and how often the axes in front repeat it.
struct Blocks {
  size_t bytes;
  int64_t count;
};
Blocks blocks(const Tensor& t, int64_t axis) {
  PELTON_CHECK(t.dtype() != DType::string && bits(t.dtype()) >= 8, t.str());
  Blocks b{static_cast<size_t>(bits(t.dtype()) / 8), 1};
  for (int64_t d = 0; d < t.rank(); ++d)
    if (d < axis)
      b.count *= t.dims()[static_cast<size_t>(d)];
    else
      b.bytes *= static_cast<size_t>(t.dims()[static_cast<size_t>(d)]);
  return b;
}

}  // namespace

Tensor slice_of(const Tensor& x, int64_t axis, int64_t index) {
  Dims dims = x.dims();
  dims.erase(dims.begin() + axis);
  Tensor out(x.dtype(), dims);
  const Blocks to = blocks(out, axis);
  const int64_t length = x.dims()[static_cast<size_t>(axis)];
  for (int64_t o = 0; o < to.count; ++o)
    std::memcpy(static_cast<std::byte*>(out.mutable_data()) + static_cast<size_t>(o) * to.bytes,
                static_cast<const std::byte*>(x.data()) + static_cast<size_t>(o * length + index) * to.bytes,
                to.bytes);
  return out;
}

Tensor stacked(const std::vector<Tensor>& parts, int64_t axis, bool backwards) {
  Dims dims = parts[0].dims();
  const auto count = static_cast<int64_t>(parts.size());
  dims.insert(dims.begin() + axis, count);
  Tensor out(parts[0].dtype(), dims);
  const Blocks from = blocks(parts[0], axis);
  for (int64_t p = 0; p < count; ++p) {
    const Tensor& part = parts[static_cast<size_t>(backwards ? count - 1 - p : p)];
    PELTON_CHECK(part.dims() == parts[0].dims() && part.dtype() == out.dtype(), part.str());
    for (int64_t o = 0; o < from.count; ++o)
      std::memcpy(
          static_cast<std::byte*>(out.mutable_data()) + static_cast<size_t>(o * count + p) * from.bytes,
          static_cast<const std::byte*>(part.data()) + static_cast<size_t>(o) * from.bytes, from.bytes);
  }
  return out;
}

}  // namespace pelton::interp
