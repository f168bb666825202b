// SPDX-License-Identifier: Apache-2.0
// A group as others that differ in sizes and numbers alone have it too: sizes are symbols, to be given at
// launch, and its constants are inputs. The kernel of it takes more instructions than that of the group at
// its own sizes, but one text serves many groups.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace pelton::codegen {

struct SharedForm {
  ir::Graph graph;  // inputs: those of the group, then one for each of the constants
  std::vector<Tensor> constants;
  SymbolValues sizes;  // of the graph's symbols
};

// `symbols`: the sizes of the group's own symbols. None where its ops need to know the sizes or the
// constants.
std::optional<SharedForm> shared_form(const ir::Graph& group, const SymbolValues& symbols);

}  // namespace pelton::codegen
