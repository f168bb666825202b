// SPDX-License-Identifier: Apache-2.0
// Tensors between their logical order and a physical layout, element by element.
#pragma once

#include "ir/type.h"
#include "tensor/tensor.h"

namespace pelton::ir {

// A tensor with the logical dims of `plain` whose bytes lie as `layout` says; it may not be read by element.
Tensor to_physical(const Tensor& plain, const Layout& layout);
// The reverse; only the bytes of `physical` count.
Tensor from_physical(const Tensor& physical, DType dtype, const Dims& dims, const Layout& layout);

}  // namespace pelton::ir
