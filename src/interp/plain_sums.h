// SPDX-License-Identifier: Apache-2.0
// The accumulating ops once more, in the obvious loops of a chosen arithmetic: float for the error that a
// straightforward f32 evaluation has, long double for a truth beyond f64.
#pragma once

#include <optional>

#include "ir/eval.h"

namespace pelton::interp {

enum class Arithmetic : uint8_t { f32, f64, extended };
enum class Order : uint8_t { forward, backward };  // of the terms of a sum

// The result of one of matmul, conv, conv_transpose, reduce_sum, reduce_mean, reduce_prod, avg_pool, cumsum
// on float operands, rounded to `to`; none for any other op.
std::optional<Tensor> plain_sums(const ir::Graph& graph, ir::NodeId node,
                                 const std::vector<ir::HostValue>& inputs, const SymbolValues& symbols,
                                 DType to, Arithmetic arithmetic, Order order);

}  // namespace pelton::interp
