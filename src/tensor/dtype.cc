// SPDX-License-Identifier: Apache-2.0
#include "tensor/dtype.h"

#include <array>
#include <limits>

namespace pelton {
namespace {

enum class Kind : uint8_t { floating, signed_int, unsigned_int, boolean, string };
struct Row {
  std::string_view name;
  int bits;
  Kind kind;
  double lowest, highest;
};
using D = std::numeric_limits<double>;
using F = std::numeric_limits<float>;
constexpr std::array<Row, kDTypeCount> kRows = {{
    {"f64", 64, Kind::floating, D::lowest(), D::max()},
    {"f32", 32, Kind::floating, F::lowest(), F::max()},
    {"f16", 16, Kind::floating, -65504.0, 65504.0},
    {"bf16", 16, Kind::floating, -3.3895313892515355e38, 3.3895313892515355e38},
    {"i64", 64, Kind::signed_int, -9223372036854775808.0, 9223372036854775807.0},
    {"i32", 32, Kind::signed_int, -2147483648.0, 2147483647.0},
    {"i16", 16, Kind::signed_int, -32768.0, 32767.0},
    {"i8", 8, Kind::signed_int, -128.0, 127.0},
    {"u64", 64, Kind::unsigned_int, 0.0, 18446744073709551615.0},
    {"u32", 32, Kind::unsigned_int, 0.0, 4294967295.0},
    {"u16", 16, Kind::unsigned_int, 0.0, 65535.0},
    {"u8", 8, Kind::unsigned_int, 0.0, 255.0},
    {"bool", 8, Kind::boolean, 0.0, 1.0},
    {"f8e4m3fn", 8, Kind::floating, -448.0, 448.0},
    {"f8e5m2", 8, Kind::floating, -57344.0, 57344.0},
    {"f8e4m3fnuz", 8, Kind::floating, -240.0, 240.0},
    {"f8e5m2fnuz", 8, Kind::floating, -57344.0, 57344.0},
    {"f8e8m0", 8, Kind::floating, 5.877471754111438e-39, 1.7014118346046923e38},
    {"f4e2m1", 4, Kind::floating, -6.0, 6.0},
    {"i4", 4, Kind::signed_int, -8.0, 7.0},
    {"u4", 4, Kind::unsigned_int, 0.0, 15.0},
    {"i2", 2, Kind::signed_int, -2.0, 1.0},
    {"u2", 2, Kind::unsigned_int, 0.0, 3.0},
    {"string", 0, Kind::string, 0.0, 0.0},
}};
const Row& row(DType t) {
  return kRows[static_cast<size_t>(t)];
}

}  // namespace

std::string_view name(DType t) {
  return row(t).name;
}
std::optional<DType> dtype_from_name(std::string_view text) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (kRows[i].name == text) return static_cast<DType>(i);
  return std::nullopt;
}
int bits(DType t) {
  return row(t).bits;
}
bool is_float(DType t) {
  return row(t).kind == Kind::floating;
}
bool is_signed_int(DType t) {
  return row(t).kind == Kind::signed_int;
}
bool is_unsigned_int(DType t) {
  return row(t).kind == Kind::unsigned_int;
}
bool is_compute(DType t) {
  return t <= DType::boolean;
}
double lowest(DType t) {
  return row(t).lowest;
}
double highest(DType t) {
  return row(t).highest;
}

int64_t byte_size(DType t, int64_t count) {
  if (t == DType::string) fail(ErrorCode::bad_type, "string tensors have no byte size");
  int64_t total_bits;
  if (count < 0 || __builtin_mul_overflow(count, int64_t{bits(t)}, &total_bits) ||
      total_bits > std::numeric_limits<int64_t>::max() - 7)
    fail(ErrorCode::limit, cat("a tensor of ", count, " ", name(t), " elements is too large"));
  return (total_bits + 7) / 8;
}

}  // namespace pelton
