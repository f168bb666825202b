// SPDX-License-Identifier: Apache-2.0
#include "passes/cse.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/text.h"
#include "passes/rewrite.h"

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

// Nodes of one key may compute the same: all is in it but most of a large tensor.
std::string key_of(const Graph& g, NodeId id) {
  const Node& n = g[id];
  std::string key(n.op->name);
  for (ValueId v : n.inputs) append(key, cat(",", v ? cat(v.index) : "_"));
  for (const auto& [name, value] : n.attrs) {
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
  if (a.attrs.size() != b.attrs.size()) return false;
  for (auto x = a.attrs.begin(), y = b.attrs.begin(); x != a.attrs.end(); ++x, ++y)
    if (x->first != y->first || !equal(x->second, y->second)) return false;
  return true;
}

}  // namespace

bool cse(Graph& graph, const Context& context) {
  std::unordered_map<std::string, std::vector<NodeId>> seen;
  bool changed = false;
  for (NodeId id : std::vector<NodeId>(graph.order())) {
    const Node& n = graph[id];
    if (n.op->effects != Effects::pure || n.op->family == Family::control || n.op->family == Family::custom)
      continue;
    std::vector<NodeId>& alike = seen[key_of(graph, id)];
    const auto same = std::find_if(alike.begin(), alike.end(), [&](NodeId other) {
      return same_attrs(n, graph[other]) && n.outputs.size() == graph[other].outputs.size();
    });
    if (same == alike.end()) {
      alike.push_back(id);
      continue;
    }
    for (size_t i = 0; i < n.outputs.size(); ++i) graph.replace_uses(n.outputs[i], graph[*same].outputs[i]);
    context.count("cse/merge");
    changed = true;
  }
  if (changed) remove_dead(graph);
  return changed;
}

}  // namespace pelton::passes
