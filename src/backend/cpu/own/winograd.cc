// SPDX-License-Identifier: Apache-2.0
// conv of 3x3 windows with stride 1 by Winograd's F(2x2, 3x3), f32, channels last, constant weights: 2.25
// times fewer multiplications than the sum that defines it, where channels are many enough to pay for the
// transforms. The chain that follows runs on each part of the result while it is in the cache.
#include <algorithm>

#include "backend/cpu/fallback.h"
#include "backend/cpu/implementations.h"
#include "backend/cpu/own/winograd_chain.h"
#include "backend/cpu/own/winograd_kernel.h"
#include "backend/cpu/support.h"
#include "base/cat.h"

namespace pelton::backend::cpu {
namespace {

constexpr int64_t kLeastChannels = 32, kLeastPixels = 36;

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target& target) {
  if (target.isa < device::CpuIsa::avx2) return "needs AVX2";
  const Group group = parse_group(graph, node);
  if (!group.reason.empty()) return group.reason;
  const ir::Node& n = group.node();
  if (!n.is("conv")) return "is not around a convolution";
  const ir::Type &x = graph.type(
                     graph[node].inputs[static_cast<size_t>(std::max(0, group.operands[0].input))]),
                 &y = graph.type(graph[node].outputs[0]);
  if (x.dtype != DType::f32 || y.dtype != DType::f32) return "needs f32";
  if (x.rank() != 4 || group.operands[0].input < 0) return "needs images";
  if (x.layout.kind != ir::Layout::Kind::channels_last || !(y.layout == x.layout))
    return "needs channels-last images";
  const Tensor& w = group.operands[1].constant;
  if (!w.defined() || w.dtype() != DType::f32) return "needs constant f32 weights";
  if (w.dims()[2] != 3 || w.dims()[3] != 3) return "needs windows of 3x3";
  if (n.get_int("groups") != 1) return "has groups";
  for (std::string_view attr : {"strides", "dilations"})
    for (int64_t v : n.get_ints(attr))
      if (v != 1) return cat("has ", attr, " other than 1");
  for (std::string_view side : {"low", "high"})
    for (const Dim& d : n.get_dims(side))
      if (!d.is_const() || d.value() < 0) return "needs constant pads that do not crop";
  if (w.dims()[0] < kLeastChannels || w.dims()[1] < kLeastChannels)
    return cat("has fewer than ", kLeastChannels, " channels");
  if (y.shape[2].is_const() && y.shape[3].is_const() &&
      y.shape[2].value() * y.shape[3].value() < kLeastPixels)
    return cat("has images of fewer than ", kLeastPixels, " pixels");
  const bool has_bias = n.inputs.size() > 2 && n.inputs[2];
  if (has_bias && group.graph->type(n.inputs[2]).dtype != DType::f32) return "has a bias of another type";
  for (size_t i = 0; i < group.steps.size(); ++i) {
    const GroupStep& s = group.steps[i];
    if (s.kind == GroupStep::linear || (i == 0 && !has_bias && is_bias(s, 4, 1))) continue;
    if (chain_code(s.op) == Code::none) return cat("has no loop for ", s.op);
    if (s.kind != GroupStep::binary) continue;
    if (s.operand.input < 0 || s.operand.reshaped) return cat("has a constant operand of ", s.op);
    const ir::Type& other = graph.type(graph[node].inputs[static_cast<size_t>(s.operand.input)]);
    if (!(other.shape == y.shape) || !(other.layout == y.layout) || other.dtype != DType::f32)
      return cat("has an operand of ", s.op, " that is not like the result");
  }
  return {};
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  const Group group = parse_group(instance.graph, instance.id, &instance);
  PELTON_CHECK(group.reason.empty(), group.reason);
  if (instance.outputs[0].count() == 0) return make_kernel([](const RunArgs&) {});
  return make_winograd(group, instance, target);
}

}  // namespace

void add_winograd(Registry& registry) {
  Implementation winograd{"cpu.winograd", {"conv", "fused"}, refuse, prepare};
  winograd.timed = true;
  registry.add(std::move(winograd));
}

}  // namespace pelton::backend::cpu
