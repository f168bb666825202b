// SPDX-License-Identifier: Apache-2.0
// The straightforward evaluation that kernels are held against: contractions, means and sums in the tensors'
// own precision and in order, all else by the interpreter.
#pragma once

#include <optional>
#include <vector>

#include "ir/eval.h"
#include "ir/graph.h"

namespace pelton::test {

// f(number, index) for every index of a tensor of these dims, in row-major order.
template <class F>
void each_index(const Dims& dims, F f) {
  Dims index(dims.size(), 0);
  for (int64_t i = 0, n = element_count(dims); i < n; ++i) {
    f(i, index);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++index[d] < dims[d]) break;
      index[d] = 0;
    }
  }
}

// Of floats below 64 bits; none for nodes that the interpreter computes just so.
std::optional<Tensor> naive(const ir::Graph& g, ir::NodeId id, const std::vector<ir::HostValue>& in,
                            const SymbolValues& symbols);

// Node by node in the graph's own types, composites through their decomposition.
std::vector<Tensor> step_by_step(const ir::Graph& g, const std::vector<Tensor>& inputs);

}  // namespace pelton::test
