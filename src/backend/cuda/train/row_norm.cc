// SPDX-License-Identifier: Apache-2.0
// layer_norm_backward and rms_norm_backward over the last axes.
#include "backend/cuda/implementations.h"
#include "backend/cuda/own/host.h"
#include "backend/cuda/own/rows_backward.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

size_t first_axis(const ir::Node& n, size_t rank) {
  const int64_t axis = n.get_int("axis");
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
}

std::string refuse(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  if (std::string why = refuse_layouts(graph, id); !why.empty()) return why;
  const ir::Node& n = graph[id];
  const ir::Type& x = input_type(graph, id, 1);
  if (!elem_of(x.dtype)) return cat("needs f32, f16 or bf16, got ", name(x.dtype));
  const size_t scale = n.is("layer_norm_backward") ? 4 : 3;
  if (n.inputs.size() > scale && n.inputs[scale]) {
    const ir::Type& t = input_type(graph, id, scale);
    const auto axis = static_cast<std::ptrdiff_t>(first_axis(n, x.shape.size()));
    if (!elem_of(t.dtype)) return cat("needs f32, f16 or bf16, got ", name(t.dtype));
    if (t.shape != Shape(x.shape.begin() + axis, x.shape.end())) return "needs a scale of the size of a row";
  }
  return {};
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  const TensorSpec& x = instance.inputs[1];
  const ir::Node& n = instance.node();
  const bool layer = n.is("layer_norm_backward");
  const size_t scale = layer ? 4 : 3, outputs = instance.outputs.size();
  const auto axis = static_cast<std::ptrdiff_t>(first_axis(n, x.dims.size()));
  RowsBackward g;
  g.type = elem(x.dtype);
  g.size = static_cast<int>(element_count(Dims(x.dims.begin() + axis, x.dims.end())));
  g.rows = element_count(Dims(x.dims.begin(), x.dims.begin() + axis));
  g.multiprocessors = multiprocessors(target);
  const bool scaled = instance.has(scale);
  if (scaled) g.scale_type = elem(instance.inputs[scale].dtype);
  g.parameters = outputs > 1;
  if (outputs > 1) g.parameter_type = elem(instance.outputs[1].dtype);
  KernelNeeds needs;
  needs.scratch_bytes = rows_backward_scratch_bytes(g);
  return make_kernel(
      [g, layer, scale, scaled, outputs](const RunArgs& args) {
        RowsBackward r = g;
        r.g = args.in[0];
        r.x = args.in[1];
        if (layer) r.mean = static_cast<const float*>(args.in[2]);
        r.rstd = static_cast<const float*>(args.in[layer ? 3 : 2]);
        if (scaled) r.scale = args.in[scale];
        r.dx = args.out[0];
        if (outputs > 1) r.dscale = args.out[1];
        if (outputs > 2) r.dbias = args.out[2];
        r.scratch = static_cast<float*>(args.scratch);
        PELTON_CUDA(rows_backward(r, stream_of(args)));
      },
      std::move(needs));
}

}  // namespace

void add_row_norm_backward(Registry& registry) {
  registry.add({.name = "cuda.norm_backward",
                .ops = {"layer_norm_backward", "rms_norm_backward"},
                .refuse = refuse,
                .prepare = prepare,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
