// SPDX-License-Identifier: Apache-2.0
// Comparing results with stored ones: type and shape exactly, numbers within |a - b| <= atol + rtol * |b|.
#pragma once

#include <string>

#include "ir/eval.h"
#include "tensor/tensor_pb.h"

namespace pelton::cli {

struct Tolerance {
  double rtol = 1e-3, atol = 1e-7;
};

// Empty if `got` agrees with `want`, else the first difference in words. NaN equals NaN; bf16 is given at
// least two units of its last place.
std::string difference(const Tensor& got, const Tensor& want, Tolerance tolerance);
std::string difference(const ir::HostValue& got, const PbValue& want, Tolerance tolerance);

ir::HostValue to_host(const PbValue& value);  // maps are refused

}  // namespace pelton::cli
