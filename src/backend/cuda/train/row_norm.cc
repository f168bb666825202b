// SPDX-License-Identifier: Apache-2.0
// layer_norm_backward and rms_norm_backward over the last axes, alone or with a sum behind the first result.
#include <algorithm>

#include "backend/cuda/implementations.h"
#include "backend/cuda/own/host.h"
#include "backend/cuda/own/rows_backward.h"
#include "ir/op.h"
#include "ir/ops/composite.h"

namespace pelton::backend::cuda {
namespace {

struct Parsed {
  std::string reason;
  const ir::Graph* graph = nullptr;  // that holds the node
  ir::NodeId main;
  std::vector<int> inputs, outputs;  // of the main node: indices in the outer node's, or -1
  int added = -1;                    // an input of the outer node that dx is added to
  const ir::Node& node() const { return (*graph)[main]; }
};
int position(const std::vector<ir::ValueId>& list, ir::ValueId v) {
  const auto at = std::find(list.begin(), list.end(), v);
  return v && at != list.end() ? static_cast<int>(at - list.begin()) : -1;
}

// The node alone, or in a group of kind "norm_backward" with a sum behind its first result.
Parsed parse(const ir::Graph& graph, ir::NodeId id) {
  Parsed p;
  const ir::Node& outer = graph[id];
  const bool fused = outer.is("fused");
  if (fused && outer.get_text("kind") != "norm_backward") {
    p.reason = "is another kind of group";
    return p;
  }
  p.graph = fused ? &outer.get_graph("body") : &graph;
  p.main = id;
  ir::NodeId sum;
  if (fused)
    for (ir::NodeId n : p.graph->order()) (((*p.graph)[n].is("add")) ? sum : p.main) = n;
  const ir::Node& main = p.node();
  if (!main.is("layer_norm_backward") && !main.is("rms_norm_backward")) {
    p.reason = "holds no gradient of a norm";
    return p;
  }
  for (ir::ValueId v : main.inputs) p.inputs.push_back(position(fused ? p.graph->inputs : outer.inputs, v));
  for (ir::ValueId v : main.outputs)
    p.outputs.push_back(position(fused ? p.graph->outputs : outer.outputs, v));
  if (!fused) return p;
  const ir::ValueId dx = main.outputs[0];
  if (!sum || p.graph->node_count() != 2 || p.outputs[0] >= 0) {
    p.reason = "is more than a gradient and a sum";
    return p;
  }
  const ir::Node& add = (*p.graph)[sum];
  const size_t side = add.inputs[0] == dx ? 1 : 0;
  p.added = position(p.graph->inputs, add.inputs[side]);
  p.outputs[0] = position(p.graph->outputs, add.outputs[0]);
  if (add.inputs[1 - side] != dx || p.added < 0 || p.outputs[0] < 0) p.reason = "adds something else";
  return p;
}

std::string refuse(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  if (std::string why = refuse_layouts(graph, id); !why.empty()) return why;
  const Parsed p = parse(graph, id);
  if (!p.reason.empty()) return p.reason;
  const ir::Node& n = p.node();
  const ir::Type& x = p.graph->type(n.inputs[1]);
  if (!elem_of(x.dtype)) return cat("needs f32, f16 or bf16, got ", name(x.dtype));
  const size_t scale = n.is("layer_norm_backward") ? 4 : 3;
  if (n.inputs.size() > scale && n.inputs[scale]) {
    const ir::Type& t = p.graph->type(n.inputs[scale]);
    const int64_t axis = ir::wrap_axis(n.get_int("axis"), x.rank());
    if (!elem_of(t.dtype)) return cat("needs f32, f16 or bf16, got ", name(t.dtype));
    if (t.shape != Shape(x.shape.begin() + axis, x.shape.end())) return "needs a scale of the size of a row";
  }
  if (p.added >= 0) {
    const ir::Type& t = input_type(graph, id, static_cast<size_t>(p.added));
    if (t.dtype != x.dtype || t.shape != x.shape) return "adds a value of another type or shape";
  }
  return {};
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  const Parsed p = parse(instance.graph, instance.id);
  PELTON_CHECK(p.reason.empty(), p.reason);
  const ir::Node& n = p.node();
  const TensorSpec& x = instance.inputs[static_cast<size_t>(p.inputs[1])];
  const bool layer = n.is("layer_norm_backward");
  const size_t scale = layer ? 4 : 3;
  const int64_t axis = ir::wrap_axis(n.get_int("axis"), static_cast<int64_t>(x.dims.size()));
  RowsBackward g;
  g.type = elem(x.dtype);
  g.size = element_count(Dims(x.dims.begin() + axis, x.dims.end()));
  g.rows = element_count(Dims(x.dims.begin(), x.dims.begin() + axis));
  g.multiprocessors = multiprocessors(target);
  const int scaled = p.inputs.size() > scale ? p.inputs[scale] : -1;
  if (scaled >= 0) g.scale_type = elem(instance.inputs[static_cast<size_t>(scaled)].dtype);
  for (size_t i = 1; i < p.outputs.size(); ++i)
    if (p.outputs[i] >= 0) {
      g.parameters = true;
      g.parameter_type = elem(instance.outputs[static_cast<size_t>(p.outputs[i])].dtype);
    }
  KernelNeeds needs;
  needs.scratch_bytes = rows_backward_scratch_bytes(g);
  return make_kernel(
      [g, layer, scaled, inputs = p.inputs, outputs = p.outputs, added = p.added](const RunArgs& args) {
        auto in = [&](int i) { return i < 0 ? nullptr : args.in[static_cast<size_t>(i)]; };
        auto out = [&](size_t i) -> void* {
          return i < outputs.size() && outputs[i] >= 0 ? args.out[static_cast<size_t>(outputs[i])] : nullptr;
        };
        RowsBackward r = g;
        r.g = in(inputs[0]);
        r.x = in(inputs[1]);
        if (layer) r.mean = static_cast<const float*>(in(inputs[2]));
        r.rstd = static_cast<const float*>(in(inputs[layer ? 3 : 2]));
        r.scale = in(scaled);
        r.added = in(added);
        r.dx = out(0);
        r.dscale = out(1);
        r.dbias = out(2);
        r.scratch = static_cast<float*>(args.scratch);
        PELTON_CUDA(rows_backward(r, stream_of(args)));
      },
      std::move(needs));
}

}  // namespace

void add_row_norm_backward(Registry& registry) {
  registry.add({.name = "cuda.norm_backward",
                .ops = {"layer_norm_backward", "rms_norm_backward", "fused"},
                .refuse = refuse,
                .prepare = prepare,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
