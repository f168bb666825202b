// SPDX-License-Identifier: Apache-2.0
// Control flow: rows, and inference of branches, tokens and custom ops. Evaluation in control_eval.cc.
#include "ir/ops/control.h"

#include <algorithm>

#include "ir/builder.h"
#include "ir/custom.h"
#include "ir/ops/control_infer.h"

namespace pelton::ir {

namespace {

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
  c.require(c.dtype(0) == DType::boolean && one_element(c, 0), ErrorCode::bad_type, "C1",
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

void infer_token(InferContext& c) {
  for (size_t i = 0; i < c.input_count(); ++i)
    c.require(c.type(i).kind == TypeKind::token, ErrorCode::bad_type, "C1",
              cat("joins tokens, not ", c.type(i).str()));
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
    c.require(!in.empty() && in.back() && c.graph.type(in.back()).kind == TypeKind::token,
              ErrorCode::bad_type, "C1", "has effects, so its last operand must be a token");
    c.require(!out.empty(), ErrorCode::bad_type, "C1", "has effects, so its last result must be a token");
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
