// SPDX-License-Identifier: Apache-2.0
// Scalars in CUDA C++ text: types, literals, conversions. What the functions named k_... mean stands in
// cuda_prelude.cc.
#pragma once

#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace pelton::codegen {

std::string_view storage_type(DType t);  // in a buffer
std::string_view scalar_type(DType t);   // while computing
bool is_word(char c);                    // may stand in a name of scalar code
// The text with `prefix` before every name that is called.
std::string with_prefix(std::string_view text, std::string_view prefix);

std::string number(DType t, double real, int64_t integer);  // a literal: `real` of floats, else `integer`
// Wraps a 64-bit value to an integer type, rounds an f32 one to a narrower type.
std::string to_type(DType t, const std::string& value);
std::string cast_text(DType from, DType to, const std::string& x);
std::string neutral(std::string_view op, DType t);  // what a reduction (sum, prod, max, min) starts from

}  // namespace pelton::codegen
