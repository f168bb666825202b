// SPDX-License-Identifier: Apache-2.0
#include "serve/core/wire_type.h"

#include <cstring>

namespace pelton::serve {
namespace {

struct Row {
  DType dtype;
  std::string_view config;
  std::string_view wire() const { return dtype == DType::string ? "BYTES" : config.substr(5); }
};
constexpr Row kRows[] = {
    {DType::boolean, "TYPE_BOOL"},  {DType::u8, "TYPE_UINT8"},   {DType::u16, "TYPE_UINT16"},
    {DType::u32, "TYPE_UINT32"},    {DType::u64, "TYPE_UINT64"}, {DType::i8, "TYPE_INT8"},
    {DType::i16, "TYPE_INT16"},     {DType::i32, "TYPE_INT32"},  {DType::i64, "TYPE_INT64"},
    {DType::f16, "TYPE_FP16"},      {DType::f32, "TYPE_FP32"},   {DType::f64, "TYPE_FP64"},
    {DType::string, "TYPE_STRING"}, {DType::bf16, "TYPE_BF16"},
};

uint32_t length_at(const unsigned char* p) {
  return uint32_t{p[0]} | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24;
}

}  // namespace

std::string_view wire_name(DType t) {
  for (const Row& r : kRows)
    if (r.dtype == t) return r.wire();
  return {};
}
std::optional<DType> dtype_from_wire(std::string_view name) {
  for (const Row& r : kRows)
    if (r.wire() == name) return r.dtype;
  return std::nullopt;
}
std::string_view config_type_name(DType t) {
  for (const Row& r : kRows)
    if (r.dtype == t) return r.config;
  return {};
}
std::optional<DType> dtype_from_config(std::string_view name) {
  for (const Row& r : kRows)
    if (r.config == name) return r.dtype;
  return std::nullopt;
}

std::optional<int64_t> checked_count(const Dims& dims) {
  int64_t n = 1;
  bool zero = false;
  for (int64_t d : dims) {
    if (d < 0) return std::nullopt;
    if (d == 0)
      zero = true;
    else if (__builtin_mul_overflow(n, d, &n))
      return std::nullopt;
  }
  return zero ? 0 : n;
}

std::optional<int64_t> bytes_elements(const void* data, size_t size) {
  const auto* p = static_cast<const unsigned char*>(data);
  int64_t n = 0;
  for (size_t at = 0; at < size; ++n) {
    if (size - at < 4) return std::nullopt;
    size_t length = length_at(p + at);
    at += 4;
    if (size - at < length) return std::nullopt;
    at += length;
  }
  return n;
}

std::vector<std::string_view> split_bytes(const void* data, size_t size) {
  std::vector<std::string_view> out;
  const auto* p = static_cast<const unsigned char*>(data);
  for (size_t at = 0; at + 4 <= size;) {
    size_t length = length_at(p + at);
    at += 4;
    if (length > size - at) break;
    out.emplace_back(reinterpret_cast<const char*>(p + at), length);
    at += length;
  }
  return out;
}

void append_bytes_element(std::string& out, std::string_view element) {
  const auto n = static_cast<uint32_t>(element.size());
  const char prefix[4] = {static_cast<char>(n), static_cast<char>(n >> 8), static_cast<char>(n >> 16),
                          static_cast<char>(n >> 24)};
  out.append(prefix, 4);
  out.append(element);
}

}  // namespace pelton::serve
