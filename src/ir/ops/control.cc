// SPDX-License-Identifier: Apache-2.0
// Control flow: rows and inference. Evaluation in control_eval.cc.
#include <optional>
#include <set>

#include "ir/ops/control.h"

#include "ir/builder.h"
#include "ir/custom.h"
#include "ir/ops/common.h"
#include "ir/subgraph.h"

namespace pelton::ir {
namespace {

constexpr auto kShape = ErrorCode::bad_shape;
constexpr auto kType = ErrorCode::bad_type;

// Types of inputs [first, end); an absent one is refused.
std::vector<Type> input_types(InferContext& c, size_t first, size_t end) {
  std::vector<Type> out;
  for (size_t i = first; i < end; ++i) out.push_back(c.type(i));
  return out;
}
GraphPtr graph_attr(InferContext& c, std::string_view name) {
  return std::get<GraphPtr>(c.node.attr(name));
}
std::vector<Type> output_types(const Graph& g, size_t first, size_t end) {
  std::vector<Type> out;
  for (size_t i = first; i < end; ++i) out.push_back(g.type(g.outputs[i]));
  return out;
}
bool one_element(InferContext& c, size_t i) {
  return equal(element_count(c.shape(i)), 1, c.ranges()) != Tri::no;
}
void require_results(InferContext& c, const Graph& body, size_t expected, std::string_view constraint) {
  c.require(
      body.outputs.size() == expected, ErrorCode::usage, constraint,
      cat("expects ", expected, " results of graph '", body.name, "', which yields ", body.outputs.size()));
}

// The type of result `i` that is of type a or b.
Type either(InferContext& c, size_t i, const Type& a, const Type& b) {
  if (!a.is_tensor() || !b.is_tensor() || a.dtype != b.dtype || !a.ranked || !b.ranked ||
      a.rank() != b.rank())
    return join(c.graph, a, b, cat(c.graph.describe(c.id), ", C3"));
  Type t = a;
  for (size_t d = 0; d < t.shape.size(); ++d) {
    if (a.shape[d] == b.shape[d]) continue;
    Range p = a.shape[d].range(c.ranges()), q = b.shape[d].range(c.ranges());
    t.shape[d] = c.fresh_size(i, d, {std::min(p.min, q.min), std::max(p.max, q.max)});
  }
  return t;
}

// A branch that cannot run because the condition is a constant takes no part.
void infer_if(InferContext& c) {
  c.require(c.dtype(0) == DType::boolean && one_element(c, 0), kType, "C1",
            cat("needs one bool as condition, not ", c.type(0).str()));
  std::vector<Type> captured = input_types(c, 1, c.input_count());
  const Tensor* known = c.constant(0);
  size_t results = c.node.outputs.size();
  std::vector<Type> types;
  for (std::string_view name : {"then", "else"}) {
    if (known && (known->get_int(0) != 0) != (name == "then")) continue;
    GraphPtr branch = with_input_types(c, graph_attr(c, name), captured, "C2");
    set_graph(c, name, branch);
    require_results(c, *branch, results, "C3");
    std::vector<Type> found = output_types(*branch, 0, results);
    for (size_t i = 0; i < results; ++i) {
      Type t = seen_outside(c, i, found[i], *branch);
      if (i >= types.size())
        types.push_back(std::move(t));
      else
        types[i] = either(c, i, types[i], t);
    }
  }
  for (size_t i = 0; i < results; ++i) c.output(i, types[i]);
}

// Carried values with a body that takes `lead` types first and yields `lead_results` results first. Sets the
// attribute `body` and returns it.
GraphPtr infer_body(InferContext& c, std::vector<Type> lead, size_t first_carried, size_t carried,
                    const std::vector<Type>& after, size_t lead_results) {
  GraphPtr body = graph_attr(c, "body");
  size_t inputs = lead.size() + carried + after.size();
  c.require(body->inputs.size() == inputs, ErrorCode::usage, "C2",
            cat("gives ", inputs, " values to graph '", body->name, "', which takes ", body->inputs.size()));
  c.require(body->outputs.size() >= lead_results + carried, ErrorCode::usage, "C3",
            cat("expects ", lead_results + carried, " or more results of graph '", body->name,
                "', which yields ", body->outputs.size()));
  std::vector<Type> declared;
  for (size_t i = 0; i < carried; ++i) declared.push_back(body->type(body->inputs[lead.size() + i]));
  CarriedTypes types(c, input_types(c, first_carried, first_carried + carried), declared);
  // Each round makes at least one size loose or one rank unknown, so this ends.
  bool changed = true;
  while (changed) {
    std::vector<Type> all = lead;
    all.insert(all.end(), types.types().begin(), types.types().end());
    all.insert(all.end(), after.begin(), after.end());
    body = with_input_types(c, body, all, "C2");
    changed = types.cover(output_types(*body, lead_results, lead_results + carried), "C4");
  }
  set_graph(c, "body", body);
  for (size_t i = 0; i < carried; ++i) {
    // The result is what the last iteration yields, or the initial value if there is none.
    Type initial = c.type(first_carried + i), t = types.types()[i];
    c.output(i, initial == t ? t : seen_outside(c, i, t, *body));
  }
  return body;
}

size_t carried_count(InferContext& c, size_t first) {
  int64_t carried = c.node.get_int("carried");
  auto rest = static_cast<int64_t>(c.input_count()) - static_cast<int64_t>(first);
  c.require(carried >= 0 && carried <= std::max<int64_t>(rest, 0), ErrorCode::usage, "C2",
            cat("carries ", carried, " values but has ", std::max<int64_t>(rest, 0), " to carry or capture"));
  return static_cast<size_t>(carried);
}

// Result `result`: what the body yields as `t` once an iteration, stacked along a new axis.
Type stacked(InferContext& c, size_t result, Type t, const Graph& body, int64_t axis, const Dim& count) {
  t.shape.insert(t.shape.begin() + axis, Dim(1));
  t = seen_outside(c, result, t, body);
  t.shape[static_cast<size_t>(axis)] = count;
  return t;
}

// Number of iterations, the first size of the stacked results: the trip count if it is known and nothing else
// can end the loop.
Dim iterations(InferContext& c, const Graph& body, size_t first_stacked) {
  auto trip = c.contents(0);
  int64_t most =
      trip && trip->size() == 1 ? std::max<int64_t>((*trip)[0].range(c.ranges()).max, 0) : INT64_MAX;
  ValueId go_on = body.outputs[0];
  const Tensor* constant = body.constant(go_on);
  const Tensor* at_start = c.constant(1);
  bool never_ends = (go_on == body.inputs[1] || (constant && constant->get_int(0))) &&
                    (!c.has(1) || (at_start && at_start->get_int(0)));
  if (trip && trip->size() == 1 && never_ends) return Dim::max((*trip)[0], 0);
  return c.fresh_size(first_stacked, 0, {0, most});
}

void infer_loop(InferContext& c) {
  if (c.has(0))
    c.require(is_int(c.dtype(0)) && one_element(c, 0), kType, "C1",
              cat("needs one integer as trip count, not ", c.type(0).str()));
  if (c.has(1))
    c.require(c.dtype(1) == DType::boolean && one_element(c, 1), kType, "C1",
              cat("needs one bool as condition, not ", c.type(1).str()));
  size_t carried = carried_count(c, 2);
  GraphPtr body = infer_body(c, {Type::tensor(DType::i64, {}), Type::tensor(DType::boolean, {})}, 2, carried,
                             input_types(c, 2 + carried, c.input_count()), 1);
  const Type& go_on = body->type(body->outputs[0]);
  c.require(go_on.is_tensor() && go_on.dtype == DType::boolean, kType, "C3",
            cat("expects a bool as first result of graph '", body->name, "', not ", go_on.str()));
  require_results(c, *body, 1 + c.node.outputs.size(), "C3");
  if (carried == c.node.outputs.size()) return;
  Dim count = iterations(c, *body, carried);
  for (size_t i = carried; i < c.node.outputs.size(); ++i) {
    const Type& t = body->type(body->outputs[1 + i]);
    c.require(t.is_tensor() && t.ranked, kType, "C3", cat("cannot stack results of type ", t.str()));
    c.output(i, stacked(c, i, t, *body, 0, count));
  }
}

// Item of a list attribute that may be left empty.
int64_t item(const Ints& values, size_t i) {
  return values.empty() ? 0 : values[i];
}

void infer_scan(InferContext& c) {
  size_t carried = carried_count(c, 0);
  int64_t scanned_attr = c.node.get_int("scanned");
  c.require(scanned_attr >= 1 && carried + static_cast<size_t>(scanned_attr) <= c.input_count(),
            ErrorCode::usage, "C1", cat("scans ", scanned_attr, " of ", c.input_count(), " inputs"));
  auto scanned = static_cast<size_t>(scanned_attr);
  const Ints &axes = c.node.get_ints("axes"), &out_axes = c.node.get_ints("out_axes");
  for (std::string_view list : {"axes", "reverse"})
    c.require(c.node.get_ints(list).empty() || c.node.get_ints(list).size() == scanned, ErrorCode::usage,
              "C1", cat("needs one of ", list, " for each of ", scanned, " scanned inputs"));
  std::vector<Type> after;
  Dim count = 0;
  for (size_t i = 0; i < scanned; ++i) {
    size_t input = carried + i;
    int64_t axis = c.axis(item(axes, i), c.rank(input));
    const Dim& size = c.shape(input)[static_cast<size_t>(axis)];
    count = i == 0 ? size : c.same(count, size, "C5");
    Type slice = c.type(input);
    slice.shape.erase(slice.shape.begin() + axis);
    after.push_back(std::move(slice));
  }
  for (const Type& t : input_types(c, carried + scanned, c.input_count())) after.push_back(t);
  GraphPtr body = infer_body(c, {}, 0, carried, after, 0);
  require_results(c, *body, c.node.outputs.size(), "C3");
  size_t results = c.node.outputs.size() - carried;
  for (std::string_view list : {"out_axes", "out_reverse"})
    c.require(c.node.get_ints(list).empty() || c.node.get_ints(list).size() == results, ErrorCode::usage,
              "C1", cat("needs one of ", list, " for each of ", results, " stacked results"));
  for (size_t i = 0; i < results; ++i) {
    const Type& t = body->type(body->outputs[carried + i]);
    c.require(t.is_tensor() && t.ranked, kType, "C3", cat("cannot stack results of type ", t.str()));
    int64_t axis = c.axis(item(out_axes, i), t.rank() + 1);
    c.output(carried + i, stacked(c, carried + i, t, *body, axis, count));
  }
}

void infer_fused(InferContext& c) {
  GraphPtr body = with_input_types(c, graph_attr(c, "body"), input_types(c, 0, c.input_count()), "C1");
  set_graph(c, "body", body);
  require_results(c, *body, c.node.outputs.size(), "C1");
  for (size_t i = 0; i < c.node.outputs.size(); ++i)
    c.output(i, seen_outside(c, i, body->type(body->outputs[i]), *body));
}
std::vector<ValueId> decompose_fused(Builder& b, const Node& n) {
  return inline_graph(b, n.get_graph("body"), n.inputs);
}
double fused_flops(const Graph&, const Node& n, const std::vector<Dims>& inputs,
                   const std::vector<Dims>& outputs) {
  const Graph& body = n.get_graph("body");
  // Symbols by the sizes of operands; expressions of symbols that no operand has alone, such as halves of
  // the model's own sizes, where an operand or result has just that size.
  SymbolValues sizes;
  std::vector<std::pair<Dim, int64_t>> seen;
  auto look = [&](const std::vector<ValueId>& values, const std::vector<Dims>& dims) {
    for (size_t i = 0; i < values.size() && i < dims.size(); ++i) {
      const Type& t = body.type(values[i]);
      for (size_t d = 0; d < t.shape.size() && d < dims[i].size(); ++d) {
        if (auto symbol = t.shape[d].as_symbol()) sizes.emplace(*symbol, dims[i][d]);
        seen.emplace_back(t.shape[d], dims[i][d]);
      }
    }
  };
  look(body.inputs, inputs);
  look(body.outputs, outputs);
  auto size_of = [&](const Dim& dim) -> std::optional<int64_t> {
    for (const auto& [known, size] : seen)
      if (known == dim) return size;
    std::set<std::string> names;
    dim.collect_symbols(names);
    for (const std::string& name : names)
      if (!sizes.count(name)) return std::nullopt;
    return dim.eval(sizes);
  };
  // Absent values have no sizes; those whose size depends on data leave their node out.
  auto dims_of = [&](const std::vector<ValueId>& values, std::vector<Dims>& into) {
    for (ValueId v : values) {
      into.emplace_back();
      if (!v || !body.type(v).is_tensor()) continue;
      for (const Dim& d : body.type(v).shape) {
        const std::optional<int64_t> size = size_of(d);
        if (!size) return false;
        into.back().push_back(*size);
      }
    }
    return true;
  };
  double sum = 0;
  for (NodeId id : body.order()) {
    const Node& node = body[id];
    std::vector<Dims> in, out;
    if (node.op->flops && dims_of(node.inputs, in) && dims_of(node.outputs, out))
      sum += node.op->flops(body, node, in, out);
  }
  return sum;
}

void infer_token(InferContext& c) {
  for (size_t i = 0; i < c.input_count(); ++i)
    c.require(c.type(i).kind == TypeKind::token, kType, "C1", cat("joins tokens, not ", c.type(i).str()));
  c.output(0, Type::token());
}

void infer_custom(InferContext& c) {
  const CustomOp* op = find_custom_op(c.node);
  if (!op)
    fail(ErrorCode::unsupported_op,
         cat("nothing provides custom op ", c.node.get_text("domain"), "::", c.node.get_text("name"),
             " version ", c.node.get_int("version")),
         c.graph.describe(c.id), "load its library with --plugin");
  if (op->effects) {
    const std::vector<ValueId>&in = c.node.inputs, &out = c.node.outputs;
    c.require(!in.empty() && in.back() && c.graph.type(in.back()).kind == TypeKind::token, kType, "C1",
              "has effects, so its last operand must be a token");
    c.require(!out.empty(), kType, "C1", "has effects, so its last result must be a token");
    c.output(out.size() - 1, Type::token());
  }
  op->infer(c);
}

std::vector<ValueId> decompose_custom(Builder& b, const Node& n) {
  const CustomOp* op = find_custom_op(n);
  if (!op || !op->decompose) return {};
  return op->decompose(b, n);
}

OpDef control(std::string_view name, int min_inputs, int max_inputs, int min_outputs, int max_outputs,
              std::vector<AttrDef> attrs, void (*infer)(InferContext&), void (*eval)(EvalContext&),
              std::vector<std::string_view> constraints) {
  OpDef row;
  row.name = name;
  row.family = Family::control;
  row.min_inputs = min_inputs;
  row.max_inputs = max_inputs;
  row.min_outputs = min_outputs;
  row.max_outputs = max_outputs;
  row.attrs = std::move(attrs);
  row.infer = infer;
  row.eval = eval;
  row.constraints = std::move(constraints);
  return row;
}
AttrDef required(std::string_view name, AttrKind kind) {
  return {name, kind, {}};
}
AttrDef ints_def(std::string_view name) {
  return {name, AttrKind::ints, Attr(Ints{})};
}

}  // namespace

void add_control(OpRows& rows) {
  rows.push_back(control("if", 1, -1, 1, -1,
                         {required("then", AttrKind::graph), required("else", AttrKind::graph)}, infer_if,
                         eval_if,
                         {"C1: the condition is one bool", "C2: both branches take the captured values",
                          "C3: both branches yield results of one kind, element type and rank"}));
  std::vector<std::string_view> loops = {"C1: counts, conditions and lists fit",
                                         "C2: the body takes what the loop gives it",
                                         "C3: the body yields what the loop expects",
                                         "C4: a carried value keeps its kind, element type and rank"};
  rows.push_back(control("loop", 2, -1, 1, -1,
                         {required("body", AttrKind::graph), required("carried", AttrKind::integer)},
                         infer_loop, eval_loop, loops));
  // Trip count and condition may both be absent.
  rows.back().min_inputs = 0;
  rows.push_back(control("scan", 1, -1, 1, -1,
                         {required("body", AttrKind::graph), required("carried", AttrKind::integer),
                          required("scanned", AttrKind::integer), ints_def("axes"), ints_def("reverse"),
                          ints_def("out_axes"), ints_def("out_reverse")},
                         infer_scan, eval_scan, loops));
  rows.back().constraints.push_back("C5: scanned inputs have one length");
  rows.push_back(control("fused", 0, -1, 1, -1,
                         {required("body", AttrKind::graph),
                          {"kind", AttrKind::text, Attr(std::string())},
                          {"segments", AttrKind::integer, Attr(int64_t{0})}},
                         infer_fused, eval_fused, {"C1: the body takes the inputs and yields the results"}));
  rows.back().decompose = decompose_fused;
  rows.back().flops = fused_flops;
  rows.push_back(control("token", 0, 0, 1, 1, {}, infer_token, eval_token, {}));
  rows.push_back(control("join", 1, -1, 1, 1, {}, infer_token, eval_token, {"C1: every input is a token"}));
  rows.push_back(control("custom", 0, -1, 0, -1,
                         {required("domain", AttrKind::text),
                          required("name", AttrKind::text),
                          {"version", AttrKind::integer, Attr(int64_t{1})},
                          {"attributes", AttrKind::text, Attr(std::string())}},
                         infer_custom, eval_custom, {"C1: an op with effects takes and yields a token"}));
  rows.back().family = Family::custom;
  rows.back().decompose = decompose_custom;
}

}  // namespace pelton::ir
