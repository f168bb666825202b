// SPDX-License-Identifier: Apache-2.0
// Functions of the model, put in place of their calls.
#include <algorithm>
#include <utility>

#include "onnx/import/importer.h"

namespace pelton::onnx {
namespace {

// The body of a function with the attributes of its call put in place of references.
std::vector<AttributeView> bind_attributes(const std::vector<AttributeView>& attributes,
                                           const FunctionView& function, const NodeView& call);

NodeView bind_node(const NodeView& node, const FunctionView& function, const NodeView& call) {
  NodeView out = node;
  out.attributes = bind_attributes(node.attributes, function, call);
  return out;
}

std::vector<AttributeView> bind_attributes(const std::vector<AttributeView>& attributes,
                                           const FunctionView& function, const NodeView& call) {
  std::vector<AttributeView> out;
  for (const AttributeView& a : attributes) {
    if (!a.ref_attr_name.empty()) {
      auto named = [&](const AttributeView& x) { return x.name == a.ref_attr_name; };
      const AttributeView* found = nullptr;
      for (const auto* list : {&call.attributes, &function.defaults})
        if (auto it = std::find_if(list->begin(), list->end(), named); !found && it != list->end())
          found = &*it;
      if (!found) continue;  // absent: the op's own default holds
      out.push_back(*found);
      out.back().name = a.name;
      continue;
    }
    out.push_back(a);
    for (auto& g : out.back().graphs) {
      auto bound = std::make_shared<GraphView>(*g);
      for (NodeView& n : bound->nodes) n = bind_node(n, function, call);
      g = bound;
    }
  }
  return out;
}

}  // namespace

const FunctionView* Importer::find_function(const NodeView& node) const {
  for (const FunctionView& f : model_.functions)
    if (f.name == node.op_type && f.domain == node.domain && f.overload == node.overload) return &f;
  return nullptr;
}

void Importer::import_function(const FunctionView& function, NodeContext& call) {
  if (call.node.inputs.size() > function.inputs.size() || call.node.outputs.size() > function.outputs.size())
    call.refuse(ErrorCode::bad_format,
                cat("calls function '", function.name, "' with ", call.node.inputs.size(), " inputs and ",
                    call.node.outputs.size(), " outputs; it has ", function.inputs.size(), " and ",
                    function.outputs.size()));
  std::vector<NodeView> nodes;
  for (const NodeView& n : function.nodes) nodes.push_back(bind_node(n, function, call.node));
  Scope body(call.scope.build(), nullptr, source_, cat(call.b.node_name(), "/"));
  for (size_t i = 0; i < function.inputs.size(); ++i)
    if (call.has(i)) body.define(function.inputs[i], call.in(i));
  // An absent optional input is an empty name wherever the body uses it.
  for (NodeView& n : nodes)
    for (std::string_view& name : n.inputs)
      for (size_t i = 0; i < function.inputs.size(); ++i)
        if (!call.has(i) && name == function.inputs[i]) name = {};
  const OpsetMap* outer = std::exchange(opsets_, function.opsets.empty() ? opsets_ : &function.opsets);
  try {
    std::vector<std::string_view> results;
    for (size_t i = 0; i < function.outputs.size(); ++i)
      if (call.wants(i)) results.push_back(function.outputs[i]);
    import_nodes(nodes, results, body);
  } catch (...) {
    opsets_ = outer;
    throw;
  }
  opsets_ = outer;
  for (size_t i = 0; i < function.outputs.size(); ++i)
    if (call.wants(i)) call.out(i, body.find(function.outputs[i]));
}

}  // namespace pelton::onnx
