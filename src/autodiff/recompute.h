// SPDX-License-Identifier: Apache-2.0
// Trades arithmetic for memory: values of the forward pass that the backward pass reads are computed again
// there instead of being kept, as many as a budget asks for.
#pragma once

#include <cstdint>

#include "ir/graph.h"

namespace pelton::autodiff {

struct Recomputation {
  int64_t kept_bytes_before = 0, kept_bytes = 0;  // forward results alive between the passes
  int64_t values = 0;                             // that are no longer kept
  double flops = 0;                               // done a second time
};

// `forward_nodes`: how many nodes the graph had, in its order, before the backward pass was appended. Values
// are chosen greedily, most bytes freed for an operation first, until the rest fits `budget_bytes` or nothing
// helps (then kept_bytes says what remains). Parameters, inputs and constants are kept anyhow and do not
// count; `first` is the place of the pass's first node: what stands before is there, too. `sizes` has a value
// for every symbol. Random nodes draw the same numbers again; control flow, custom ops and ops with effects
// never run twice.
Recomputation recompute(ir::Graph& graph, size_t forward_nodes, int64_t budget_bytes,
                        const SymbolValues& sizes = {}, size_t first = 0);

}  // namespace pelton::autodiff
