// SPDX-License-Identifier: Apache-2.0
#include "passes/rewrite.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <unordered_map>

#include "ir/custom.h"
#include "passes/weight_names.h"

namespace pelton::passes {

using namespace ir;

namespace {

// Constants of the graph that an ElementsRead lives for.
thread_local const Graph* reading = nullptr;
thread_local std::vector<ValueId> read;

void note(const Graph& graph, ValueId v) {
  if (&graph == reading) read.push_back(v);
}

using Symbols = std::set<std::string>;

void collect(const Shape& dims, Symbols& into) {
  for (const Dim& d : dims) d.collect_symbols(into);
}
void collect_attrs(const Node& n, Symbols& into) {
  for (const auto& [key, value] : n.attrs) {
    if (auto dims = std::get_if<Shape>(&value)) collect(*dims, into);
    if (auto body = std::get_if<GraphPtr>(&value))
      for (NodeId inner : (*body)->order()) collect_attrs((**body)[inner], into);
  }
}
Symbols named_by(const Graph& g) {
  Symbols all;
  for (NodeId id : g.order()) collect_attrs(g[id], all);
  for (const auto* facts : {&g.checks, &g.guards})
    for (const Fact& f : *facts) collect({f.left, f.right}, all);
  return all;
}
// Sizes that a run learns from this node: its results have them, nothing that it is given does.
Symbols told_by(const Graph& g, const Node& n) {
  Symbols given, told;
  for (ValueId v : n.outputs) collect(g.type(v).shape, told);
  if (told.empty()) return told;
  for (const auto* values : {&n.inputs, &g.inputs})
    for (ValueId v : *values)
      if (v) {
        collect(g.type(v).shape, given);
        if (const auto& contents = g[v].contents) collect(*contents, given);
      }
  collect_attrs(n, given);
  std::erase_if(told, [&](const std::string& s) { return given.count(s) > 0; });
  return told;
}

}  // namespace

ElementsRead::ElementsRead(Graph& graph) : graph_(graph) {
  PELTON_CHECK(!reading, "rewriting of '", graph.name, "' within another");
  reading = &graph;
  read.clear();
}
ElementsRead::~ElementsRead() {
  reading = nullptr;
}
void ElementsRead::clear() {
  read.clear();
}
void ElementsRead::forget() {
  for (ValueId v : read)
    if (graph_.constant(v)) forget_names(graph_, v);
  read.clear();
}

bool remove_dead(Graph& graph) {
  bool changed = false;
  std::optional<Symbols> named;  // by what is left behind the node
  std::vector<NodeId> order(graph.order());
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const Node& n = graph[*it];
    if (effects_of(n) == Effects::ordered) continue;
    if (!std::all_of(n.outputs.begin(), n.outputs.end(), [&](ValueId v) { return graph.unused(v); }))
      continue;
    if (const Symbols told = told_by(graph, n); !told.empty()) {
      if (!named) named = named_by(graph);
      if (std::any_of(told.begin(), told.end(), [&](const std::string& s) { return named->count(s) > 0; }))
        continue;
    }
    graph.remove(*it);
    changed = true;
  }
  return changed;
}

bool apply_rules(Graph& graph, std::span<const Rule> rules, const Context& context) {
  std::unordered_map<std::string_view, std::vector<const Rule*>> by_op;
  std::vector<const Rule*> anywhere;
  for (const Rule& r : rules) {
    if (r.ops.empty()) anywhere.push_back(&r);
    for (std::string_view op : r.ops) by_op[op].push_back(&r);
  }
  bool changed = false;
  ElementsRead elements_read(graph);
  // Each round visits every node once; a chain of n nested rewrites settles in at most n rounds, real graphs
  // in few.
  for (int round = 0; round < 64; ++round) {
    bool fired = false;
    for (NodeId id : std::vector<NodeId>(graph.order())) {
      if (!graph[id].alive) continue;
      auto try_rules = [&](const std::vector<const Rule*>& list) {
        for (const Rule* r : list) {
          const auto& outs = graph[id].outputs;
          if (std::all_of(outs.begin(), outs.end(), [&](ValueId v) { return graph.unused(v); })) return;
          elements_read.clear();
          if (r->apply(graph, id, context)) {
            elements_read.forget();
            context.count(r->name);
            fired = true;
          }
        }
      };
      if (auto it = by_op.find(graph.op(id).name); it != by_op.end()) try_rules(it->second);
      try_rules(anywhere);
    }
    if (!fired) break;
    changed = true;
    remove_dead(graph);
  }
  return changed;
}

NodeId producer(const Graph& graph, ValueId v, std::string_view op_name) {
  if (!v) return {};
  NodeId id = graph[v].producer;
  return id && graph[id].is(op_name) ? id : NodeId{};
}

ValueId input(const Graph& graph, NodeId node, size_t index) {
  const Node& n = graph[node];
  return index < n.inputs.size() ? n.inputs[index] : ValueId{};
}
ValueId result(const Graph& graph, NodeId node, size_t index) {
  return graph[node].outputs[index];
}

const Tensor* elements(const Graph& graph, ValueId v) {
  const Tensor* t = graph.constant(v);
  if (t) note(graph, v);
  return t;
}

namespace {

std::optional<double> uniform_value(const Graph& graph, ValueId v) {
  const Tensor* t = graph.constant(v);
  if (!t || t->count() == 0 || t->dtype() == DType::string) return std::nullopt;
  double first = t->get_double(0);
  if (t->count() > 1) {
    if (std::isnan(first)) return std::nullopt;
    for (int64_t i = 1; i < t->count(); ++i)
      if (t->get_double(i) != first) return std::nullopt;
  }
  return first;
}

}  // namespace

std::optional<double> uniform(const Graph& graph, ValueId v) {
  const std::optional<double> value = uniform_value(graph, v);
  if (value) note(graph, v);
  return value;
}

bool is_uniform(const Graph& graph, ValueId v, double value, double relative_tolerance) {
  const std::optional<double> c = uniform_value(graph, v);
  const bool is = c && std::fabs(*c - value) <= relative_tolerance * std::fabs(value);
  if (is) note(graph, v);
  return is;
}

bool single_use(const Graph& graph, ValueId v) {
  return graph[v].uses.size() == 1 && !graph.is_output(v);
}

bool same_shape(const Graph& graph, ValueId a, ValueId b) {
  const Type &x = graph.type(a), &y = graph.type(b);
  return x.is_tensor() && y.is_tensor() && x.ranked && y.ranked && x.shape == y.shape;
}

ValueId other_operand(const Graph& graph, NodeId node, ValueId v) {
  const Node& n = graph[node];
  if (n.inputs.size() != 2) return {};
  if (n.inputs[0] == v) return n.inputs[1];
  return n.inputs[1] == v ? n.inputs[0] : ValueId{};
}

std::optional<WithScalar> with_scalar(const Graph& graph, NodeId node) {
  ValueId a = input(graph, node, 0), b = input(graph, node, 1);
  if (auto s = uniform(graph, b)) return WithScalar{a, b, *s};
  if (auto s = uniform(graph, a)) return WithScalar{b, a, *s};
  return std::nullopt;
}

Builder builder_at(Graph& graph, NodeId node) {
  Builder b(graph, node);
  b.set_name(graph[node].name);
  return b;
}

void replace(Graph& graph, NodeId node, ValueId v) {
  ValueId old = graph[node].outputs[0];
  const Type &a = graph.type(old), &b = graph.type(v);
  PELTON_CHECK(a.kind == b.kind && (!a.is_tensor() || (a.dtype == b.dtype && a.rank() == b.rank())),
               graph.describe(node), ": ", a.str(), " replaced by ", b.str());
  graph.replace_uses(old, v);
}

}  // namespace pelton::passes
