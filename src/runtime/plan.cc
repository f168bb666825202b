// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan.h"

#include <set>

#include "ir/keeps_bytes.h"
#include "ir/op.h"

namespace pelton::runtime {
namespace {

using namespace ir;

void collect(const Type& type, std::set<std::string>& into) {
  for (const Dim& d : type.shape) d.collect_symbols(into);
}

bool is_control(const Node& node) {
  return node.op->family == Family::control;
}

// Why no kernel may take the node, whatever it is; empty if one may.
std::string kernel_free_reason(const Graph& graph, NodeId id) {
  const Node& n = graph[id];
  for (ValueId v : n.outputs) {
    const Type& t = graph.type(v);
    if (!t.is_tensor() && t.kind != TypeKind::token) return cat("yields ", t.str());
    if (t.is_tensor() && t.dtype == DType::string) return "yields strings";
  }
  for (ValueId v : n.inputs) {
    if (!v) continue;
    const Type& t = graph.type(v);
    if (!t.is_tensor() && t.kind != TypeKind::token) return cat("takes ", t.str());
    if (t.is_tensor() && t.dtype == DType::string) return "takes strings";
  }
  if (size_depends_on_data(graph, id)) return "the size of its result depends on data";
  return "";
}

}  // namespace

bool costs_nothing(const Graph& graph, NodeId id) {
  const Node& n = graph[id];
  if (n.is("constant") && graph.type(n.outputs[0]).dtype != DType::string) return true;
  return keeps_bytes(graph, id) && kernel_free_reason(graph, id).empty();
}

bool size_depends_on_data(const Graph& graph, NodeId id) {
  const Node& n = graph[id];
  std::set<std::string> results, known;
  for (ValueId v : n.outputs) collect(graph.type(v), results);
  if (results.empty()) return false;
  for (ValueId v : n.inputs) {
    if (!v) continue;
    collect(graph.type(v), known);
    if (const auto& contents = graph[v].contents)
      for (const Dim& d : *contents) d.collect_symbols(known);
  }
  for (const auto& [key, value] : n.attrs)
    if (auto dims = std::get_if<Shape>(&value))
      for (const Dim& d : *dims) d.collect_symbols(known);
  for (const std::string& s : results)
    if (!known.count(s)) return true;
  return false;
}

Choice choose(const Graph& graph, NodeId id, const backend::Registry& registry,
              const device::Target& target) {
  Choice choice;
  if (costs_nothing(graph, id)) {
    choice.implementation = kNothing;
    return choice;
  }
  const Node& n = graph[id];
  std::string reason = kernel_free_reason(graph, id);
  auto pick = [&](const device::Target& t) {
    for (const backend::Implementation* candidate : registry.candidates(n.op->name, t.kind)) {
      std::string refusal = reason.empty() ? candidate->refuse(graph, id, t) : reason;
      if (refusal.empty()) {
        choice.implementation = candidate->name;
        return true;
      }
      choice.refusals.push_back({std::string(candidate->name), std::move(refusal)});
    }
    return false;
  };
  if (pick(target)) return choice;
  const device::Target host = device::host_of(target);
  if (target.kind != host.kind && pick(host)) return choice;
  choice.implementation = kReference;
  if (is_control(n))
    for (const auto& [key, value] : n.attrs)
      if (auto body = std::get_if<GraphPtr>(&value))
        choice.bodies.push_back({key, choose_all(**body, registry, host)});
  return choice;
}

std::vector<Choice> choose_all(const Graph& graph, const backend::Registry& registry,
                               const device::Target& target) {
  std::vector<Choice> choices;
  choices.reserve(graph.node_count());
  for (NodeId id : graph.order()) choices.push_back(choose(graph, id, registry, target));
  return choices;
}

}  // namespace pelton::runtime
