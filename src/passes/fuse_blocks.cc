// SPDX-License-Identifier: Apache-2.0
#include "passes/fuse_blocks.h"

#include <algorithm>

#include "passes/group.h"
#include "passes/rewrite.h"

namespace pelton::passes {

using namespace ir;

namespace {

// Nodes in the order of the graph, each once.
std::vector<NodeId> in_order(const Graph& g, const std::vector<NodeId>& nodes) {
  std::vector<NodeId> out;
  for (NodeId id : g.order())
    if (std::find(nodes.begin(), nodes.end(), id) != nodes.end()) out.push_back(id);
  return out;
}

bool try_group(Graph& g, const std::vector<NodeId>& members, const char* kind, const Context& context) {
  const NodeId fused = make_group(g, in_order(g, members), kind);
  if (context.oracle && context.oracle->refuse(g, fused).empty()) {
    context.count(cat("fusion/", kind));
    return true;
  }
  dissolve_group(g, fused);
  return false;
}

bool is_activation(const Graph& g, NodeId id) {
  static constexpr std::string_view kNames[] = {"relu",         "silu",       "sigmoid",
                                                "hard_sigmoid", "hard_swish", "gelu"};
  return std::find(std::begin(kNames), std::end(kNames), g[id].op->name) != std::end(kNames);
}

// Walks from the product back to the mean; the nodes between x and the product, or none.
std::vector<NodeId> excitation(const Graph& g, NodeId product, size_t side) {
  const ValueId x = input(g, product, 1 - side);
  std::vector<NodeId> nodes{product};
  ValueId v = input(g, product, side);
  for (int layer = 0; layer < 2; ++layer) {
    const NodeId act = g[v].producer;
    if (!act || !is_activation(g, act) || !single_use(g, v)) return {};
    const ValueId sum = input(g, act, 0);
    const NodeId conv = producer(g, sum, "conv");
    if (!conv || !single_use(g, sum)) return {};
    nodes.push_back(act);
    nodes.push_back(conv);
    v = input(g, conv, 0);
    // Values of one place may change their layout without a byte moving.
    if (const NodeId layout = producer(g, v, "layout"); layout && single_use(g, v)) return {};
  }
  const NodeId mean = producer(g, v, "reduce_mean");
  if (!mean || !single_use(g, v) || input(g, mean, 0) != x) return {};
  nodes.push_back(mean);
  return nodes;
}

bool is_view(const Graph& g, NodeId id) {
  return id && (g[id].is("slice") || g[id].is("reshape") || g[id].is("transpose"));
}
// The views that yield q, k and v and that nothing else reads; they may share some.
void add_views(const Graph& g, NodeId attention, std::vector<NodeId>& nodes) {
  auto holds = [&](NodeId id) { return std::find(nodes.begin(), nodes.end(), id) != nodes.end(); };
  for (size_t i = 0; i < 3; ++i)
    for (NodeId id = g[input(g, attention, i)].producer; is_view(g, id); id = g[input(g, id, 0)].producer)
      if (!holds(id)) nodes.push_back(id);
  for (bool dropped = true; dropped;) {
    dropped = false;
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i] == attention) continue;
      const ValueId v = result(g, nodes[i]);
      bool inside = !g.is_output(v);
      for (Use u : g[v].uses) inside &= holds(u.user);
      if (inside) continue;
      nodes.erase(nodes.begin() + static_cast<std::ptrdiff_t>(i));
      dropped = true;
      break;
    }
  }
}

}  // namespace

bool fuse_squeeze_excite(Graph& graph, const Context& context) {
  bool changed = false;
  for (NodeId id : std::vector<NodeId>(graph.order())) {
    if (!graph[id].alive || !graph[id].is("mul")) continue;
    for (size_t side : {size_t{0}, size_t{1}}) {
      const std::vector<NodeId> nodes = excitation(graph, id, side);
      if (nodes.empty()) continue;
      changed |= try_group(graph, nodes, "squeeze_excite", context);
      break;
    }
  }
  return changed;
}

bool fuse_attention_views(Graph& graph, const Context& context) {
  bool changed = false;
  for (NodeId id : std::vector<NodeId>(graph.order())) {
    if (!graph[id].alive || !graph[id].is("attention") || graph[id].outputs.size() != 1) continue;
    const uint64_t stable = graph[id].stable_id;
    // With the result's views, then without: dissolving a group makes new nodes.
    for (bool result_too : {true, false}) {
      NodeId attention;
      for (NodeId n : graph.order())
        if (graph[n].stable_id == stable && graph[n].is("attention")) attention = n;
      if (!attention) break;
      std::vector<NodeId> nodes{attention};
      add_views(graph, attention, nodes);
      ValueId y = result(graph, attention);
      while (result_too && single_use(graph, y)) {
        const NodeId user = graph[y].uses[0].user;
        if (!graph[user].is("reshape") && !graph[user].is("transpose")) break;
        nodes.push_back(user);
        y = result(graph, user);
      }
      if (nodes.size() == 1) break;
      if (try_group(graph, nodes, "attention", context)) {
        changed = true;
        break;
      }
    }
  }
  return changed;
}

}  // namespace pelton::passes
