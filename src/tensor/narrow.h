// SPDX-License-Identifier: Apache-2.0
// Whole tensors of f32 in 16 bits, on all threads.
#pragma once

#include "tensor/tensor.h"

namespace pelton {

// To f16 or bf16, each element rounded to nearest, ties to even.
Tensor narrowed(const Tensor& f32, DType to);
// Whether no finite element of it becomes infinite.
bool fits_in(const Tensor& f32, DType to);

}  // namespace pelton
