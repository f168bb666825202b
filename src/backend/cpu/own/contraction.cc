// SPDX-License-Identifier: Apache-2.0
// conv, conv_transpose and matmul on own loops, every compute type.
#include "backend/cpu/own/contraction.h"

#include "backend/cpu/fallback.h"
#include "backend/cpu/implementations.h"

namespace pelton::backend::cpu {
namespace {

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  return refuse_own_contraction(graph, node);
}

}  // namespace

std::string refuse_own_contraction(const ir::Graph& graph, ir::NodeId node) {
  const ir::Node& n = graph[node];
  for (size_t i = 0; i < 2; ++i) {
    const ir::Type& t = graph.type(n.inputs[i]);
    if (!is_compute(t.dtype)) return cat("does not compute in ", name(t.dtype));
    if (t.layout.kind == ir::Layout::Kind::blocked)
      return cat("needs a plain or channels-last layout, got ", t.layout.str());
    if (n.is("matmul") && !t.layout.is_plain()) return "needs plain operands";
    if (t.rank() > 9) return cat("takes up to 7 spatial dims, not ", t.rank() - 2);
  }
  if (graph.type(n.outputs[0]).layout.kind == ir::Layout::Kind::blocked)
    return "does not yield blocked tensors";
  return {};
}

std::unique_ptr<Kernel> prepare_own_contraction(const Instance& instance, const device::Target& target) {
  if (instance.node().is("matmul")) return make_own_matmul(instance, target);
  return make_own_conv(instance, target);
}

void add_own_contraction(Registry& registry) {
  registry.add({"cpu.contraction", {"conv", "conv_transpose", "matmul"}, refuse, prepare_own_contraction});
}

}  // namespace pelton::backend::cpu
