// SPDX-License-Identifier: Apache-2.0
#include "passes/fuse_updates.h"

#include <algorithm>
#include <map>
#include <set>

#include "passes/group.h"
#include "passes/rewrite.h"

namespace pelton::passes {

using namespace ir;

namespace {

bool elementwise(const Graph& g, NodeId id) {
  const Node& n = g[id];
  return n.outputs.size() == 1 && (n.op->scalar || n.is("cast")) && g.type(n.outputs[0]).layout.is_plain();
}

// "optimizer.exp_avg.fc.weight" and "low.fc.weight" belong to "fc.weight".
std::string owner(const Graph& g, const Slot& slot) {
  for (const Slot& p : g.slots)
    if (p.kind == SlotKind::parameter && slot.name.size() > p.name.size() && slot.name.ends_with(p.name) &&
        slot.name[slot.name.size() - p.name.size() - 1] == '.' &&
        (slot.name.starts_with("optimizer.") || slot.name.starts_with("average.") ||
         slot.name.starts_with("low.")))
      return p.name;
  return slot.name;
}

// The nodes that make `results`, with those before them that only they need; empty if something outside reads
// a result, since it may stand between two members.
std::vector<NodeId> members_of(const Graph& g, const std::vector<ValueId>& results) {
  std::set<NodeId> inside;
  std::vector<NodeId> queue;
  const Shape shape = g.type(results[0]).shape;
  for (ValueId v : results) {
    const NodeId id = g[v].producer;
    if (!id || !elementwise(g, id) || !(g.type(v).shape == shape)) return {};
    if (inside.insert(id).second) queue.push_back(id);
  }
  for (bool grown = true; grown;) {
    grown = false;
    for (NodeId id : std::vector<NodeId>(inside.begin(), inside.end()))
      for (ValueId v : g[id].inputs) {
        const NodeId from = v ? g[v].producer : NodeId{};
        if (!from || inside.count(from) || !elementwise(g, from) || g.is_output(v) || g.constant(v) ||
            !(g.type(v).shape == shape))
          continue;
        if (!std::all_of(g[v].uses.begin(), g[v].uses.end(),
                         [&](Use u) { return inside.count(u.user) != 0; }))
          continue;
        grown |= inside.insert(from).second;
      }
  }
  for (ValueId v : results)
    for (Use u : g[v].uses)
      if (!inside.count(u.user)) return {};
  std::vector<NodeId> members;
  for (NodeId id : g.order())
    if (inside.count(id)) members.push_back(id);
  return members;
}

}  // namespace

bool fuse_updates(Graph& g, const Context& context) {
  constexpr size_t kMostMembers = 96;
  std::map<std::string, std::vector<ValueId>> results;  // by parameter
  for (const Slot& s : g.slots)
    if (s.next && s.next != s.old_value && g.type(s.next).is_tensor() && g.type(s.next).rank() > 0)
      results[owner(g, s)].push_back(s.next);
  bool changed = false;
  for (const auto& [name, values] : results) {
    const std::vector<NodeId> members = members_of(g, values);
    if (members.size() < 2 || members.size() > kMostMembers) continue;
    const NodeId fused = make_group(g, members, "pointwise");
    if (context.oracle && !context.oracle->refuse(g, fused).empty())
      dissolve_group(g, fused);
    else
      changed = true;
  }
  return changed;
}

bool order_updates(Graph& g) {
  std::map<NodeId, size_t> place;
  const std::vector<NodeId> order = g.order();
  for (size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  // By maker of next values: the last place where one of the old values is read.
  std::map<NodeId, size_t> last;
  for (const Slot& s : g.slots) {
    const NodeId maker = s.next && s.next != s.old_value ? g[s.next].producer : NodeId{};
    if (!maker) continue;
    size_t& at = last.emplace(maker, place.at(maker)).first->second;
    for (Use u : g[s.old_value].uses)
      if (u.user != maker) at = std::max(at, place.at(u.user));
  }
  bool changed = false;
  for (const auto& [maker, at] : last) {
    if (at <= place.at(maker)) continue;
    const Node n = g[maker];  // a copy: the node is made anew in its new place
    if (!std::all_of(n.outputs.begin(), n.outputs.end(), [&](ValueId v) { return g[v].uses.empty(); }))
      continue;
    NodeId before;
    for (size_t k = at + 1; k < order.size() && !before; ++k)
      if (g[order[k]].alive) before = order[k];
    const NodeId moved = g.add_node(*n.op, n.inputs, n.attrs, n.outputs.size(), n.name, before);
    g.edit(moved).stable_id = n.stable_id;
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      const ValueId v = g[moved].outputs[i];
      g.edit(v).type = g.type(n.outputs[i]);
      g.replace_uses(n.outputs[i], v);
    }
    g.remove(maker);
    changed = true;
  }
  return changed;
}

}  // namespace pelton::passes
