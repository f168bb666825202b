// SPDX-License-Identifier: Apache-2.0
// Custom ops go back to the domain and name that they came from. Tokens, which order those with effects, have
// no form in ONNX: the order of the nodes stands for them.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "onnx/export/export_context.h"

namespace pelton::onnx {
namespace {

using nlohmann::json;

template <class T>
OnnxAttr list_attr(std::string_view name, const json& list) {
  return attr(name, list.get<std::vector<T>>());
}

OnnxAttr attribute(ExportContext& c, const std::string& name, const json& value) {
  auto all = [&](bool (json::*is)() const noexcept) {
    return value.is_array() &&
           std::all_of(value.begin(), value.end(), [&](const json& x) { return (x.*is)(); });
  };
  if (value.is_number_integer() || value.is_boolean()) return attr(name, value.get<int64_t>());
  if (value.is_number()) return attr(name, value.get<double>());
  if (value.is_string()) return attr(name, std::string_view(value.get_ref<const std::string&>()));
  if (all(&json::is_number_integer)) return list_attr<int64_t>(name, value);
  if (all(&json::is_number)) return list_attr<double>(name, value);
  if (all(&json::is_string)) return list_attr<std::string>(name, value);
  c.refuse(cat("attribute '", name, "' of a custom op is ", value.dump()));
}

void custom(ExportContext& c) {
  const std::string& domain = c.node.get_text("domain");
  const std::string& text = c.node.get_text("attributes");
  std::vector<OnnxAttr> attrs;
  const json attributes = text.empty() ? json::object() : json::parse(text, nullptr, false);
  if (!attributes.is_object()) c.refuse("the attributes of a custom op are no JSON object");
  for (const auto& [name, value] : attributes.items()) attrs.push_back(attribute(c, name, value));
  auto is_token = [&](ir::ValueId v) { return v && c.graph.type(v).kind == ir::TypeKind::token; };
  std::vector<Name> inputs;
  for (size_t i = 0; i < c.node.inputs.size(); ++i)
    if (!is_token(c.node.inputs[i])) inputs.push_back(c.in(i));
  size_t results = c.node.outputs.size();
  if (results && is_token(c.node.outputs.back())) --results;
  const bool in_default = domain == "ai.onnx";
  if (!in_default) {
    int64_t& version = c.w.state().domains[domain];
    version = std::max(version, c.node.get_int("version"));
  }
  c.results = c.w.ops(c.node.get_text("name"), inputs, attrs, results, in_default ? "" : domain);
}

void token(ExportContext&) {}

}  // namespace

void export_custom(ExportTable& table) {
  table.add("custom", custom);
  table.add("token", token);
  table.add("join", token);
}

}  // namespace pelton::onnx
