// SPDX-License-Identifier: Apache-2.0
#include "passes/static_shape.h"

#include "ir/ops/dynamic_shape.h"
#include "passes/rewrite.h"
#include "passes/specialise.h"

namespace pelton::passes {

using namespace ir;

namespace {

std::optional<Contents> known(const Graph& g, NodeId id, size_t i) {
  ValueId v = input(g, id, i);
  return v ? known_contents(g, v) : std::nullopt;
}

// The type of the result holds the answer once the operand is known.
bool by_type(Graph& g, NodeId id, const char* op) {
  if (!known(g, id, 1)) return false;
  Builder b = builder_at(g, id);
  Shape shape = g.type(result(g, id)).shape;
  replace(g, id, b.op(op, {input(g, id, 0)}, {{"dims", shape}}));
  return true;
}
bool reshape(Graph& g, NodeId id, const Context&) {
  // Known contents do not always give the sizes: one that may be 0 or -1 leaves the symbols of the result.
  auto to = known(g, id, 1);
  if (!to ||
      !reshape_target(g.type(input(g, id, 0)).shape, *to, g[id].get_bool("allow_zero"), g.symbols->ranges))
    return false;
  return by_type(g, id, "reshape");
}
bool broadcast(Graph& g, NodeId id, const Context&) {
  return by_type(g, id, "broadcast_to");
}
bool fill(Graph& g, NodeId id, const Context&) {
  return by_type(g, id, "fill");
}

bool tile(Graph& g, NodeId id, const Context&) {
  auto repeats = known(g, id, 1);
  if (!repeats) return false;
  Builder b = builder_at(g, id);
  replace(g, id, b.op("tile", {input(g, id, 0)}, {{"repeats", *repeats}}));
  return true;
}

// Axes named by operand i as numbers, or 0..count-1 where it is absent.
std::optional<Ints> axes_of(const Graph& g, NodeId id, size_t i, size_t count) {
  Ints out;
  if (!input(g, id, i)) {
    for (size_t d = 0; d < count; ++d) out.push_back(static_cast<int64_t>(d));
    return out;
  }
  auto contents = known(g, id, i);
  if (!contents || contents->size() != count) return std::nullopt;
  int64_t rank = g.type(input(g, id, 0)).rank();
  for (const Dim& d : *contents) {
    if (!d.is_const()) return std::nullopt;
    out.push_back(d.value() < 0 ? d.value() + rank : d.value());
  }
  return out;
}

bool pad(Graph& g, NodeId id, const Context&) {
  auto pads = known(g, id, 1);
  if (!pads) return false;
  size_t count = pads->size() / 2;
  auto axes = axes_of(g, id, 3, count);
  if (!axes) return false;
  auto rank = static_cast<size_t>(g.type(input(g, id, 0)).rank());
  Shape low(rank, Dim(0)), high(rank, Dim(0));
  for (size_t k = 0; k < count; ++k) {
    low[static_cast<size_t>((*axes)[k])] = (*pads)[k];
    high[static_cast<size_t>((*axes)[k])] = (*pads)[k + count];
  }
  Builder b = builder_at(g, id);
  replace(g, id,
          b.op("pad", {input(g, id, 0), input(g, id, 2)},
               {{"low", low}, {"high", high}, {"mode", g[id].get_text("mode")}}));
  return true;
}

bool slice(Graph& g, NodeId id, const Context&) {
  auto starts = known(g, id, 1), ends = known(g, id, 2);
  if (!starts || !ends || starts->size() != ends->size()) return false;
  size_t count = starts->size();
  auto axes = axes_of(g, id, 3, count);
  std::optional<Contents> steps = input(g, id, 4) ? known(g, id, 4) : Contents(count, Dim(1));
  if (!axes || !steps || steps->size() != count) return false;
  Shape first, size;
  Ints step;
  const Shape& shape = g.type(input(g, id, 0)).shape;
  for (size_t k = 0; k < count; ++k) {
    if (!(*steps)[k].is_const() || (*steps)[k].value() == 0) return false;
    step.push_back((*steps)[k].value());
    auto part = normal_slice((*starts)[k], (*ends)[k], step[k], shape[static_cast<size_t>((*axes)[k])],
                             g.symbols->ranges);
    if (!part) return false;
    first.push_back(part->start);
    size.push_back(part->size);
  }
  Builder b = builder_at(g, id);
  replace(g, id,
          b.op("slice", {input(g, id, 0)},
               {{"axes", *axes}, {"starts", first}, {"sizes", size}, {"steps", step}}));
  return true;
}

// start + delta * (0, 1, 2, ...), for integers whose start and delta are numbers.
bool range(Graph& g, NodeId id, const Context&) {
  auto start = known(g, id, 0), limit = known(g, id, 1), delta = known(g, id, 2);
  ValueId out = result(g, id);
  DType t = g.type(out).dtype;
  if (!start || !limit || !delta || !is_int(t) || !(*start)[0].is_const() || !(*delta)[0].is_const())
    return false;
  Builder b = builder_at(g, id);
  Shape shape = g.type(out).shape;
  ValueId v = b.op("iota", {}, {{"dims", shape}, {"dtype", t}});
  if ((*delta)[0].value() != 1) v = b.mul(v, b.constant(from_ints(t, {}, {(*delta)[0].value()})));
  if ((*start)[0].value() != 0) v = b.add(v, b.constant(from_ints(t, {}, {(*start)[0].value()})));
  replace(g, id, v);
  return true;
}

const Rule kRules[] = {
    {"static_shape/reshape", {"dynamic_reshape"}, reshape},
    {"static_shape/broadcast", {"dynamic_broadcast"}, broadcast},
    {"static_shape/fill", {"dynamic_fill"}, fill},
    {"static_shape/tile", {"dynamic_tile"}, tile},
    {"static_shape/pad", {"dynamic_pad"}, pad},
    {"static_shape/slice", {"dynamic_slice"}, slice},
    {"static_shape/range", {"range"}, range},
};

}  // namespace

bool static_shape(Graph& graph, const Context& context) {
  // Operands may have become known since the types were inferred.
  bool any = false;
  for (NodeId id : graph.order())
    any |= graph[id].op->family == Family::shape && graph[id].op->name.starts_with("dynamic_");
  for (NodeId id : graph.order()) any |= graph[id].is("range");
  if (!any) return false;
  infer_again(graph);
  return apply_rules(graph, kRules, context);
}

}  // namespace pelton::passes
