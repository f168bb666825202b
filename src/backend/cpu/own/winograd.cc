// SPDX-License-Identifier: Apache-2.0
// conv of 3x3 windows with stride 1 by Winograd's F(2x2, 3x3), f32, channels last, constant weights: 2.25
// times fewer multiplications than the sum that defines it, where channels are many enough to pay for the
// transforms. The chain that follows runs on each part of the result while it is in the cache.
#include "backend/cpu/fallback.h"
#include "backend/cpu/implementations.h"
#include "backend/cpu/own/conv_chain.h"
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
  if (std::string why = refuse_conv_chain(group, graph, node); !why.empty()) return why;
  const ir::Node& n = group.node();
  const ir::Type& y = graph.type(graph[node].outputs[0]);
  if (y.rank() != 4) return "needs images";
  const Dims& w = group.operands[1].constant.dims();
  if (w[2] != 3 || w[3] != 3) return "needs windows of 3x3";
  if (n.get_int("groups") != 1) return "has groups";
  for (std::string_view attr : {"strides", "dilations"})
    for (int64_t v : n.get_ints(attr))
      if (v != 1) return cat("has ", attr, " other than 1");
  if (w[0] < kLeastChannels || w[1] < kLeastChannels)
    return cat("has fewer than ", kLeastChannels, " channels");
  if (y.shape[2].is_const() && y.shape[3].is_const() &&
      y.shape[2].value() * y.shape[3].value() < kLeastPixels)
    return cat("has images of fewer than ", kLeastPixels, " pixels");
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
