// SPDX-License-Identifier: Apache-2.0
// Quantised arithmetic that ai.onnx and com.microsoft share.
#pragma once

#include "onnx/import/node_context.h"

namespace pelton::onnx {

// A scale or zero point: one number becomes rank 0, more stay one an entry of `axis`.
ValueId quant_parameter(NodeContext& c, ValueId v);
ValueId dequantized(NodeContext& c, ValueId q, ValueId scale, ValueId zero, DType to = DType::f32,
                    int64_t axis = 1);
ValueId quantized(NodeContext& c, ValueId x, ValueId scale, ValueId zero, DType to, int64_t axis = 1);
// An i32 sum times a_scale * b_scale, brought to y_scale and y_zero with one rounding. b_scale may hold one
// entry for each index of `axis` of the sum.
ValueId requantized(NodeContext& c, ValueId sum, ValueId a_scale, ValueId b_scale, ValueId y_scale,
                    ValueId y_zero, int64_t axis);

}  // namespace pelton::onnx
