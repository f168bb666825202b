// SPDX-License-Identifier: Apache-2.0
// quantize, dequantize, requantize and dynamic_quantize in primitives, as kernels compute them: in f32, each
// quotient and product rounded once, then half to even, the zero point, saturation.
#pragma once

#include "ir/graph.h"

namespace pelton::codegen {

// Replaces the node; false where it is another op, or a form that is not made of f32 arithmetic (blocks, f64,
// 8-bit floats, integers of fewer than 8 bits).
bool expand_quantization(ir::Graph& graph, ir::NodeId node);

}  // namespace pelton::codegen
