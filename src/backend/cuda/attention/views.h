// SPDX-License-Identifier: Apache-2.0
// Operands of a group that are views of its inputs: a chain of slice, reshape and transpose that a kernel can
// read by strides.
#pragma once

#include "backend/kernel.h"

namespace pelton::backend::cuda {

// The nodes between an input of `body` and v; `input` is -1 if v is no such view.
struct ViewChain {
  int input = -1;
  std::vector<ir::NodeId> nodes;  // from the input on
  std::string reason;             // why not
};
ViewChain view_chain(const ir::Graph& body, ir::ValueId v);

struct StridedView {
  Dims dims, strides;  // in elements
  int64_t offset = 0;
};
// At exact sizes, over an input that lies plain with these dims.
StridedView strided_view(const ir::Graph& body, const ViewChain& chain, const Dims& input_dims,
                         const SymbolValues& symbols);

}  // namespace pelton::backend::cuda
