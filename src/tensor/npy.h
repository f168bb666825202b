// SPDX-License-Identifier: Apache-2.0
// NumPy .npy arrays and .npz archives (zip, stored or deflated). Pickled objects are refused, never
// unpickled.
//
// Types without a NumPy counterpart travel by bit pattern: bf16 as '<V2' (what ml_dtypes writes), 8-bit
// floats as
// '|V1', and sub-byte types unpacked, one element a byte (i4, i2 as '|i1', u4, u2 as '|u1', f4e2m1 as '|V1').
// Reading takes the expected type to tell them apart. Complex arrays gain a last dimension of 2.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/tensor.h"

namespace pelton {

// Borrows from `bytes` when the elements can be used in place and owner is given. '>' types are swapped,
// Fortran order is transposed. bad_format names what is wrong; sizes are checked against the file before
// allocation.
Tensor parse_npy(std::string_view bytes, std::shared_ptr<const void> owner = {},
                 std::optional<DType> expected = {});
std::string format_npy(const Tensor& tensor);

// Members by name without their .npy suffix.
std::map<std::string, Tensor> parse_npz(std::string_view bytes, std::shared_ptr<const void> owner = {});

Tensor load_npy(const std::string& path, std::optional<DType> expected = {});
void save_npy(const std::string& path, const Tensor& tensor);
std::map<std::string, Tensor> load_npz(const std::string& path);
// Members stored, not deflated; the file is replaced atomically.
void save_npz(const std::string& path, const std::map<std::string, Tensor>& tensors);

}  // namespace pelton
