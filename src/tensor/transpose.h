// SPDX-License-Identifier: Apache-2.0
// Matrices whose rows become columns, in elements of whole bytes.
#pragma once

#include "tensor/tensor.h"

namespace pelton {

// Of a [rows, columns] matrix.
Tensor transposed(const Tensor& matrix);
// Whether b is transposed(a), bit by bit; false for what are no matrices of one type.
bool is_transpose(const Tensor& a, const Tensor& b);

}  // namespace pelton
