// SPDX-License-Identifier: Apache-2.0
// 8-bit quantisation of chosen contractions: quantize and dequantize nodes around their operands, which the
// pass absorb then takes into integer arithmetic.
#pragma once

#include <map>
#include <vector>

#include "passes/pass.h"

namespace pelton::passes {

// Convolutions and products in f32 whose weights are constant, in graph order.
std::vector<ir::NodeId> quantizable(const ir::Graph& graph);

struct QuantizeRange {
  double low = 0, high = 0;  // 0 is inside
};
// `ranges`: of the data operand (input 0), by node index. Data without negative values becomes u8, data with
// few of them u8 with a zero point, other i8; weights become i8 with one scale an output channel.
bool quantize(ir::Graph& graph, const std::map<uint32_t, QuantizeRange>& ranges, const Context& context);

}  // namespace pelton::passes
