// SPDX-License-Identifier: Apache-2.0
#include "passes/merge_updates.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_set>

#include "ir/builder.h"
#include "ir/infer.h"
#include "ir/op.h"
#include "ir/segments.h"
#include "passes/rewrite.h"
#include "passes/weight_names.h"

namespace pelton::passes {

using namespace ir;

namespace {

constexpr size_t kFewest = 2, kMost = 1024;  // segments of a node

// Whether closed(g, id) holds a copy of operand v of the node.
bool copied(const Graph& g, NodeId id, ValueId v) {
  const Tensor* t = v && !g[id].is("fused") ? g.constant(v) : nullptr;
  return t && t->count() == 1;
}

// The node's body, of a single node the node itself; none where it cannot be a segment.
GraphPtr closed(const Graph& g, NodeId id) {
  const Node& n = g[id];
  if (n.is("fused")) {
    const std::string& kind = n.get_text("kind");
    return kind == "pointwise" || kind == "reduce" ? std::get<GraphPtr>(n.attr("body")) : nullptr;
  }
  if (n.outputs.size() != 1 || !(n.op->scalar || n.is("cast") || n.is("reduce_sum"))) return nullptr;
  auto body = std::make_shared<Graph>("segment");
  body->symbols = g.symbols;
  Builder b(*body);
  std::vector<ValueId> operands;
  for (ValueId v : n.inputs) {
    if (!v || !g.type(v).is_tensor()) return nullptr;
    operands.push_back(copied(g, id, v) ? b.constant(*g.constant(v)) : body->add_input(g.type(v)));
  }
  const NodeId copy = body->add_node(*n.op, operands, n.attrs, 1, n.name);
  body->edit(copy).stable_id = n.stable_id;
  infer(*body, copy);
  body->edit((*body)[copy].outputs[0]).type.layout = g.type(n.outputs[0]).layout;
  body->add_output((*body)[copy].outputs[0]);
  return body;
}

// Values of the graph that the inputs of closed(g, id) stand for.
std::vector<ValueId> operands_of(const Graph& g, NodeId id) {
  std::vector<ValueId> out;
  for (ValueId v : g[id].inputs)
    if (!copied(g, id, v)) out.push_back(v);
  return out;
}

struct Candidate {
  NodeId id;
  GraphPtr body;
};

// The longest ways from a node to the end of the graph: counted in nodes, and in those that handle more than
// single elements. Along an edge the pair (tensors, nodes) falls, and out of a node of tensors its first
// figure does. So nodes of tensors with one first figure do not depend on one another, however long the chain
// that adds up what they yield, nor do nodes of single elements with one pair; and what is merged class by
// class, from large to small, makes no cycle.
struct Distance {
  int tensors = 0, nodes = 0;
};
bool single(const Graph& g, NodeId id) {
  const Node& n = g[id];
  auto one = [&](ValueId v) {
    const std::optional<Dims> dims = v && g.type(v).is_tensor() ? as_dims(g.type(v).shape) : std::nullopt;
    return dims && element_count(*dims) == 1;
  };
  return std::all_of(n.inputs.begin(), n.inputs.end(), one) &&
         std::all_of(n.outputs.begin(), n.outputs.end(), one);
}
std::map<NodeId, Distance> distances(const Graph& g) {
  std::map<NodeId, Distance> out;
  for (auto it = g.order().rbegin(); it != g.order().rend(); ++it) {
    Distance d;
    for (ValueId v : g[*it].outputs)
      for (Use u : g[v].uses) {
        const Distance& of = out.at(u.user);
        d = {std::max(d.tensors, of.tensors), std::max(d.nodes, of.nodes)};
      }
    out[*it] = {d.tensors + (single(g, *it) ? 0 : 1), d.nodes + 1};
  }
  return out;
}

// False where no kernel takes them together.
bool replace_by_merged(Graph& g, const std::vector<Candidate>& all, const std::string& kind,
                       const Context& context) {
  auto body = std::make_shared<Graph>(kind);
  body->symbols = g.symbols;
  std::map<ValueId, ValueId> inside;  // of values of the graph
  std::vector<ValueId> inputs, results;
  for (const Candidate& c : all) {
    const std::vector<ValueId> operands = operands_of(g, c.id);
    std::map<ValueId, ValueId> map;
    for (size_t i = 0; i < c.body->inputs.size(); ++i) {
      auto [it, fresh] = inside.emplace(operands[i], ValueId{});
      if (fresh) {
        it->second = body->add_input(g.type(operands[i]));
        inputs.push_back(operands[i]);
      }
      map[c.body->inputs[i]] = it->second;
    }
    for (NodeId id : c.body->order()) {
      const Node& n = (*c.body)[id];
      std::vector<ValueId> from;
      for (ValueId v : n.inputs) from.push_back(map.at(v));
      const NodeId copy = body->add_node(*n.op, std::move(from), n.attrs, n.outputs.size(), n.name);
      body->edit(copy).stable_id = n.stable_id;
      infer(*body, copy);
      for (size_t i = 0; i < n.outputs.size(); ++i) map[n.outputs[i]] = (*body)[copy].outputs[i];
    }
    for (ValueId v : c.body->outputs) body->add_output(map.at(v));
    results.insert(results.end(), g[c.id].outputs.begin(), g[c.id].outputs.end());
  }
  const NodeId merged =
      g.add_node(op("fused"), inputs,
                 {{"body", GraphPtr(body)}, {"kind", kind}, {"segments", static_cast<int64_t>(all.size())}},
                 results.size(), g[all[0].id].name);
  infer(g, merged);
  for (size_t i = 0; i < results.size(); ++i) g.edit(g[merged].outputs[i]).type = g.type(results[i]);
  if (context.oracle && !context.oracle->refuse(g, merged).empty()) {
    g.remove(merged);
    return false;
  }
  for (size_t i = 0; i < results.size(); ++i) g.replace_uses(results[i], g[merged].outputs[i]);
  for (const Candidate& c : all) {
    for (ValueId v : g[c.id].inputs)
      if (v && copied(g, c.id, v)) forget_names(g, v);
    g.remove(c.id);
  }
  return true;
}

}  // namespace

bool merge_updates(Graph& g, const Context& context) {
  std::unordered_set<uint32_t> next;
  std::set<ValueId> state;  // that changes
  for (const Slot& s : g.slots)
    if (s.next && s.next != s.old_value) {
      next.insert(s.next.index);
      state.insert(s.old_value);
    }
  const std::map<NodeId, Distance> distance = distances(g);
  using Key = std::tuple<int, int, std::string, std::string>;
  std::map<Key, std::vector<Candidate>, std::greater<>> classes;
  std::set<ValueId> taken;  // state that segments which write state read
  for (NodeId id : g.order()) {
    const Node& n = g[id];
    const bool numbers = single(g, id);
    const bool updates = !numbers && std::any_of(n.outputs.begin(), n.outputs.end(),
                                                 [&](ValueId v) { return next.count(v.index) != 0; });
    const bool sums = !numbers && !updates && n.outputs.size() == 1 && g.type(n.outputs[0]).is_tensor() &&
                      g.type(n.outputs[0]).rank() == 0;
    if (!numbers && !updates && !sums) continue;
    GraphPtr body = closed(g, id);
    if (!body) continue;
    const char* kind = sums ? kSegmentSums : kSegments;
    const Segment segment = segment_at(*body, 0, body->order().size(), kind);
    if (segment.program.empty() || segment.results.size() != n.outputs.size()) continue;
    // A kernel may write over the state that a segment reads: no other segment may read it.
    bool alone = true;
    for (ValueId v : updates ? operands_of(g, id) : std::vector<ValueId>{})
      alone &= !state.count(v) || taken.insert(v).second;
    if (!alone) continue;
    const Distance& d = distance.at(id);
    classes[{d.tensors, numbers ? d.nodes : 0, kind, segment.program}].push_back({id, std::move(body)});
  }
  bool changed = false;
  for (const auto& [key, all] : classes)
    for (size_t at = 0; at < all.size(); at += kMost) {
      const std::vector<Candidate> part(
          all.begin() + static_cast<std::ptrdiff_t>(at),
          all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), at + kMost)));
      if (part.size() >= kFewest) changed |= replace_by_merged(g, part, std::get<2>(key), context);
    }
  if (changed) g.sort();
  return changed;
}

}  // namespace pelton::passes
