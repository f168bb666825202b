// SPDX-License-Identifier: Apache-2.0
#include "onnx/import/custom.h"

#include <nlohmann/json.hpp>

#include "onnx/import/importer.h"

namespace pelton::onnx {
namespace {

using nlohmann::json;

json attribute_value(const NodeContext& c, const AttributeView& a) {
  using Type = AttributeView::Type;
  switch (a.type) {
    case Type::f:
      return a.f;
    case Type::i:
      return a.i;
    case Type::s:
      return std::string(a.s);
    case Type::floats:
      return a.floats;
    case Type::ints:
      return a.ints;
    case Type::strings:
      return c.get_texts(a.name);
    default:
      c.refuse(
          ErrorCode::unsupported_op,
          cat("attribute '", a.name, "' is no number, text or list of them, which is all that plug-ins take"),
          "make a tensor an input");
  }
}

}  // namespace

const ir::CustomOp* plugin_op(const NodeView& node, int64_t opset) {
  return ir::newest_custom_op(node.domain.empty() ? "ai.onnx" : node.domain, node.op_type, opset);
}

void import_custom(NodeContext& c, const ir::CustomOp& op, ValueId& token) {
  json attributes = json::object();
  for (const AttributeView& a : c.node.attributes) attributes[std::string(a.name)] = attribute_value(c, a);
  Attrs attrs;
  attrs["domain"] = op.domain;
  attrs["name"] = op.name;
  attrs["version"] = op.version;
  if (!attributes.empty())
    attrs["attributes"] = attributes.dump(-1, ' ', false, json::error_handler_t::replace);
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < c.input_count(); ++i) inputs.push_back(c.opt(i));
  size_t results = c.output_count();
  if (op.effects) {
    if (c.importer.known_inputs(c.b.graph()) == nullptr)
      c.refuse(ErrorCode::unsupported_op, "an op with effects cannot stand in a branch or loop",
               "move it to the graph around");
    inputs.push_back(token ? token : c.b.op("token", {}));
    ++results;
  }
  const std::vector<ValueId> made = c.b.ops("custom", std::move(inputs), std::move(attrs), results);
  if (op.effects) token = made.back();
  for (size_t i = 0; i < c.output_count(); ++i) c.out(i, made[i]);
}

}  // namespace pelton::onnx
