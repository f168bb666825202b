// SPDX-License-Identifier: Apache-2.0
// The element types of ONNX by number.
#include <array>

#include "tensor/tensor_pb.h"

namespace pelton {

namespace {

struct OnnxType {
  int64_t number;
  std::string_view name;
  std::optional<DType> dtype;
};

constexpr std::array<OnnxType, 29> kTypes = {{
    {0, "undefined", {}},
    {1, "float32", DType::f32},
    {2, "uint8", DType::u8},
    {3, "int8", DType::i8},
    {4, "uint16", DType::u16},
    {5, "int16", DType::i16},
    {6, "int32", DType::i32},
    {7, "int64", DType::i64},
    {8, "string", DType::string},
    {9, "bool", DType::boolean},
    {10, "float16", DType::f16},
    {11, "float64", DType::f64},
    {12, "uint32", DType::u32},
    {13, "uint64", DType::u64},
    {14, "complex64", DType::f32},
    {15, "complex128", DType::f64},
    {16, "bfloat16", DType::bf16},
    {17, "float8e4m3fn", DType::f8e4m3fn},
    {18, "float8e4m3fnuz", DType::f8e4m3fnuz},
    {19, "float8e5m2", DType::f8e5m2},
    {20, "float8e5m2fnuz", DType::f8e5m2fnuz},
    {21, "uint4", DType::u4},
    {22, "int4", DType::i4},
    {23, "float4e2m1", DType::f4e2m1},
    {24, "float8e8m0", DType::f8e8m0},
    {25, "uint2", DType::u2},
    {26, "int2", DType::i2},
    {27, "float6e2m3", {}},
    {28, "float6e3m2", {}},
}};

}  // namespace

std::optional<DType> dtype_from_onnx(int64_t data_type) {
  if (data_type < 0 || data_type >= static_cast<int64_t>(kTypes.size())) return {};
  return kTypes[static_cast<size_t>(data_type)].dtype;
}

int onnx_from_dtype(DType t) {
  for (const OnnxType& row : kTypes)
    if (row.dtype == t) return static_cast<int>(row.number);
  PELTON_CHECK(false, name(t));
  return 0;
}

bool onnx_is_complex(int64_t data_type) {
  return data_type == 14 || data_type == 15;
}

std::string onnx_type_name(int64_t data_type) {
  if (data_type < 0 || data_type >= static_cast<int64_t>(kTypes.size())) return cat("type ", data_type);
  return std::string(kTypes[static_cast<size_t>(data_type)].name);
}

}  // namespace pelton
