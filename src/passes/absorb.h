// SPDX-License-Identifier: Apache-2.0
// Quantisation absorbed: a convolution or product between dequantize nodes works on the integers themselves,
// and what only moves or picks values works on the bytes.
#pragma once

#include "passes/pass.h"

namespace pelton::passes {

bool absorb(ir::Graph& graph, const Context& context);

}  // namespace pelton::passes
