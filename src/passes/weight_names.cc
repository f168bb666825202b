// SPDX-License-Identifier: Apache-2.0
#include "passes/weight_names.h"

#include <algorithm>

#include "ir/infer.h"
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

template <class Is>
void erase_names(Graph& g, NodeId constant, const char* key, Is is) {
  Strings left = g[constant].get_strings(key);
  if (std::erase_if(left, is) == 0) return;
  if (left.empty())
    g.edit(constant).attrs.erase(key);
  else
    g.edit(constant).attrs[key] = std::move(left);
}

// Ops whose results' sizes follow from the value of an operand that need not be an integer.
constexpr std::string_view kSizedByValue[] = {"range", "one_hot"};

// Whether inference may have read the value for a type or a shape.
bool may_be_size(const Graph& g, ValueId v) {
  const Tensor& t = *g.constant(v);
  if (t.dtype() == DType::boolean) return true;
  const bool sizes = known_contents(g, v).has_value();
  return std::any_of(g[v].uses.begin(), g[v].uses.end(), [&](Use u) {
    const OpDef& op = g.op(u.user);
    const bool numbers =
        op.family == Family::quantize || op.family == Family::contraction || op.family == Family::convolution;
    return (sizes && !numbers) ||
           std::find(std::begin(kSizedByValue), std::end(kSizedByValue), op.name) != std::end(kSizedByValue);
  });
}

// Data of the constants of all sub-graphs.
void collect_inner(const Graph& g, std::set<const void*>& data, bool inner) {
  for (NodeId id : g.order()) {
    if (inner && g[id].is("constant") && g[id].get_tensor("value").dtype() != DType::string)
      data.insert(g[id].get_tensor("value").data());
    for (const auto& [key, value] : g[id].attrs)
      if (auto body = std::get_if<GraphPtr>(&value); body && *body) collect_inner(**body, data, true);
  }
}

}  // namespace

std::set<std::string> weight_names(const Graph& model) {
  std::set<const void*> inner;
  collect_inner(model, inner, false);
  std::set<std::string> names;
  for (NodeId id : model.order()) {
    if (!model[id].is("constant")) continue;
    const ValueId v = model[id].outputs[0];
    const Tensor& t = *model.constant(v);
    if (t.dtype() == DType::string) continue;
    const bool copied = t.count() > 0 && inner.count(t.data());
    if (!model[v].name.empty() && !copied && !may_be_size(model, v)) names.insert(model[v].name);
  }
  return names;
}

void keep_names(Graph& g, const std::set<std::string>& names) {
  for (NodeId id : g.order()) {
    if (!g[id].is("constant")) continue;
    const ValueId v = g[id].outputs[0];
    if (!names.count(g[v].name) && !g.is_output(v)) g.edit(v).name.clear();
    for (const char* key : kLists)
      erase_names(g, id, key, [&](const auto& name) { return !names.count(name); });
  }
}

bool is_distinct(const Tensor& t) {
  constexpr int64_t kLeastElements = 64;
  if (!is_float(t.dtype()) || bits(t.dtype()) < 16 || t.count() < kLeastElements) return false;
  const double first = t.get_double(0);
  for (int64_t i = 1; i < t.count(); ++i)
    if (t.get_double(i) != first) return true;
  return false;
}

bool is_name_list(std::string_view attr) {
  return std::find(std::begin(kLists), std::end(kLists), attr) != std::end(kLists);
}

bool has_names(const Graph& g, ValueId constant) {
  const Node& n = g[g[constant].producer];
  return !g[constant].name.empty() || std::any_of(std::begin(kLists), std::end(kLists), [&](const char* key) {
    return !n.get_strings(key).empty();
  });
}

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
    for (const char* key : kLists)
      erase_names(g, id, key, [&](const auto& name) { return names.count(name) > 0; });
  }
}

}  // namespace pelton::passes
