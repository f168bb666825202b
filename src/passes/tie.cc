// SPDX-License-Identifier: Apache-2.0
#include "passes/tie.h"

#include <algorithm>
#include <map>

#include "passes/rewrite.h"
#include "passes/weight_names.h"
#include "tensor/transpose.h"

namespace pelton::passes {

using namespace ir;

namespace {

bool is_matrix(const Graph& g, ValueId v) {
  const Tensor* t = g.constant(v);
  return t && t->rank() == 2 && is_distinct(*t);
}

bool only_right_operand(const Graph& g, ValueId v) {
  if (g.is_output(v) || g.unused(v)) return false;
  const auto& uses = g[v].uses;
  return std::all_of(uses.begin(), uses.end(), [&](Use u) { return g[u.user].is("matmul") && u.input == 1; });
}

void read_transposed(Graph& g, ValueId from, ValueId to) {
  for (const Use u : std::vector<Use>(g[from].uses)) {
    Attrs& attrs = g.edit(u.user).attrs;
    if (g[u.user].get_bool("transpose_b"))
      attrs.erase("transpose_b");
    else
      attrs["transpose_b"] = true;
    g.set_input(u.user, u.input, to);
  }
}

bool tie_once(Graph& graph, const Context& context) {
  std::map<std::string, std::vector<NodeId>> by_type;
  for (NodeId id : graph.order())
    if (graph[id].is("constant") && is_matrix(graph, graph[id].outputs[0]))
      by_type[graph.constant(graph[id].outputs[0])->str()].push_back(id);
  bool changed = false;
  for (const auto& [type, group] : by_type)
    for (NodeId gone : group) {
      const ValueId v = graph[gone].outputs[0];
      if (!only_right_operand(graph, v)) continue;
      const Tensor matrix = *graph.constant(v);
      const auto others = by_type.find(Tensor(matrix.dtype(), {matrix.dims()[1], matrix.dims()[0]}).str());
      if (others == by_type.end()) continue;
      for (NodeId kept : others->second) {
        if (kept == gone || graph.unused(graph[kept].outputs[0]) ||
            !is_transpose(matrix, *graph.constant(graph[kept].outputs[0])))
          continue;
        const ValueId one = graph[kept].outputs[0];
        read_transposed(graph, v, one);
        // Where one of the two takes no new values the other cannot either.
        if (has_names(graph, v) && has_names(graph, one))
          add_names(graph, v, one, true);
        else
          forget_names(graph, has_names(graph, v) ? v : one);
        context.count("tie/transpose");
        changed = true;
        break;
      }
    }
  if (changed) {
    graph.sort();
    remove_dead(graph);
  }
  return changed;
}

}  // namespace

// Users that die with a matrix free others, and each round has one matrix less.
bool tie(Graph& graph, const Context& context) {
  bool changed = false;
  while (tie_once(graph, context)) changed = true;
  return changed;
}

}  // namespace pelton::passes
