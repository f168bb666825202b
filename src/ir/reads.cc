// SPDX-License-Identifier: Apache-2.0
#include "ir/reads.h"

#include "ir/op.h"
#include "ir/ops/shape_eval.h"
#include "ir/ops/window.h"

namespace pelton::ir {
namespace {

void require_window(const Graph& graph, const Node& n, const SymbolValues& sizes) {
  const Shape& x = graph.type(n.inputs[0]).shape;
  const size_t spatial = x.size() - 2;
  Dims kernel = n.op->find_attr("kernel") ? n.get_ints("kernel") : Dims();
  if (kernel.empty()) {
    const Dims w = eval(graph.type(n.inputs[1]).shape, sizes);
    kernel.assign(w.begin() + 2, w.end());
  }
  const Window w = window_of(n, spatial);
  const ConcreteWindow window{kernel, w.strides, w.dilations, eval(w.low, sizes), eval(w.high, sizes)};
  for (size_t i = 0; i < spatial; ++i) window.out_size(i, x[i + 2].eval(sizes));
}

}  // namespace

void require_reads(const Graph& graph, NodeId id, const SymbolValues& sizes) {
  const Node& n = graph[id];
  if (n.is("slice")) {
    with_place(graph.describe(id), [&] {
      require_slice(eval(graph.type(n.inputs[0]).shape, sizes), n.get_ints("axes"),
                    eval(n.get_dims("starts"), sizes), eval(n.get_dims("sizes"), sizes), n.get_ints("steps"));
    });
  } else if (n.is("conv") || n.is("deform_conv") || n.is("im2col") || n.is("max_pool") || n.is("avg_pool") ||
             n.is("lp_pool")) {
    with_place(graph.describe(id), [&] { require_window(graph, n, sizes); });
  } else if (n.is("fused")) {
    const Graph& body = n.get_graph("body");
    for (NodeId inner : body.order()) require_reads(body, inner, sizes);
  }
}

}  // namespace pelton::ir
