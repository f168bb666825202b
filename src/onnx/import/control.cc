// SPDX-License-Identifier: Apache-2.0
// If, Loop and Scan. ONNX sub-graphs see the values around them; IR sub-graphs are closed, so what they take
// from outside is appended to the inputs of the node and of each sub-graph, in one order.
#include <algorithm>
#include <set>

#include "base/log.h"
#include "ir/fact.h"
#include "onnx/import/helpers.h"
#include "onnx/import/importer.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

ir::GraphPtr finish(SubGraph& sub) {
  return std::make_shared<ir::Graph>(std::move(sub.build->graph));
}

// Gives the sub-graph inputs for all of `outer`, in that order, after its first `formal` inputs.
void align_captures(SubGraph& sub, size_t formal, const std::vector<ValueId>& outer,
                    const ir::Graph& around) {
  ir::Graph& g = sub.build->graph;
  std::vector<ValueId> inputs(g.inputs.begin(), g.inputs.begin() + static_cast<std::ptrdiff_t>(formal));
  for (ValueId o : outer) {
    auto it =
        std::find_if(sub.captures.begin(), sub.captures.end(), [&](const auto& k) { return k.outer == o; });
    inputs.push_back(it != sub.captures.end() ? it->inner : g.add_input(around.type(o)));
  }
  g.inputs = inputs;
}

// The two sizes that a condition compares for equality, if it is such a test.
std::optional<std::pair<Dim, Dim>> compared_sizes(NodeContext& c, ValueId condition) {
  const ir::Graph& g = c.b.graph();
  for (int steps = 0; steps < 8 && g[condition].producer; ++steps) {
    const ir::Node& n = g[g[condition].producer];
    if (n.is("eq")) {
      auto a = c.contents_of(n.inputs[0]), b = c.contents_of(n.inputs[1]);
      if (a && b && a->size() == 1 && b->size() == 1) return std::pair{(*a)[0], (*b)[0]};
      return {};
    }
    if (!n.is("cast") && !n.is("reshape")) return {};
    condition = n.inputs[0];
  }
  return {};
}

bool same_ranks(const ir::Graph& a, const ir::Graph& b) {
  for (size_t i = 0; i < a.outputs.size() && i < b.outputs.size(); ++i) {
    const ir::Type &x = a.type(a.outputs[i]), &y = b.type(b.outputs[i]);
    if (x.is_tensor() && y.is_tensor() && x.rank() != y.rank()) return false;
  }
  return true;
}

// Sizes given for the inputs may fit one branch alone: the other becomes one that refuses the run which takes
// it. An error with a remedy (a size to give, a value to fold) stays one of the import.
std::pair<SubGraph, SubGraph> import_branches(NodeContext& c, const GraphView& yes, const GraphView& no) {
  std::optional<Error> refused;
  auto import = [&](const GraphView& view) {
    try {
      return c.importer.import_subgraph(view, {}, c.scope);
    } catch (const Error& e) {
      if (!ir::is_misfit(e) || refused) throw;
      refused = e;
      return SubGraph{};
    }
  };
  std::pair<SubGraph, SubGraph> out{import(yes), import(no)};
  if (!refused) return out;
  const bool first = !out.first.build;
  SubGraph &lost = first ? out.first : out.second, &kept = first ? out.second : out.first;
  const std::string branch = cat(first ? "then" : "else", " branch of ", c.place());
  lost.build = std::make_unique<GraphBuild>("impossible");
  lost.build->graph.symbols = c.b.graph().symbols;
  std::vector<ir::Type> captured;
  for (const auto& k : kept.captures) captured.push_back(c.b.type(k.outer));
  if (!ir::make_impossible(lost.build->graph, kept.build->graph, captured,
                           cat(branch, ": ", refused->what())))
    throw *refused;
  log_warn("the ", branch, " cannot run at these sizes, a run that takes it is refused: ", refused->what());
  return out;
}

void if_op(NodeContext& c) {
  ValueId condition = to_scalar(c, c.in(0));
  const GraphView &yes = c.need_graph("then_branch"), &no = c.need_graph("else_branch");
  if (auto known = c.value_of(condition)) {
    auto results = c.importer.import_inline(known->get_int(0) ? yes : no, {}, c.scope);
    for (size_t i = 0; i < results.size(); ++i) c.out(i, results[i]);
    return;
  }
  auto [a, b] = import_branches(c, yes, no);
  if (!same_ranks(a.build->graph, b.build->graph)) {
    // Exporters write "drop this axis if its size is 1". Ranks are static, so the test becomes a check of the
    // run.
    auto sizes = compared_sizes(c, condition);
    bool taken = true;
    if (sizes)
      c.b.graph().checks.push_back({ir::Fact::Relation::equal, sizes->first, sizes->second, c.place()});
    else
      taken = c.need_value(condition, "the condition of branches that differ in rank").get_int(0) != 0;
    auto results = c.importer.import_inline(taken ? yes : no, {}, c.scope);
    for (size_t i = 0; i < results.size(); ++i) c.out(i, results[i]);
    return;
  }
  std::vector<ValueId> outer;
  for (const SubGraph* s : {&a, &b})
    for (const auto& k : s->captures)
      if (std::find(outer.begin(), outer.end(), k.outer) == outer.end()) outer.push_back(k.outer);
  align_captures(a, 0, outer, c.b.graph());
  align_captures(b, 0, outer, c.b.graph());
  size_t count = a.build->graph.outputs.size();
  if (count != b.build->graph.outputs.size() || count < c.output_count())
    c.refuse(ErrorCode::bad_format,
             cat("has branches that yield ", count, " and ", b.build->graph.outputs.size(), " values"));
  std::vector<ValueId> inputs{condition};
  inputs.insert(inputs.end(), outer.begin(), outer.end());
  auto results = c.b.ops("if", inputs, {{"then", finish(a)}, {"else", finish(b)}}, count);
  for (size_t i = 0; i < count; ++i) c.out(i, results[i]);
}

// Carried values whose size changes from one turn to the next get a symbol of their own for that size.
bool widen(ir::Graph& around, std::vector<ir::Type>& carried, const ir::Graph& body, size_t first_output,
           std::set<std::pair<size_t, size_t>>& widened) {
  bool changed = false;
  for (size_t i = 0; i < carried.size(); ++i) {
    ir::Type& in = carried[i];
    const ir::Type& out = body.type(body.outputs[first_output + i]);
    if (in.kind == ir::TypeKind::sequence && out.kind == ir::TypeKind::sequence && in.items) {
      in = ir::join(around, in, out, "carried sequence");
      in.items = nullptr;
      changed = true;
    }
    if (!in.is_tensor() || !out.is_tensor() || in.rank() != out.rank()) continue;
    for (size_t d = 0; d < in.shape.size(); ++d)
      if (in.shape[d] != out.shape[d] && widened.insert({i, d}).second) {
        in.shape[d] = ir::fresh_symbol(around, {});
        changed = true;
      }
  }
  return changed;
}

void loop(NodeContext& c) {
  const GraphView& view = c.need_graph("body");
  if (c.input_count() < 2)
    c.refuse(ErrorCode::bad_format, "needs a trip count and a condition, which may be empty");
  size_t carried = c.input_count() - 2;
  std::vector<ValueId> initial;
  std::vector<ir::Type> types;
  for (size_t i = 0; i < carried; ++i) {
    initial.push_back(c.in(i + 2));
    types.push_back(c.b.type(initial.back()));
  }
  std::set<std::pair<size_t, size_t>> widened;
  SubGraph body;
  for (int turn = 0;; ++turn) {
    std::vector<ir::Type> formal{ir::Type::tensor(DType::i64, {}), ir::Type::tensor(DType::boolean, {})};
    formal.insert(formal.end(), types.begin(), types.end());
    body = c.importer.import_subgraph(view, formal, c.scope);
    if (body.build->graph.outputs.size() < carried + 1)
      c.refuse(ErrorCode::bad_format, cat("has a body that yields ", body.build->graph.outputs.size(),
                                          " values for ", carried, " carried ones"));
    if (turn == 8 || !widen(c.b.graph(), types, body.build->graph, 1, widened)) break;
  }
  ir::Graph& g = body.build->graph;
  if (ValueId again = g.outputs[0]; g.type(again).rank())
    g.outputs[0] = body.build->builder.reshape(again, {});
  std::vector<ValueId> inputs{c.has(0) ? to_scalar(c, c.in(0)) : ValueId{},
                              c.has(1) ? to_scalar(c, c.in(1)) : ValueId{}};
  inputs.insert(inputs.end(), initial.begin(), initial.end());
  for (const auto& k : body.captures) inputs.push_back(k.outer);
  size_t count = g.outputs.size() - 1;
  auto results =
      c.b.ops("loop", inputs, {{"body", finish(body)}, {"carried", static_cast<int64_t>(carried)}}, count);
  for (size_t i = 0; i < count; ++i) c.out(i, results[i]);
}

Ints axes_list(NodeContext& c, std::string_view name, size_t count) {
  Ints v = c.get_ints(name);
  if (v.empty()) v.assign(count, 0);
  if (v.size() != count) c.refuse(ErrorCode::bad_shape, cat(name, " ", v, " has not ", count, " entries"));
  return v;
}

// Version 8 scans each batch entry on its own, with optional lengths; later versions know no batch.
void scan(NodeContext& c) {
  const GraphView& view = c.need_graph("body");
  bool batched = c.opset < 9;
  size_t first = batched ? 1 : 0, total = c.input_count() - first;
  const int64_t scans = c.need_int("num_scan_inputs");
  if (c.input_count() < first || scans < 0 || static_cast<uint64_t>(scans) > total)
    c.refuse(ErrorCode::bad_format, cat("has ", c.input_count(), " inputs and scans ", scans));
  const auto scanned = static_cast<size_t>(scans);
  size_t carried = total - scanned;
  if (batched && c.has(0))
    c.refuse(ErrorCode::unsupported_op, "sequence lengths of version 8 are not supported");
  if (batched)
    for (size_t i = 0; i < total; ++i)
      if (c.need_const(c.b.shape(c.in(i + 1)).at(0), "the batch of a version 8 scan") != 1)
        c.refuse(ErrorCode::unsupported_op, "a batch above 1 in a version 8 scan is not supported");
  Ints axes = batched ? Ints(scanned, 0) : axes_list(c, "scan_input_axes", scanned);
  Ints reverse = axes_list(c, batched ? "directions" : "scan_input_directions", scanned);
  std::vector<ValueId> inputs;
  std::vector<ir::Type> types;
  for (size_t i = 0; i < total; ++i) {
    ValueId v = c.in(first + i);
    if (batched) v = c.b.reshape(v, Shape(c.b.shape(v).begin() + 1, c.b.shape(v).end()));
    inputs.push_back(v);
    ir::Type t = c.b.type(v);
    if (i >= carried) {
      int64_t& axis = axes[i - carried];
      axis = c.axis(axis, t.rank());
      t.shape.erase(t.shape.begin() + axis);
    }
    types.push_back(t);
  }
  SubGraph body = c.importer.import_subgraph(view, types, c.scope);
  size_t count = body.build->graph.outputs.size();
  if (count < carried)
    c.refuse(ErrorCode::bad_format,
             cat("has a body that yields ", count, " values for ", carried, " carried ones"));
  size_t stacked = count - carried;
  Ints out_axes = batched ? Ints(stacked, 0) : axes_list(c, "scan_output_axes", stacked);
  Ints out_reverse = batched ? Ints(stacked, 0) : axes_list(c, "scan_output_directions", stacked);
  for (size_t i = 0; i < stacked; ++i)
    out_axes[i] =
        c.axis(out_axes[i], body.build->graph.type(body.build->graph.outputs[carried + i]).rank() + 1);
  for (const auto& k : body.captures) inputs.push_back(k.outer);
  auto results = c.b.ops("scan", inputs,
                         {{"body", finish(body)},
                          {"carried", static_cast<int64_t>(carried)},
                          {"scanned", static_cast<int64_t>(scanned)},
                          {"axes", axes},
                          {"reverse", reverse},
                          {"out_axes", out_axes},
                          {"out_reverse", out_reverse}},
                         count);
  for (size_t i = 0; i < count; ++i) c.out(i, batched ? c.b.unsqueeze(results[i], {0}) : results[i]);
}

}  // namespace

void add_control(ImportTable& table) {
  table.add("If", if_op);
  table.add("Loop", loop);
  table.add("Scan", scan);
}

}  // namespace pelton::onnx
