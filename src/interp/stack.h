// SPDX-License-Identifier: Apache-2.0
// Slices of tensors along an axis, and tensors joined on a new one: what loops and scans do with theirs.
#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace pelton::interp {

// Of types of whole bytes.
Tensor slice_of(const Tensor& x, int64_t axis, int64_t index);  // without that axis
// Parts of one type and shape, at least one; the last comes first if `backwards`.
Tensor stacked(const std::vector<Tensor>& parts, int64_t axis, bool backwards);

}  // namespace pelton::interp
