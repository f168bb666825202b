// SPDX-License-Identifier: Apache-2.0
// Where a batch is run slice by slice. Layers on large images write more than the cache holds; run over the
// whole batch, each finds its operand in memory again. A stretch of nodes that treats every item of the batch
// by itself runs all its nodes on a few items, then on the next few, so that what one node leaves is still in
// the cache when the next reads it, and the arena holds a slice of the values between them.
#pragma once

#include <string>

#include "ir/graph.h"

namespace pelton::runtime {

struct BatchSlices {
  uint32_t first = 0, last = 0;  // positions in the graph's order, half open; equal: nothing is sliced
  std::string symbol;            // the size of the batch
  int64_t rows = 0;              // of a slice
  int64_t count = 1;             // slices of a batch; rows * count is the batch
};

// Whether the node computes item i of every result from items i of its operands alone (and from operands
// without a batch). Items lie along axis 0, whose size is the bare symbol `batch`, and that size occurs
// nowhere else in the node's types.
bool maps_batch(const ir::Graph& graph, ir::NodeId node, const std::string& batch);

// The stretch of [first, last) that gains most by being run in slices at these sizes: bytes of operands and
// results that do not fit in the cache at once count for it, weights that each slice reads again against it.
// By position: whether a kernel runs the node, and whether nothing runs (views and constants).
BatchSlices choose_slices(const ir::Graph& graph, uint32_t first, uint32_t last, const SymbolValues& sizes,
                          const std::vector<bool>& has_kernel, const std::vector<bool>& is_nothing);

}  // namespace pelton::runtime
