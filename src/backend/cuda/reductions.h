// SPDX-License-Identifier: Apache-2.0
// How generated kernels share out reductions: along which way memory runs, and in two steps where there are
// too few rows to give the GPU work.
#pragma once

#include <optional>
#include <vector>

#include "codegen/kernel.h"
#include "ir/graph.h"

namespace pelton::backend::cuda {

// Whether what the reductions of a kernel read lies with neighbouring rows, not a row's elements, side by
// side.
bool reads_columns(const codegen::Kernel& kernel, const SymbolValues& sizes);

// Rows and elements a row of the reductions of a graph; none if it has none or of different ones.
struct RowSizes {
  int64_t rows = 0, length = 0;
};
std::optional<RowSizes> row_sizes(const ir::Graph& graph);

// The graph as two: `first` yields sums (products, extremes) of `parts` stretches of each row, [parts, rows]
// one a reduction; `second` takes these, then inputs of the graph, and yields its results.
struct SplitReduction {
  ir::Graph first{"first"}, second{"second"};
  std::vector<size_t> first_inputs, second_inputs;  // indices in the graph's inputs; second: after the parts
};
// None if the graph does something else between reductions, or its sizes are not known.
std::optional<SplitReduction> split_reduction(const ir::Graph& graph, int64_t parts);
// The largest number of stretches up to `most` that divides a row.
int64_t even_parts(int64_t length, int64_t most);

}  // namespace pelton::backend::cuda
