// SPDX-License-Identifier: Apache-2.0
// layer_norm, rms_norm, softmax and log_softmax over the last axes.
#include "backend/cuda/implementations.h"
#include "backend/cuda/own/host.h"
#include "backend/cuda/own/rows.h"
#include "ir/op.h"
#include "ir/ops/composite.h"

namespace pelton::backend::cuda {
namespace {

std::string refuse(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  if (std::string why = refuse_layouts(graph, id); !why.empty()) return why;
  const ir::Node& n = graph[id];
  const ir::Type& x = input_type(graph, id, 0);
  if (!elem_of(x.dtype)) return cat("needs f32, f16 or bf16, got ", name(x.dtype));
  const int64_t axis = ir::wrap_axis(n.get_int("axis"), x.rank());
  const bool norm = n.is("layer_norm") || n.is("rms_norm");
  if (!norm && axis + 1 != x.rank()) return "works along the last axis only";
  const Shape row(x.shape.begin() + axis, x.shape.end());
  for (size_t i = 1; i < n.inputs.size(); ++i) {
    if (!n.inputs[i]) continue;
    const ir::Type& t = input_type(graph, id, i);
    if (!elem_of(t.dtype)) return cat("needs f32, f16 or bf16, got ", name(t.dtype));
    if (i == 2 && n.inputs[1] && t.dtype != input_type(graph, id, 1).dtype)
      return "needs scale and bias of one type";
    if (t.shape != row) return "needs scale and bias of the size of a row";
  }
  return {};
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target&) {
  const TensorSpec& x = instance.inputs[0];
  const ir::Node& n = instance.node();
  if (x.count() == 0) return nothing();
  const int64_t axis = ir::wrap_axis(n.get_int("axis"), static_cast<int64_t>(x.dims.size()));
  Rows g;
  g.op = n.is("layer_norm") ? Rows::layer_norm
         : n.is("rms_norm") ? Rows::rms_norm
         : n.is("softmax")  ? Rows::softmax
                            : Rows::log_softmax;
  g.type = elem(x.dtype);
  g.size = static_cast<int>(element_count(Dims(x.dims.begin() + axis, x.dims.end())));
  g.rows = x.count() / g.size;
  const bool norm = g.op == Rows::layer_norm || g.op == Rows::rms_norm;
  if (norm) g.eps = static_cast<float>(n.get_real("eps"));
  const bool scale = instance.has(1), bias = instance.has(2);
  if (scale || bias) g.parameter_type = elem(instance.inputs[scale ? 1 : 2].dtype);
  const size_t outputs = instance.outputs.size();
  return make_kernel([g, scale, bias, outputs](const RunArgs& args) {
    Rows r = g;
    r.x = args.in[0];
    r.y = args.out[0];
    if (scale) r.scale = args.in[1];
    if (bias) r.bias = args.in[2];
    if (g.op == Rows::layer_norm) {
      if (outputs > 1) r.mean = static_cast<float*>(args.out[1]);
      if (outputs > 2) r.rstd = static_cast<float*>(args.out[2]);
    } else if (outputs > 1) {
      r.rstd = static_cast<float*>(args.out[1]);
    }
    PELTON_CUDA(normalize_rows(r, stream_of(args)));
  });
}

}  // namespace

void add_norm(Registry& registry) {
  registry.add({.name = "cuda.norm",
                .ops = {"layer_norm", "rms_norm", "softmax", "log_softmax"},
                .refuse = refuse,
                .prepare = prepare,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
