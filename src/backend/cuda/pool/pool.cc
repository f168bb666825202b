// SPDX-License-Identifier: Apache-2.0
// max_pool and avg_pool and their gradients, plain or channels last, and means or sums over all places of
// channels-last data.
#include <cstdlib>

#include "backend/conv_window.h"
#include "backend/cuda/implementations.h"
#include "backend/cuda/own/host.h"
#include "backend/cuda/own/pool_backward.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

std::string refuse_pool(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  const ir::Type &x = input_type(graph, node, 0), &y = output_type(graph, node);
  if (!elem_of(x.dtype)) return cat("needs f32, f16 or bf16, got ", name(x.dtype));
  if (x.rank() > 5) return cat("takes up to 3 spatial dims, not ", x.rank() - 2);
  if (x.layout != y.layout || x.layout.kind == ir::Layout::Kind::blocked)
    return cat("needs one plain or channels-last layout, got ", x.layout.str(), " and ", y.layout.str());
  // Kernels count in 32 bits and visit what lies in the pads.
  constexpr int64_t kMost = 1 << 20;
  for (std::string_view name : {"kernel", "strides", "dilations"})
    for (int64_t v : graph[node].get_ints(name))
      if (v > kMost) return cat("takes ", name, " up to ", kMost, ", not ", v);
  for (std::string_view name : {"low", "high"})
    for (const Dim& d : graph[node].get_dims(name))
      if (d.is_const() && std::abs(d.value()) > kMost)
        return cat("takes pads up to ", kMost, ", not ", d.value());
  if (graph[node].outputs.size() > 1 && graph.type(graph[node].outputs[1]).layout != y.layout)
    return "needs indices in the layout of the result";
  return {};
}

// Of data x whose pooling has the dims of y.
Pool window_of(const Instance& instance, const TensorSpec& x, const Dims& y, bool max) {
  const ir::Node& n = instance.node();
  const size_t s = x.dims.size() - 2;
  const ConvWindow w = pool_window(n, instance, s);
  auto small = [](int64_t v) { return static_cast<int>(v); };
  Pool g;
  g.type = elem(x.dtype);
  g.max = max;
  g.channels_last = is_channels_last(x.layout);
  if (n.is("max_pool")) g.row_major = n.get_bool("row_major");
  if (!max) g.count_padding = n.get_bool("count_padding");
  g.n = small(x.dims[0]);
  g.c = small(x.dims[1]);
  for (size_t i = 0; i < s; ++i) {
    // One axis alone is the last of the three.
    const size_t to = 3 - s + i;
    g.in[to] = small(x.dims[i + 2]);
    g.out[to] = small(y[i + 2]);
    g.kernel[to] = small(w.kernel[i]);
    g.stride[to] = small(w.strides[i]);
    g.dilation[to] = small(w.dilations[i]);
    g.low[to] = small(w.low[i]);
    g.high[to] = small(w.high[i]);
  }
  return g;
}

std::unique_ptr<Kernel> prepare_pool(const Instance& instance, const device::Target&) {
  const TensorSpec& y = instance.outputs[0];
  if (y.count() == 0) return nothing();
  const Pool g = window_of(instance, instance.inputs[0], y.dims, instance.node().is("max_pool"));
  const bool indices = instance.outputs.size() > 1;
  return make_kernel([g, indices](const RunArgs& args) {
    Pool p = g;
    p.x = args.in[0];
    p.y = args.out[0];
    if (indices) p.index = static_cast<int64_t*>(args.out[1]);
    PELTON_CUDA(pool(p, stream_of(args)));
  });
}

std::string refuse_backward(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  const ir::Type& dx = output_type(graph, node);
  if (!elem_of(dx.dtype)) return cat("needs f32, f16 or bf16, got ", name(dx.dtype));
  if (dx.rank() > 5) return cat("takes up to 3 spatial dims, not ", dx.rank() - 2);
  if (dx.layout.kind == ir::Layout::Kind::blocked) return cat("does not take layout ", dx.layout.str());
  for (size_t i = 0; i < graph[node].inputs.size(); ++i)
    if (input_type(graph, node, i).layout != dx.layout)
      return cat("needs one layout, got ", input_type(graph, node, i).layout.str(), " and ", dx.layout.str());
  int64_t taps = 1;
  for (int64_t k : graph[node].get_ints("kernel")) taps *= k;
  if (taps >= 65535) return cat("takes windows of fewer than 65535 places, not ", taps);
  return {};
}

std::unique_ptr<Kernel> prepare_backward(const Instance& instance, const device::Target&) {
  const TensorSpec &g = instance.inputs[0], &dx = instance.outputs[0];
  if (dx.count() == 0) return nothing();
  const bool max = instance.node().is("max_pool_backward");
  const Pool window = window_of(instance, dx, g.dims, max);
  KernelNeeds needs;
  needs.scratch_bytes = pool_backward_scratch_bytes(window);
  return make_kernel(
      [window, max](const RunArgs& args) {
        PoolBackward d;
        d.window = window;
        d.g = args.in[0];
        if (max) d.window.x = args.in[1];
        d.window.y = args.out[0];
        d.taps = static_cast<uint16_t*>(args.scratch);
        PELTON_CUDA(pool_backward(d, stream_of(args)));
      },
      std::move(needs));
}

std::string refuse_mean(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  const ir::Type& x = input_type(graph, node, 0);
  if (!elem_of(x.dtype)) return cat("needs f32, f16 or bf16, got ", name(x.dtype));
  if (!is_channels_last(x.layout)) return "needs channels-last data";
  ir::Ints axes = graph[node].get_ints("axes");
  for (int64_t& a : axes)
    if (a < 0) a += x.rank();
  std::sort(axes.begin(), axes.end());
  for (int64_t a = 2; a < x.rank(); ++a)
    if (static_cast<int64_t>(axes.size()) != x.rank() - 2 || axes[static_cast<size_t>(a - 2)] != a)
      return "needs to reduce all axes but the first two";
  return {};
}

std::unique_ptr<Kernel> prepare_mean(const Instance& instance, const device::Target&) {
  const TensorSpec& x = instance.inputs[0];
  if (instance.outputs[0].count() == 0) return nothing();
  ChannelMean g;
  g.type = elem(x.dtype);
  g.n = static_cast<int>(x.dims[0]);
  g.c = static_cast<int>(x.dims[1]);
  g.places = static_cast<int>(x.count() / std::max<int64_t>(1, x.dims[0] * x.dims[1]));
  g.sum = instance.node().is("reduce_sum");
  return make_kernel([g](const RunArgs& args) {
    ChannelMean m = g;
    m.x = args.in[0];
    m.y = args.out[0];
    PELTON_CUDA(channel_mean(m, stream_of(args)));
  });
}

}  // namespace

void add_pool(Registry& registry) {
  registry.add({.name = "cuda.pool",
                .ops = {"max_pool", "avg_pool"},
                .refuse = refuse_pool,
                .prepare = prepare_pool,
                .device = device::Kind::cuda});
  registry.add({.name = "cuda.pool_backward",
                .ops = {"max_pool_backward", "avg_pool_backward"},
                .refuse = refuse_backward,
                .prepare = prepare_backward,
                .device = device::Kind::cuda});
  registry.add({.name = "cuda.channel_mean",
                .ops = {"reduce_mean", "reduce_sum"},
                .refuse = refuse_mean,
                .prepare = prepare_mean,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
