// SPDX-License-Identifier: Apache-2.0
// reduce_sum over all axes but the one whose elements lie side by side, alone or between casts and reshapes:
// the gradient of a bias.
#include "backend/cuda/own/column_sum.h"

#include <algorithm>

#include "backend/cuda/implementations.h"
#include "backend/cuda/own/host.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

// The reduction, if the node is one or a chain of one with casts and reshapes of what it yields, and casts of
// what it takes.
const ir::Node* reduction_of(const ir::Graph& graph, ir::NodeId id) {
  const ir::Node& outer = graph[id];
  if (!outer.is("fused")) return &outer;
  const ir::Graph& body = outer.get_graph("body");
  if (body.inputs.size() != 1 || body.outputs.size() != 1) return nullptr;
  const ir::Node* found = nullptr;
  for (ir::NodeId n : body.order()) {
    const ir::Node& inner = body[n];
    if (inner.inputs.size() != 1 || inner.outputs.size() != 1) return nullptr;
    if (inner.is("reduce_sum")) {
      if (found) return nullptr;
      found = &inner;
    } else if (!inner.is("cast") && !(found && inner.is("reshape"))) {
      return nullptr;
    }
    if (!elem_of(body.type(inner.outputs[0]).dtype) || body[inner.outputs[0]].uses.size() > 1) return nullptr;
  }
  return found;
}

std::string refuse(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  const ir::Node* sum = reduction_of(graph, id);
  if (!sum) return "is more than one sum between casts";
  const ir::Type &x = input_type(graph, id, 0), &y = output_type(graph, id);
  if (!elem_of(x.dtype) || !elem_of(y.dtype)) return cat("needs f32, f16 or bf16, got ", name(x.dtype));
  if (x.layout.kind == ir::Layout::Kind::blocked || !y.layout.is_plain()) return "needs unblocked data";
  ir::Ints axes = sum->get_ints("axes");
  for (int64_t& a : axes)
    if (a < 0) a += x.rank();
  const int64_t inner = is_channels_last(x.layout) ? 1 : x.rank() - 1;
  if (static_cast<int64_t>(axes.size()) != x.rank() - 1 ||
      std::find(axes.begin(), axes.end(), inner) != axes.end())
    return "keeps another axis than the innermost in memory";
  return {};
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  const TensorSpec& x = instance.inputs[0];
  ColumnSum g;
  g.type = elem(x.dtype);
  g.y_type = elem(instance.outputs[0].dtype);
  g.c = x.dims[is_channels_last(x.layout) ? 1 : x.dims.size() - 1];
  g.rows = g.c == 0 ? 0 : x.count() / g.c;
  g.multiprocessors = multiprocessors(target);
  KernelNeeds needs;
  needs.scratch_bytes = column_sum_scratch_bytes(g);
  return make_kernel(
      [g](const RunArgs& args) {
        ColumnSum s = g;
        s.x = args.in[0];
        s.y = args.out[0];
        s.scratch = static_cast<float*>(args.scratch);
        PELTON_CUDA(column_sum(s, stream_of(args)));
      },
      std::move(needs));
}

}  // namespace

void add_column_sum(Registry& registry) {
  registry.add({.name = "cuda.column_sum",
                .ops = {"reduce_sum", "fused"},
                .refuse = refuse,
                .prepare = prepare,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
