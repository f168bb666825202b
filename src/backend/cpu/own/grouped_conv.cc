// SPDX-License-Identifier: Apache-2.0
// conv in groups of few channels, f32, channels last, constant weights: a vector holds outputs of one group
// or of several.
#include "backend/cpu/own/conv_chain.h"
#include "backend/cpu/own/grouped_conv_kernel.h"
#include "backend/cpu/own/grouped_conv_steps.h"
#include "backend/cpu/own/implementations.h"
#include "backend/cpu/support.h"
#include "base/cat.h"

namespace pelton::backend::cpu {
namespace {

constexpr int64_t kMostInputs = 32;  // a group; the library is as good with more
constexpr int64_t kMostTaps = 256;

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target& target) {
  const Group group = parse_group(graph, node);
  if (!group.reason.empty()) return group.reason;
  if (std::string why = refuse_conv_chain(group, graph, node); !why.empty()) return why;
  const int64_t groups = group.node().get_int("groups");
  if (groups == 1) return "has no groups";
  const Dims& w = group.operands[1].constant.dims();
  if (w.size() > 4) return "needs one or two spatial dims";
  const int64_t inputs = w[1], outputs = w[0] / groups;
  if (inputs == 1 && outputs == 1) return "is depthwise";
  if (inputs > kMostInputs) return cat("has more than ", kMostInputs, " inputs a group");
  if (element_count(w) / (w[0] * w[1]) > kMostTaps) return cat("has more than ", kMostTaps, " taps");
  if (grouped_conv_steps(target.isa, inputs, outputs).lanes == 0)
    return cat("has no loop for ", inputs, " inputs and ", outputs, " outputs a group");
  return {};
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  const Group group = parse_group(instance.graph, instance.id, &instance);
  PELTON_CHECK(group.reason.empty(), group.reason);
  if (instance.outputs[0].count() == 0) return make_kernel([](const RunArgs&) {});
  return make_grouped_conv(group, instance, target);
}

}  // namespace

void add_grouped_conv(Registry& registry) {
  Implementation grouped{"cpu.grouped_conv", {"conv", "fused"}, refuse, prepare};
  grouped.timed = true;
  registry.add(std::move(grouped));
}

}  // namespace pelton::backend::cpu
