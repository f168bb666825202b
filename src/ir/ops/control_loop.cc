// SPDX-License-Identifier: Apache-2.0
// Inference of loop and scan: the types of carried values, and the sizes of stacked results.
#include <algorithm>

#include "ir/ops/control_infer.h"

namespace pelton::ir {

namespace {

size_t carried_count(InferContext& c, size_t first) {
  int64_t carried = c.node.get_int("carried");
  auto rest = static_cast<int64_t>(c.input_count()) - static_cast<int64_t>(first);
  c.require(carried >= 0 && carried <= std::max<int64_t>(rest, 0), ErrorCode::usage, "C2",
            cat("carries ", carried, " values but has ", std::max<int64_t>(rest, 0), " to carry or capture"));
  return static_cast<size_t>(carried);
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

// Item of a list attribute that may be left empty.
int64_t item(const Ints& values, size_t i) {
  return values.empty() ? 0 : values[i];
}

}  // namespace

void infer_loop(InferContext& c) {
  if (c.has(0))
    c.require(is_int(c.dtype(0)) && one_element(c, 0), ErrorCode::bad_type, "C1",
              cat("needs one integer as trip count, not ", c.type(0).str()));
  if (c.has(1))
    c.require(c.dtype(1) == DType::boolean && one_element(c, 1), ErrorCode::bad_type, "C1",
              cat("needs one bool as condition, not ", c.type(1).str()));
  size_t carried = carried_count(c, 2);
  GraphPtr body = infer_body(c, {Type::tensor(DType::i64, {}), Type::tensor(DType::boolean, {})}, 2, carried,
                             input_types(c, 2 + carried, c.input_count()), 1);
  const Type& go_on = body->type(body->outputs[0]);
  c.require(go_on.is_tensor() && go_on.dtype == DType::boolean, ErrorCode::bad_type, "C3",
            cat("expects a bool as first result of graph '", body->name, "', not ", go_on.str()));
  require_results(c, *body, 1 + c.node.outputs.size(), "C3");
  if (carried == c.node.outputs.size()) return;
  Dim count = iterations(c, *body, carried);
  for (size_t i = carried; i < c.node.outputs.size(); ++i) {
    const Type& t = body->type(body->outputs[1 + i]);
    c.require(t.is_tensor() && t.ranked, ErrorCode::bad_type, "C3",
              cat("cannot stack results of type ", t.str()));
    c.output(i, stacked(c, i, t, *body, 0, count));
  }
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
    c.require(t.is_tensor() && t.ranked, ErrorCode::bad_type, "C3",
              cat("cannot stack results of type ", t.str()));
    int64_t axis = c.axis(item(out_axes, i), t.rank() + 1);
    c.output(carried + i, stacked(c, carried + i, t, *body, axis, count));
  }
}

}  // namespace pelton::ir
