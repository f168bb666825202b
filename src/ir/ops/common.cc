// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/common.h"

#include <algorithm>
#include <cstring>

namespace pelton::ir {

Dims broadcast_dims(const std::vector<Dims>& operands) {
  size_t rank = 0;
  for (const Dims& d : operands) rank = std::max(rank, d.size());
  Dims out(rank, 1);
  for (const Dims& d : operands)
    for (size_t i = 0; i < d.size(); ++i) {
      int64_t& o = out[rank - d.size() + i];
      if (o == 1)
        o = d[i];
      else if (d[i] != 1 && d[i] != o)
        fail(ErrorCode::bad_shape, cat("sizes ", o, " and ", d[i], " do not broadcast"));
    }
  return out;
}

void copy_element(Tensor& to, int64_t to_index, const Tensor& from, int64_t from_index) {
  DType t = from.dtype();
  if (t == DType::string) {
    to.mutable_strings()[static_cast<size_t>(to_index)] = from.strings()[static_cast<size_t>(from_index)];
  } else if (is_sub_byte(t)) {
    auto source = static_cast<const uint8_t*>(from.data());
    auto target = static_cast<uint8_t*>(to.mutable_data());
    int width = bits(t);
    unsigned mask = (1u << width) - 1;
    unsigned v = (source[from_index * width / 8] >> (from_index * width % 8)) & mask;
    unsigned shift = static_cast<unsigned>(to_index * width % 8);
    uint8_t& byte = target[to_index * width / 8];
    byte = static_cast<uint8_t>((byte & ~(mask << shift)) | (v << shift));
  } else {
    auto size = static_cast<size_t>(bits(t) / 8);
    std::memcpy(static_cast<char*>(to.mutable_data()) + static_cast<size_t>(to_index) * size,
                static_cast<const char*>(from.data()) + static_cast<size_t>(from_index) * size, size);
  }
}

bool supports_float(DType t) {
  return t == DType::f64 || t == DType::f32 || t == DType::f16 || t == DType::bf16;
}
bool supports_number(DType t) {
  return supports_float(t) || (t >= DType::i64 && t <= DType::u8);
}

}  // namespace pelton::ir
