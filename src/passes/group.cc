// SPDX-License-Identifier: Apache-2.0
#include "passes/group.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "passes/rewrite.h"
#include "passes/weight_names.h"

namespace pelton::passes {

using namespace ir;

namespace {

// Where the group goes: as early as its operands allow, since what it reads (the operands of a weight's
// gradient) often outweighs what it makes (the updated weight). The last member's place if a user of a result
// stands before that.
NodeId place_of_group(const Graph& g, const std::vector<NodeId>& members,
                      const std::unordered_set<uint32_t>& inside, const std::vector<ValueId>& inputs) {
  std::unordered_set<uint32_t> producers;
  for (ValueId v : inputs)
    if (g[v].producer) producers.insert(g[v].producer.index);
  const std::vector<NodeId>& order = g.order();
  NodeId at = members.front();
  bool used = false;  // by a node outside the group that has been passed
  auto it = std::find(order.begin(), order.end(), members.front());
  for (; it != order.end() && *it != members.back(); ++it) {
    if (inside.count(it->index)) continue;
    if (producers.count(it->index)) {
      if (used) return members.back();
      at = *(it + 1);
    }
    for (ValueId v : g[*it].inputs) used |= v && g[v].producer && inside.count(g[v].producer.index);
  }
  return at;
}

}  // namespace

NodeId make_group(Graph& g, const std::vector<NodeId>& members, const std::string& kind) {
  auto body = std::make_shared<Graph>(kind);
  body->symbols = g.symbols;
  std::unordered_set<uint32_t> inside;
  for (NodeId id : members) inside.insert(id.index);
  std::unordered_map<uint32_t, ValueId> map;
  std::vector<ValueId> inputs, outputs;
  std::vector<Layout> layouts;
  Builder b(*body);
  auto outside = [&](ValueId v) {
    auto it = map.find(v.index);
    if (it != map.end()) return it->second;
    ValueId copy;
    if (const Tensor* t = g.constant(v); t && (t->count() == 1 || (uniform(g, v) && t->count() <= 64))) {
      copy = b.constant(*t);
      forget_names(g, v);  // of the one outside
    } else {
      copy = body->add_input(g.type(v));
      inputs.push_back(v);
    }
    map[v.index] = copy;
    return copy;
  };
  for (NodeId id : members) {
    const Node& n = g[id];
    std::vector<ValueId> operands;
    for (ValueId v : n.inputs) operands.push_back(v ? outside(v) : ValueId{});
    NodeId copy = body->add_node(*n.op, std::move(operands), n.attrs, n.outputs.size(), n.name);
    body->edit(copy).stable_id = n.stable_id;
    infer(*body, copy);
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      const ValueId v = (*body)[copy].outputs[i];
      body->edit(v).type.layout = g.type(n.outputs[i]).layout;
      map[n.outputs[i].index] = v;
    }
  }
  for (NodeId id : members)
    for (ValueId v : g[id].outputs) {
      bool leaves = g.is_output(v);
      for (Use u : g[v].uses) leaves |= !inside.count(u.user.index);
      if (!leaves) continue;
      outputs.push_back(v);
      body->add_output(map[v.index]);
      layouts.push_back(g.type(v).layout);
    }
  NodeId fused = g.add_node(op("fused"), inputs, {{"body", GraphPtr(body)}, {"kind", kind}}, outputs.size(),
                            g[members.front()].name, place_of_group(g, members, inside, inputs));
  infer(g, fused);
  for (size_t i = 0; i < outputs.size(); ++i) {
    ValueId v = g[fused].outputs[i];
    Type type = g.type(outputs[i]);
    g.edit(v).type = type;
    g.edit(v).type.layout = layouts[i];
    g.replace_uses(outputs[i], v);
  }
  for (auto it = members.rbegin(); it != members.rend(); ++it) g.remove(*it);
  return fused;
}

std::vector<NodeId> dissolve_group(Graph& g, NodeId fused) {
  GraphPtr body = std::get<GraphPtr>(g[fused].attr("body"));
  std::unordered_map<uint32_t, ValueId> map;
  for (size_t i = 0; i < body->inputs.size(); ++i) map[body->inputs[i].index] = g[fused].inputs[i];
  std::vector<NodeId> nodes;
  for (NodeId id : body->order()) {
    const Node& n = (*body)[id];
    std::vector<ValueId> operands;
    for (ValueId v : n.inputs) operands.push_back(v ? map.at(v.index) : ValueId{});
    NodeId copy = g.add_node(*n.op, std::move(operands), n.attrs, n.outputs.size(), n.name, fused);
    g.edit(copy).stable_id = n.stable_id;
    infer(g, copy);
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      map[n.outputs[i].index] = g[copy].outputs[i];
      g.edit(g[copy].outputs[i]).type.layout = body->type(n.outputs[i]).layout;
    }
    nodes.push_back(copy);
  }
  for (size_t i = 0; i < body->outputs.size(); ++i)
    g.replace_uses(g[fused].outputs[i], map.at(body->outputs[i].index));
  g.remove(fused);
  return nodes;
}

}  // namespace pelton::passes
