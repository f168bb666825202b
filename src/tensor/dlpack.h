// SPDX-License-Identifier: Apache-2.0
// Element types as DLPack numbers them.
#pragma once

#include <optional>

#include "tensor/dtype.h"

namespace pelton {

// False, and 0 bits, for types that DLPack does not have.
bool to_dlpack(DType t, uint8_t* code, uint8_t* bits);
std::optional<DType> from_dlpack(uint8_t code, uint8_t bits);

}  // namespace pelton
