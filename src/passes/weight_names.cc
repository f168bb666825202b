// SPDX-License-Identifier: Apache-2.0
#include "passes/weight_names.h"

#include "ir/op.h"

namespace pelton::passes {

using namespace ir;

namespace {

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
  g.edit(constant).name.clear();
  Attrs& attrs = g.edit(g[constant].producer).attrs;
  attrs.erase("same_names");
  attrs.erase("transposed_names");
}

}  // namespace pelton::passes
