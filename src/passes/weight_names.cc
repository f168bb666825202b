// SPDX-License-Identifier: Apache-2.0
#include "passes/weight_names.h"

#include <set>

#include "ir/op.h"

namespace pelton::passes {

using namespace ir;

namespace {

constexpr const char* kLists[] = {"same_names", "transposed_names"};

void append(Graph& g, NodeId constant, const char* key, const Strings& names) {
  if (names.empty()) return;
  Strings all = g[constant].get_strings(key);
  all.insert(all.end(), names.begin(), names.end());
  g.edit(constant).attrs[key] = std::move(all);
}

}  // namespace

void add_names(Graph& g, ValueId from, ValueId to, bool transposed) {
  const NodeId source = g[from].producer, target = g[to].producer;
  Strings same = g[source].get_strings("same_names");
  const Strings other = g[source].get_strings("transposed_names");
  if (!g[from].name.empty()) same.push_back(g[from].name);
  append(g, target, transposed ? "transposed_names" : "same_names", same);
  append(g, target, transposed ? "same_names" : "transposed_names", other);
}

void forget_names(Graph& g, ValueId constant) {
  const NodeId producer = g[constant].producer;
  std::set<std::string> names;
  if (!g[constant].name.empty()) names.insert(g[constant].name);
  for (const char* key : kLists)
    for (const std::string& name : g[producer].get_strings(key)) names.insert(name);
  if (names.empty()) return;
  for (NodeId id : std::vector<NodeId>(g.order())) {
    if (!g[id].is("constant")) continue;
    const ValueId v = g[id].outputs[0];
    if (names.count(g[v].name)) g.edit(v).name.clear();
    for (const char* key : kLists) {
      Strings left = g[id].get_strings(key);
      if (std::erase_if(left, [&](const std::string& name) { return names.count(name) > 0; }) == 0) continue;
      if (left.empty())
        g.edit(id).attrs.erase(key);
      else
        g.edit(id).attrs[key] = std::move(left);
    }
  }
}

}  // namespace pelton::passes
