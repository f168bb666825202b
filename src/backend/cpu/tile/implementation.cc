// SPDX-License-Identifier: Apache-2.0
// Tile programs as implementations: fused groups and single pointwise, cast, broadcast, reduction, softmax
// and norm nodes.
#include <algorithm>

#include "backend/cpu/implementations.h"
#include "backend/cpu/support.h"
#include "backend/cpu/tile/program.h"
#include "ir/op.h"

namespace pelton::backend::cpu {
namespace {

constexpr size_t kMaxNodes = 96, kMaxOperands = 48;

// Whether what is reduced lies apart in memory, so that each of its few elements would be gathered alone.
bool by_columns(const Region& region, const Analysis& analysis) {
  if (analysis.axes.empty()) return false;
  const auto rank = static_cast<int64_t>(analysis.space.size());
  int64_t inner = rank - 1;
  for (const auto* values : {&region.inputs, &region.outputs})
    for (ir::ValueId v : *values)
      if (v && region.graph.type(v).rank() == rank && !region.graph.type(v).layout.is_plain()) inner = 1;
  return std::find(analysis.axes.begin(), analysis.axes.end(), inner) == analysis.axes.end() &&
         !(analysis.space[static_cast<size_t>(inner)] == Dim(1));
}

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  const Region region = region_of(graph, node);
  if (region.nodes.size() > kMaxNodes)
    return cat("has ", region.nodes.size(), " nodes, more than ", kMaxNodes);
  if (region.inputs.size() + region.outputs.size() > kMaxOperands)
    return cat("has ", region.inputs.size() + region.outputs.size(), " operands, more than ", kMaxOperands);
  if (region.outputs.empty()) return "has no result";
  if (graph[node].is("cast") || graph[node].is("broadcast_to") || graph[node].op->scalar)
    for (ir::ValueId v : graph[node].inputs)
      if (!has_lane(graph.type(v).dtype)) return cat("does not compute in ", name(graph.type(v).dtype));
  const Analysis analysis = analyse(region);
  if (analysis.reason.empty() && graph[node].is("fused") && by_columns(region, analysis))
    return "reduces outer axes: a loop over whole runs is faster";
  return analysis.reason;
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  Program program = compile_program(region_of(instance.graph, instance.id), instance, target);
  const int64_t scratch = program.scratch_bytes();
  return make_kernel([p = std::move(program)](const RunArgs& args) { p.run(args); }, scratch);
}

}  // namespace

void add_tile_programs(Registry& registry) {
  std::vector<std::string_view> ops = {"fused"};
  for (const ir::OpDef* row : ir::all_ops()) {
    ir::Node node;
    node.op = row;
    const Role r = role(node);
    if (r != Role::none && r != Role::constant && r != Role::reshape) ops.push_back(row->name);
  }
  registry.add({"cpu.tile", ops, refuse, prepare});
}

}  // namespace pelton::backend::cpu
