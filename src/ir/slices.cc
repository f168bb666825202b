// SPDX-License-Identifier: Apache-2.0
#include "ir/slices.h"

#include "ir/op.h"
#include "ir/ops/shape_eval.h"

namespace pelton::ir {

void require_slices(const Graph& graph, NodeId id, const SymbolValues& sizes) {
  const Node& n = graph[id];
  if (n.is("slice")) {
    with_place(graph.describe(id), [&] {
      require_slice(eval(graph.type(n.inputs[0]).shape, sizes), n.get_ints("axes"),
                    eval(n.get_dims("starts"), sizes), eval(n.get_dims("sizes"), sizes), n.get_ints("steps"));
    });
  } else if (n.is("fused")) {
    const Graph& body = n.get_graph("body");
    for (NodeId inner : body.order()) require_slices(body, inner, sizes);
  }
}

}  // namespace pelton::ir
