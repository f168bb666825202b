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

// The depthwise convolution that x comes from with the activations behind it, or none. The last of them is
// read by the mean and by the product, the others by one another.
std::vector<NodeId> depthwise_chain(const Graph& g, ValueId x) {
  std::vector<NodeId> chain;
  if (g[x].uses.size() != 2 || g.is_output(x)) return {};
  for (ValueId v = x; g[v].producer; v = input(g, g[v].producer, 0)) {
    const NodeId id = g[v].producer;
    if (v != x && !single_use(g, v)) return {};
    chain.push_back(id);
    if (g[id].is("conv")) return g[id].get_int("groups") > 1 ? chain : std::vector<NodeId>();
    if (!is_activation(g, id)) return {};
  }
  return {};
}

// Only a convolution of one place reads it.
bool goes_to_product(const Graph& g, ValueId v) {
  if (!single_use(g, v)) return false;
  const NodeId conv = g[v].uses[0].user;
  if (!g[conv].is("conv") || input(g, conv, 0) != v || g[conv].get_int("groups") != 1) return false;
  const Shape& w = g.type(input(g, conv, 1)).shape;
  return std::all_of(w.begin() + 2, w.end(), [](const Dim& d) { return d == Dim(1); });
}

// The block without its product, which the next convolution takes (gate_of): with a depthwise convolution in
// front it need not read its data again.
bool fuse_excite(Graph& g, const std::vector<NodeId>& block, const Context& context) {
  const NodeId product = block.front();
  if (!goes_to_product(g, result(g, product))) return false;
  const NodeId mean = block.back();
  std::vector<NodeId> members = depthwise_chain(g, input(g, mean, 0));
  if (members.empty()) return false;
  members.insert(members.end(), block.begin() + 1, block.end());
  return try_group(g, members, "excite", context);
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
      std::vector<NodeId> nodes = excitation(graph, id, side);
      if (nodes.empty()) continue;
      if (fuse_excite(graph, nodes, context)) {
        changed = true;
        break;
      }
      nodes = excitation(graph, id, side);  // dissolving a group makes new nodes
      changed |= try_group(graph, nodes, "squeeze_excite", context);
      break;
    }
  }
  return changed;
}

NodeId gate_of(const Graph& g, NodeId conv) {
  const NodeId product = producer(g, input(g, conv, 0), "mul");
  if (!product || !goes_to_product(g, result(g, product))) return {};
  for (size_t side : {size_t{0}, size_t{1}}) {
    const NodeId from = producer(g, input(g, product, side), "fused");
    if (from && g[from].get_text("kind") == "excite" && g[from].outputs[1] == input(g, product, side) &&
        g[from].outputs[0] == input(g, product, 1 - side))
      return product;
  }
  return {};
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
