// SPDX-License-Identifier: Apache-2.0
// Nodes, parameters, arithmetic and bytes of a graph, added up.
#pragma once

#include <map>
#include <string>

#include "ir/graph.h"

namespace pelton::cli {

struct Totals {
  std::map<std::string, int64_t> ops;
  int64_t parameters = 0, parameter_bytes = 0, nodes = 0;
  double flops = 0, bytes = 0;
  std::string unsized;  // a symbol that keeps flops from being counted
};

// At these sizes of symbols.
Totals totals(const ir::Graph& graph, const SymbolValues& sizes);

// " at N=1, L=8": what was counted at, where inputs have open sizes.
std::string counted_at(const ir::Graph& graph, const SymbolValues& sizes);

}  // namespace pelton::cli
