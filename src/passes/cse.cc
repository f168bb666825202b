// SPDX-License-Identifier: Apache-2.0
#include "passes/cse.h"

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/text.h"
#include "passes/rewrite.h"
#include "passes/specialise.h"
#include "passes/weight_names.h"

namespace pelton::passes {

using namespace ir;

namespace {

// A few of the bytes of a large tensor.
std::string sample(const Tensor& t) {
  constexpr size_t kBytes = 16, kPlaces = 4;
  const auto size = static_cast<size_t>(t.bytes());
  const size_t each = std::min(kBytes, size);
  std::string out;
  for (size_t i = 0; i < kPlaces; ++i)
    out.append(static_cast<const char*>(t.data()) + (size - each) * i / (kPlaces - 1), each);
  return out;
}

// Constants that are equal and stay two, as new values may come for either: the first of them for each.
class Equal {
 public:
  void add(ValueId v, ValueId first) { first_[v.index] = of(first); }
  ValueId of(ValueId v) const {
    const auto it = first_.find(v.index);
    return it == first_.end() ? v : it->second;
  }

 private:
  std::unordered_map<uint32_t, ValueId> first_;
};

// Nodes of one key may compute the same: all is in it but most of a large tensor.
std::string key_of(const Graph& g, NodeId id, const Equal& equal) {
  const Node& n = g[id];
  std::string key(n.op->name);
  for (ValueId v : n.inputs) append(key, cat(",", v ? cat(equal.of(v).index) : "_"));
  for (const auto& [name, value] : n.attrs) {
    if (is_name_list(name)) continue;
    append(key, cat(";", name, "="));
    if (auto t = std::get_if<Tensor>(&value); t && t->dtype() != DType::string && t->count() > 16)
      append(key, cat(t->str(), "#", sample(*t)));
    else
      append(key, print(value));
  }
  for (ValueId v : n.outputs) append(key, cat(":", g.type(v).layout.str()));
  return key;
}

bool same_attrs(const Node& a, const Node& b) {
  const auto next = [](const Node& n, Attrs::const_iterator it) {
    while (it != n.attrs.end() && is_name_list(it->first)) ++it;
    return it;
  };
  auto x = next(a, a.attrs.begin()), y = next(b, b.attrs.begin());
  for (; x != a.attrs.end() && y != b.attrs.end(); x = next(a, ++x), y = next(b, ++y))
    if (x->first != y->first || !equal(x->second, y->second)) return false;
  return x == a.attrs.end() && y == b.attrs.end();
}

// Equal constants become one where no new values can tell them apart: without names, or as one weight that
// the model holds twice, which then has the names of both. False: they stay two.
bool merge_names(Graph& g, ValueId gone, ValueId kept) {
  const bool gone_named = has_names(g, gone), kept_named = has_names(g, kept);
  if (!gone_named && !kept_named) return true;
  if (!gone_named || !kept_named || !is_distinct(*g.constant(kept))) return false;
  add_names(g, gone, kept, false);
  return true;
}

// A size that shows only when a node runs has a name for each node. Where `node` does what `kept` does, the
// names of its sizes become those of `kept`; false if its results have sizes that are more than such a name.
bool unify_sizes(Graph& g, NodeId kept, NodeId node) {
  Replacements names;
  for (size_t i = 0; i < g[node].outputs.size(); ++i) {
    const Type &a = g.type(g[kept].outputs[i]), &b = g.type(g[node].outputs[i]);
    if (a == b) continue;
    if (!a.is_tensor() || !b.is_tensor() || a.shape.size() != b.shape.size()) return false;
    for (size_t d = 0; d < a.shape.size(); ++d) {
      if (a.shape[d] == b.shape[d]) continue;
      const auto symbol = b.shape[d].as_symbol();
      if (!symbol || names.try_emplace(*symbol, a.shape[d]).first->second != a.shape[d]) return false;
    }
  }
  if (names.empty()) return true;
  auto known = [&](ValueId v) {
    std::set<std::string> symbols;
    for (const Dim& d : g.type(v).shape) d.collect_symbols(symbols);
    return std::any_of(names.begin(), names.end(), [&](const auto& n) { return symbols.count(n.first); });
  };
  for (ValueId v : g.inputs)
    if (known(v)) return false;
  for (NodeId id : g.order()) {
    if (id == node) break;
    for (ValueId v : g[id].outputs)
      if (known(v)) return false;
  }
  substitute(g, names);
  return true;
}

// names_lost: constants that were two because of their names are no longer.
bool merge_equal(Graph& graph, const Context& context, bool& names_lost) {
  std::unordered_map<std::string, std::vector<NodeId>> seen;
  Equal equal_constants;
  bool changed = false;
  for (NodeId id : std::vector<NodeId>(graph.order())) {
    const Node& n = graph[id];
    if (n.op->effects != Effects::pure || n.op->family == Family::control || n.op->family == Family::custom)
      continue;
    std::vector<NodeId>& alike = seen[key_of(graph, id, equal_constants)];
    const auto same = std::find_if(alike.begin(), alike.end(), [&](NodeId other) {
      return same_attrs(n, graph[other]) && n.outputs.size() == graph[other].outputs.size();
    });
    if (same == alike.end() || !unify_sizes(graph, *same, id)) {
      alike.push_back(id);
      continue;
    }
    const Node& kept = graph[*same];
    if (n.is("constant") && !merge_names(graph, n.outputs[0], kept.outputs[0])) {
      equal_constants.add(n.outputs[0], kept.outputs[0]);
      continue;
    }
    // Two nodes are one only as long as their constants are equal.
    for (size_t i = 0; i < n.inputs.size(); ++i)
      if (n.inputs[i] != kept.inputs[i]) {
        for (ValueId v : {n.inputs[i], kept.inputs[i]}) forget_names(graph, v);
        names_lost = true;
      }
    for (size_t i = 0; i < n.outputs.size(); ++i) graph.replace_uses(n.outputs[i], kept.outputs[i]);
    graph.remove(id);
    context.count("cse/merge");
    changed = true;
  }
  if (changed) remove_dead(graph);
  return changed;
}

}  // namespace

bool cse(Graph& graph, const Context& context) {
  bool changed = false, again = true;
  while (again) {
    again = false;
    changed |= merge_equal(graph, context, again);
  }
  return changed;
}

}  // namespace pelton::passes
