// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <queue>
#include <set>

#include "onnx/import/importer.h"

namespace pelton::onnx {
namespace {

void collect_free_names(const GraphView& graph, std::vector<std::string_view>& out) {
  std::set<std::string_view> inside;
  for (const ValueInfoView& v : graph.inputs) inside.insert(v.name);
  for (const TensorView& t : graph.initializers) inside.insert(t.name);
  for (const NodeView& n : graph.nodes) inside.insert(n.outputs.begin(), n.outputs.end());
  auto use = [&](std::string_view name) {
    if (!name.empty() && !inside.count(name)) out.push_back(name);
  };
  for (const NodeView& n : graph.nodes)
    for (std::string_view name : used_names(n)) use(name);
  for (const ValueInfoView& v : graph.outputs) use(v.name);
}

std::string describe(const NodeView& n) {
  return n.name.empty() ? cat(n.op_type, " at byte ", n.offset) : cat(n.op_type, " '", n.name, "'");
}

}  // namespace

std::vector<std::string_view> used_names(const NodeView& node) {
  std::vector<std::string_view> out;
  for (std::string_view name : node.inputs)
    if (!name.empty()) out.push_back(name);
  for (const AttributeView& a : node.attributes)
    for (const auto& g : a.graphs) collect_free_names(*g, out);
  return out;
}

std::vector<const NodeView*> order_nodes(const std::vector<NodeView>& nodes,
                                         const std::vector<std::string_view>& results,
                                         const std::function<bool(std::string_view)>& is_known,
                                         const std::function<bool(const NodeView&)>& is_kept) {
  std::map<std::string_view, size_t> producer;
  for (size_t i = 0; i < nodes.size(); ++i)
    for (std::string_view name : nodes[i].outputs) {
      if (name.empty()) continue;
      if (!producer.emplace(name, i).second || is_known(name))
        fail(ErrorCode::bad_format, cat("two values are named '", name, "'"), describe(nodes[i]),
             "names must be unique in a graph");
    }
  // Backwards from the results: what is needed, and who waits for whom.
  std::vector<std::vector<size_t>> users(nodes.size());
  std::vector<int64_t> waiting(nodes.size(), -1);  // -1: not needed
  std::vector<size_t> work;
  auto need = [&](std::string_view name, const NodeView* user) -> std::optional<size_t> {
    auto it = producer.find(name);
    if (it == producer.end()) {
      if (!is_known(name))
        fail(ErrorCode::bad_format, cat("nothing produces '", name, "'"),
             user ? describe(*user) : "graph output", "the model lacks a node, an input or an initializer");
      return {};
    }
    if (waiting[it->second] < 0) {
      waiting[it->second] = 0;
      work.push_back(it->second);
    }
    return it->second;
  };
  for (std::string_view name : results) need(name, nullptr);
  for (size_t i = 0; i < nodes.size(); ++i)
    if (waiting[i] < 0 && is_kept(nodes[i])) {
      waiting[i] = 0;
      work.push_back(i);
    }
  while (!work.empty()) {
    size_t i = work.back();
    work.pop_back();
    std::set<size_t> before;
    for (std::string_view name : used_names(nodes[i]))
      if (auto p = need(name, &nodes[i])) before.insert(*p);
    for (size_t p : before) users[p].push_back(i);
    waiting[i] = static_cast<int64_t>(before.size());
  }
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  size_t needed = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (waiting[i] >= 0) ++needed;
    if (waiting[i] == 0) ready.push(i);
  }
  std::vector<const NodeView*> out;
  while (!ready.empty()) {
    size_t i = ready.top();
    ready.pop();
    out.push_back(&nodes[i]);
    for (size_t u : users[i])
      if (--waiting[u] == 0) ready.push(u);
  }
  if (out.size() != needed)
    for (size_t i = 0; i < nodes.size(); ++i)
      if (waiting[i] > 0) fail(ErrorCode::bad_format, "the graph has a cycle", describe(nodes[i]));
  return out;
}

}  // namespace pelton::onnx
