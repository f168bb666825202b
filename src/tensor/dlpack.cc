// SPDX-License-Identifier: Apache-2.0
#include "tensor/dlpack.h"

namespace pelton {
namespace {

struct Row {
  DType dtype;
  uint8_t code, bits;
};
constexpr Row kRows[] = {
    {DType::f64, 2, 64},    {DType::f32, 2, 32}, {DType::f16, 2, 16}, {DType::bf16, 4, 16},
    {DType::i64, 0, 64},    {DType::i32, 0, 32}, {DType::i16, 0, 16}, {DType::i8, 0, 8},
    {DType::u64, 1, 64},    {DType::u32, 1, 32}, {DType::u16, 1, 16}, {DType::u8, 1, 8},
    {DType::boolean, 6, 8},
};

}  // namespace

bool to_dlpack(DType t, uint8_t* code, uint8_t* bits) {
  for (const Row& r : kRows)
    if (r.dtype == t) {
      *code = r.code;
      *bits = r.bits;
      return true;
    }
  *code = *bits = 0;
  return false;
}

std::optional<DType> from_dlpack(uint8_t code, uint8_t bits) {
  for (const Row& r : kRows)
    if (r.code == code && r.bits == bits) return r.dtype;
  return std::nullopt;
}

}  // namespace pelton
