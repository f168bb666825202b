// SPDX-License-Identifier: Apache-2.0
#include "passes/cse.h"

#include <unordered_map>

#include "base/hash.h"
#include "ir/text.h"
#include "passes/rewrite.h"

namespace pelton::passes {

using namespace ir;

namespace {

std::span<const std::byte> bytes_of(const Tensor& t) {
  return {static_cast<const std::byte*>(t.data()), static_cast<size_t>(t.bytes())};
}

// Two nodes with one key compute the same. Large tensors take part through a checksum and are compared bit by
// bit.
std::string key_of(const Graph& g, NodeId id) {
  const Node& n = g[id];
  std::string key(n.op->name);
  for (ValueId v : n.inputs) append(key, cat(",", v ? cat(v.index) : "_"));
  for (const auto& [name, value] : n.attrs) {
    append(key, cat(";", name, "="));
    if (auto t = std::get_if<Tensor>(&value); t && t->dtype() != DType::string && t->count() > 16)
      append(key, cat(t->str(), "#", checksum(bytes_of(*t)).str()));
    else
      append(key, print(value));
  }
  for (ValueId v : n.outputs) append(key, cat(":", g.type(v).layout.str()));
  return key;
}

bool same_attrs(const Node& a, const Node& b) {
  if (a.attrs.size() != b.attrs.size()) return false;
  for (auto x = a.attrs.begin(), y = b.attrs.begin(); x != a.attrs.end(); ++x, ++y)
    if (x->first != y->first || !equal(x->second, y->second)) return false;
  return true;
}

}  // namespace

bool cse(Graph& graph, const Context& context) {
  std::unordered_map<std::string, NodeId> seen;
  bool changed = false;
  for (NodeId id : std::vector<NodeId>(graph.order())) {
    const Node& n = graph[id];
    if (n.op->effects != Effects::pure || n.op->family == Family::control || n.op->family == Family::custom)
      continue;
    auto [it, fresh] = seen.emplace(key_of(graph, id), id);
    if (fresh || !same_attrs(n, graph[it->second]) || n.outputs.size() != graph[it->second].outputs.size())
      continue;
    for (size_t i = 0; i < n.outputs.size(); ++i)
      graph.replace_uses(n.outputs[i], graph[it->second].outputs[i]);
    context.count("cse/merge");
    changed = true;
  }
  if (changed) remove_dead(graph);
  return changed;
}

}  // namespace pelton::passes
