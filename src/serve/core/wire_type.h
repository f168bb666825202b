// SPDX-License-Identifier: Apache-2.0
// Names of element types on the wire ("FP32") and in configurations ("TYPE_FP32"), and the BYTES layout:
// every element behind its length as 4 little-endian bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dim.h"
#include "tensor/dtype.h"

namespace pelton::serve {

std::string_view wire_name(DType t);  // "" for a type that the protocol lacks
std::optional<DType> dtype_from_wire(std::string_view name);
std::string_view config_type_name(DType t);  // "TYPE_FP32"
std::optional<DType> dtype_from_config(std::string_view name);

// Product of dims; nullopt on a negative size or overflow.
std::optional<int64_t> checked_count(const Dims& dims);
// Elements in a BYTES block, or nullopt if a length runs over the end.
std::optional<int64_t> bytes_elements(const void* data, size_t size);
std::vector<std::string_view> split_bytes(const void* data, size_t size);  // block already checked
void append_bytes_element(std::string& out, std::string_view element);

}  // namespace pelton::serve
