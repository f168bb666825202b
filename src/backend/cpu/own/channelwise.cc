// SPDX-License-Identifier: Apache-2.0
// mul and add of one value a channel on a channels-last tensor (the gate of squeeze-and-excitation): runs of
// a few channels are too short for a loop of their own, so the values are repeated until they fill a run.
#include <algorithm>

#include "backend/cpu/own/implementations.h"
#include "backend/cpu/support.h"
#include "backend/cpu/tile/step.h"

namespace pelton::backend::cpu {
namespace {

constexpr int64_t kRun = 2048;  // elements that one step works on: two operands and the result in half of L1

// Which input holds a value a channel: [1 or batch, channels, 1...] beside [batch, channels, spatial...].
int channel_operand(const ir::Graph& graph, ir::NodeId node) {
  const ir::Node& n = graph[node];
  const Shape& y = graph.type(n.outputs[0]).shape;
  for (int i = 1; i >= 0; --i) {
    const ir::Type &t = graph.type(n.inputs[static_cast<size_t>(i)]),
                   &other = graph.type(n.inputs[static_cast<size_t>(1 - i)]);
    if (!t.is_tensor() || !other.is_tensor() || t.shape.size() != y.size() || !(other.shape == y)) continue;
    bool fits = (t.shape[0] == y[0] || t.shape[0] == Dim(1)) && t.shape[1] == y[1];
    for (size_t d = 2; d < y.size(); ++d) fits &= t.shape[d] == Dim(1) && !(y[d] == Dim(1));
    if (fits) return i;
  }
  return -1;
}

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  const ir::Node& n = graph[node];
  const ir::Type& y = graph.type(n.outputs[0]);
  for (ir::ValueId v : {n.inputs[0], n.inputs[1], n.outputs[0]})
    if (graph.type(v).dtype != DType::f32) return cat("needs f32, got ", graph.type(v).str());
  if (y.layout.kind != ir::Layout::Kind::channels_last || y.rank() < 3) return "needs a channels-last result";
  const int small = channel_operand(graph, node);
  if (small < 0) return "has no operand of one value a channel";
  if (!(graph.type(n.inputs[static_cast<size_t>(1 - small)]).layout == y.layout)) return "changes the layout";
  if (graph.type(n.inputs[static_cast<size_t>(small)]).layout.kind == ir::Layout::Kind::blocked)
    return "has blocked values a channel";
  return {};
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  const auto small = static_cast<size_t>(channel_operand(instance.graph, instance.id)), full = 1 - small;
  const Dims& y = instance.outputs[0].dims;
  const int64_t channels = y[1], images = y[0],
                pixels = channels ? instance.outputs[0].count() / channels : 0;
  const int64_t per_image = images ? pixels / images : 0;
  const bool shared = instance.inputs[small].dims[0] == 1;  // by all images
  const int64_t repeats = std::max<int64_t>(1, std::min(per_image, kRun / std::max<int64_t>(1, channels)));
  const int64_t run = repeats * channels, runs = per_image ? (per_image + repeats - 1) / repeats : 0;
  const StepFunction f = f32_step(instance.node().is("mul") ? Code::mul : Code::add, target.isa);
  const int64_t copies = shared ? 1 : images;
  return make_kernel(
      [=](const RunArgs& args) {
        const auto* values = static_cast<const float*>(args.in[small]);
        auto* repeated = static_cast<float*>(args.scratch);
        if (runs == 0) return;
        for (int64_t i = 0; i < copies; ++i)
          for (int64_t r = 0; r < repeats; ++r)
            std::copy_n(values + i * channels, channels, repeated + i * run + r * channels);
        parallel_for(0, images * runs, grain_for(images * runs, run), [&](int64_t begin, int64_t end) {
          for (int64_t u = begin; u < end; ++u) {
            const int64_t image = u / runs, first = u % runs * repeats;
            const int64_t at = (image * per_image + first) * channels;
            Step s;
            s.in[0] = static_cast<const float*>(args.in[full]) + at;
            s.in[1] = repeated + (shared ? 0 : image * run);
            s.out = static_cast<float*>(args.out[0]) + at;
            f(s, std::min(repeats, per_image - first) * channels);
          }
        });
      },
      align64(copies * run * 4));
}

}  // namespace

void add_channelwise(Registry& registry) {
  registry.add({"cpu.channelwise", {"mul", "add"}, refuse, prepare});
}

}  // namespace pelton::backend::cpu
