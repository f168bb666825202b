// SPDX-License-Identifier: Apache-2.0
// Element types. Sub-byte types are packed from the low bits of each byte; `string` exists only at the edges
// (graph inputs and outputs, the interpreter).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace pelton {

enum class DType : uint8_t {
  f64,
  f32,
  f16,
  bf16,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean,
  f8e4m3fn,
  f8e5m2,
  f8e4m3fnuz,
  f8e5m2fnuz,
  f8e8m0,
  f4e2m1,
  i4,
  u4,
  i2,
  u2,
  string,
};
inline constexpr int kDTypeCount = 24;

std::string_view name(DType t);  // "f32", "bool", ...
std::optional<DType> dtype_from_name(std::string_view text);
inline void append(std::string& out, DType t) {
  append(out, name(t));
}

int bits(DType t);       // 1 element; 0 for string
bool is_float(DType t);  // every floating format, storage-only ones included
bool is_signed_int(DType t);
bool is_unsigned_int(DType t);
inline bool is_int(DType t) {
  return is_signed_int(t) || is_unsigned_int(t);
}
inline bool is_sub_byte(DType t) {
  return bits(t) > 0 && bits(t) < 8;
}
// Types that support arithmetic; the others are storage (cast, quantise, dequantise, movement).
bool is_compute(DType t);
// Bytes that `count` packed elements take (rounded up); string is refused.
int64_t byte_size(DType t, int64_t count);
double lowest(DType t);   // most negative finite value
double highest(DType t);  // largest finite value

}  // namespace pelton
