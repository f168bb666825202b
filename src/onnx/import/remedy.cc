// SPDX-License-Identifier: Apache-2.0
#include "onnx/import/remedy.h"

#include "ir/op.h"

namespace pelton::onnx {
namespace {

struct Origin {
  std::set<std::string> symbols;  // of sizes
  bool contents = false;          // of an input, or of what a node draws or counts
};

Origin origin_of(const ir::Graph& graph, ir::ValueId value) {
  Origin out;
  std::set<ir::ValueId> seen;
  std::vector<ir::ValueId> left{value};
  while (!left.empty()) {
    const ir::ValueId id = left.back();
    left.pop_back();
    if (!id || graph.constant(id) || !seen.insert(id).second) continue;
    const ir::Value& v = graph[id];
    if (v.contents) {
      for (const Dim& d : *v.contents) d.collect_symbols(out.symbols);
      continue;
    }
    if (!v.producer) {
      out.contents = true;
      continue;
    }
    const ir::Node& n = graph[v.producer];
    if (v.type.is_tensor())
      for (const Dim& d : v.type.shape) d.collect_symbols(out.symbols);
    left.insert(left.end(), n.inputs.begin(), n.inputs.end());
  }
  return out;
}

}  // namespace

std::string remedy_of_sizes(const ir::Graph& model, const std::set<std::string>& symbols) {
  std::string flags;
  for (ir::ValueId v : model.inputs) {
    const ir::Type& t = model.type(v);
    if (!t.is_tensor() || !t.ranked) continue;
    std::string dims;
    bool named = false;
    for (const Dim& d : t.shape) {
      append(dims, cat(dims.empty() ? "" : "x", d.str()));
      named |= d.as_symbol() && symbols.count(std::string(*d.as_symbol()));
    }
    if (named) append(flags, cat(" --shape ", model[v].name, "=", dims));
  }
  return flags.empty() ? flags : cat("fix the open sizes:", flags, ", with numbers for the names");
}

std::string remedy_of_value(const ir::Graph& model, const ir::Graph& graph, ir::ValueId value) {
  const Origin origin = origin_of(graph, value);
  const std::string sizes = origin.contents ? "" : remedy_of_sizes(model, origin.symbols);
  return sizes.empty() ? "it follows from values of a run, not from sizes alone: put a constant in its place"
                       : cat(sizes, ", or fold it into the model");
}

}  // namespace pelton::onnx
