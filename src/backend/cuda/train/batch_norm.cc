// SPDX-License-Identifier: Apache-2.0
// batch_norm_train and batch_norm_backward, plain or channels last.
#include "backend/cuda/own/batch_norm.h"

#include "backend/cuda/implementations.h"
#include "backend/cuda/own/host.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

std::string refuse(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  const ir::Node& n = graph[id];
  const bool forward = n.is("batch_norm_train");
  const ir::Type& x = input_type(graph, id, forward ? 0 : 1);
  if (!elem_of(x.dtype)) return cat("needs f32, f16 or bf16, got ", name(x.dtype));
  if (x.rank() < 2) return "needs channels";
  if (x.layout.kind == ir::Layout::Kind::blocked) return cat("does not take layout ", x.layout.str());
  for (size_t i = 0; i < n.inputs.size(); ++i) {
    const ir::Type& t = input_type(graph, id, i);
    if (!elem_of(t.dtype)) return cat("needs f32, f16 or bf16, got ", name(t.dtype));
    if (t.rank() == x.rank() && x.rank() > 1 && t.layout != x.layout)
      return cat("needs one layout, got ", t.layout.str(), " and ", x.layout.str());
  }
  if (output_type(graph, id).layout != x.layout) return "yields the layout of its data";
  if (!forward) return {};
  if (input_type(graph, id, 1).dtype != input_type(graph, id, 2).dtype)
    return "needs scale and bias of one type";
  if (input_type(graph, id, 3).dtype != input_type(graph, id, 4).dtype) return "needs statistics of one type";
  return {};
}

BatchNorm sizes_of(const TensorSpec& x, DType parameters, const device::Target& target) {
  BatchNorm g;
  g.type = elem(x.dtype);
  // Without places both layouts are one; rows of channels are what is read fastest.
  g.channels_last = is_channels_last(x.layout) || x.dims.size() == 2;
  g.n = static_cast<int>(x.dims[0]);
  g.c = static_cast<int>(x.dims[1]);
  g.places = element_count(Dims(x.dims.begin() + 2, x.dims.end()));
  g.parameter_type = elem(parameters);
  g.multiprocessors = multiprocessors(target);
  return g;
}

std::unique_ptr<Kernel> prepare_forward(const Instance& instance, const device::Target& target) {
  const TensorSpec& x = instance.inputs[0];
  BatchNorm g = sizes_of(x, instance.inputs[1].dtype, target);
  if (x.count() == 0)
    fail(ErrorCode::bad_shape, cat("has no elements to make statistics of, got ", x.dims), "",
         "train on batches of one sample or more");
  const ir::Node& n = instance.node();
  g.statistic_type = elem(instance.inputs[3].dtype);
  g.eps = static_cast<float>(n.get_real("eps"));
  g.keep = static_cast<float>(n.get_real("momentum"));
  KernelNeeds needs;
  needs.scratch_bytes = batch_norm_scratch_bytes(g);
  const size_t outputs = instance.outputs.size();
  return make_kernel(
      [g, outputs](const RunArgs& args) {
        BatchNorm b = g;
        b.x = args.in[0];
        b.scale = args.in[1];
        b.bias = args.in[2];
        b.old_mean = args.in[3];
        b.old_var = args.in[4];
        b.scratch = static_cast<float*>(args.scratch);
        b.y = args.out[0];
        if (outputs > 1) b.new_mean = args.out[1];
        if (outputs > 2) b.new_var = args.out[2];
        if (outputs > 3) b.batch_mean = static_cast<float*>(args.out[3]);
        if (outputs > 4) b.batch_rstd = static_cast<float*>(args.out[4]);
        PELTON_CUDA(batch_norm_train(b, stream_of(args)));
      },
      std::move(needs));
}

std::unique_ptr<Kernel> prepare_backward(const Instance& instance, const device::Target& target) {
  const TensorSpec& x = instance.inputs[1];
  const BatchNorm g = sizes_of(x, instance.inputs[2].dtype, target);
  if (x.count() == 0) {
    const auto bytes = static_cast<size_t>(g.c * elem_bytes(g.parameter_type));
    return make_kernel([bytes](const RunArgs& args) {
      for (size_t i = 1; i < args.out.size(); ++i)
        PELTON_CUDA(cudaMemsetAsync(args.out[i], 0, bytes, stream_of(args)));
    });
  }
  KernelNeeds needs;
  needs.scratch_bytes = batch_norm_scratch_bytes(g);
  const size_t outputs = instance.outputs.size();
  return make_kernel(
      [g, outputs](const RunArgs& args) {
        BatchNorm b = g;
        b.g = args.in[0];
        b.x = args.in[1];
        b.scale = args.in[2];
        b.mean = static_cast<const float*>(args.in[3]);
        b.rstd = static_cast<const float*>(args.in[4]);
        b.scratch = static_cast<float*>(args.scratch);
        b.dx = args.out[0];
        if (outputs > 1) b.dscale = args.out[1];
        if (outputs > 2) b.dbias = args.out[2];
        PELTON_CUDA(batch_norm_backward(b, stream_of(args)));
      },
      std::move(needs));
}

}  // namespace

void add_batch_norm(Registry& registry) {
  registry.add({.name = "cuda.batch_norm_train",
                .ops = {"batch_norm_train"},
                .refuse = refuse,
                .prepare = prepare_forward,
                .device = device::Kind::cuda});
  registry.add({.name = "cuda.batch_norm_backward",
                .ops = {"batch_norm_backward"},
                .refuse = refuse,
                .prepare = prepare_backward,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
