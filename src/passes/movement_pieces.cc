// SPDX-License-Identifier: Apache-2.0
#include "passes/movement_pieces.h"

#include <algorithm>
#include <optional>

#include "passes/rewrite.h"

namespace pelton::passes {

using namespace ir;

namespace {

// A cut of one piece along one axis.
struct Cut {
  ValueId x;
  Dim start, end;
};

std::optional<Cut> cut_along(const Graph& g, ValueId v, int64_t axis) {
  const NodeId s = producer(g, v, "slice");
  if (!s) return {};
  const Node& n = g[s];
  const int64_t rank = g.type(v).rank();
  if (n.get_ints("axes").size() != 1 || (n.get_ints("axes")[0] + rank) % rank != axis ||
      n.get_ints("steps")[0] != 1)
    return {};
  const Dim& start = n.get_dims("starts")[0];
  return Cut{n.inputs[0], start, start + n.get_dims("sizes")[0]};
}

// A value between zeros along one axis.
struct Padded {
  ValueId x;
  size_t axis = 0;
  Dim low, high;
};

bool padded(const Graph& g, ValueId v, Padded& out) {
  const NodeId p = producer(g, v, "pad");
  if (!p || !single_use(g, v) || g[p].get_text("mode") != "constant") return false;
  if (g[p].inputs.size() > 1 && g[p].inputs[1] && !is_uniform(g, input(g, p, 1), 0)) return false;
  out.x = input(g, p, 0);
  bool found = false;
  const Shape &low = g[p].get_dims("low"), &high = g[p].get_dims("high");
  for (size_t d = 0; d < low.size(); ++d) {
    if (low[d] == Dim(0) && high[d] == Dim(0)) continue;
    if (found || low[d].range(g.symbols->ranges).min < 0 || high[d].range(g.symbols->ranges).min < 0)
      return false;
    found = true;
    out.axis = d;
    out.low = low[d];
    out.high = high[d];
  }
  return found;
}

}  // namespace

bool concat_one(Graph& g, NodeId id, const Context&) {
  if (g[id].inputs.size() != 1) return false;
  replace(g, id, input(g, id, 0));
  return true;
}

bool concat_of_concat(Graph& g, NodeId id, const Context&) {
  int64_t rank = g.type(result(g, id)).rank(), axis = g[id].get_int("axis");
  axis = axis < 0 ? axis + rank : axis;
  std::vector<ValueId> flat;
  bool found = false;
  for (ValueId v : g[id].inputs) {
    NodeId inner = producer(g, v, "concat");
    int64_t inner_axis = inner ? g[inner].get_int("axis") : 0;
    if (inner && (inner_axis < 0 ? inner_axis + rank : inner_axis) == axis && single_use(g, v)) {
      flat.insert(flat.end(), g[inner].inputs.begin(), g[inner].inputs.end());
      found = true;
    } else {
      flat.push_back(v);
    }
  }
  if (!found) return false;
  Builder b = builder_at(g, id);
  replace(g, id, b.op("concat", flat, {{"axis", axis}}));
  return true;
}

// Neighbouring slices of x side by side in a concat are one slice, or x.
bool concat_of_slices(Graph& g, NodeId id, const Context&) {
  const int64_t rank = g.type(result(g, id)).rank(), given = g[id].get_int("axis");
  const int64_t axis = given < 0 ? given + rank : given;
  const std::vector<ValueId> before = g[id].inputs;
  std::vector<ValueId> after;
  Builder b = builder_at(g, id);
  for (size_t i = 0, next; i < before.size(); i = next) {
    next = i + 1;
    std::optional<Cut> cut = cut_along(g, before[i], axis);
    for (; cut && next < before.size(); ++next) {
      const std::optional<Cut> neighbour = cut_along(g, before[next], axis);
      if (!neighbour || neighbour->x != cut->x || !(neighbour->start == cut->end)) break;
      cut->end = neighbour->end;
    }
    if (next == i + 1) {
      after.push_back(before[i]);
    } else if (cut->start == Dim(0) && cut->end == g.type(cut->x).shape[static_cast<size_t>(axis)]) {
      after.push_back(cut->x);
    } else {
      after.push_back(b.op("slice", {cut->x},
                           {{"axes", Ints{axis}},
                            {"starts", Shape{cut->start}},
                            {"sizes", Shape{cut->end - cut->start}},
                            {"steps", Ints{1}}}));
    }
  }
  if (after.size() == before.size()) return false;
  replace(g, id, after.size() == 1 ? after[0] : b.op("concat", after, {{"axis", axis}}));
  return true;
}

// A slice of a slice is one slice.
bool slice_chain(Graph& g, NodeId id, const Context&) {
  NodeId inner = producer(g, input(g, id, 0), "slice");
  if (!inner) return false;
  const Node &a = g[inner], &b = g[id];
  int64_t rank = g.type(result(g, id)).rank();
  auto r = static_cast<size_t>(rank);
  Shape start(r, Dim(0)), size = g.type(result(g, id)).shape;
  Ints step(r, 1);
  for (size_t i = 0; i < a.get_ints("axes").size(); ++i) {
    auto x = static_cast<size_t>((a.get_ints("axes")[i] + rank) % rank);
    start[x] = a.get_dims("starts")[i];
    step[x] = a.get_ints("steps")[i];
  }
  for (size_t i = 0; i < b.get_ints("axes").size(); ++i) {
    auto x = static_cast<size_t>((b.get_ints("axes")[i] + rank) % rank);
    start[x] = start[x] + b.get_dims("starts")[i] * step[x];
    step[x] = step[x] * b.get_ints("steps")[i];
  }
  Ints axes;
  for (int64_t i = 0; i < rank; ++i) axes.push_back(i);
  ValueId x = input(g, inner, 0);
  // Only axes that are cut stay.
  Ints kept, steps;
  Shape starts, sizes;
  for (size_t i = 0; i < r; ++i)
    if (!(start[i] == Dim(0)) || step[i] != 1 || !(size[i] == g.type(x).shape[i])) {
      kept.push_back(static_cast<int64_t>(i));
      starts.push_back(start[i]);
      sizes.push_back(size[i]);
      steps.push_back(step[i]);
    }
  Builder builder = builder_at(g, id);
  if (!kept.empty())
    x = builder.op("slice", {x}, {{"axes", kept}, {"starts", starts}, {"sizes", sizes}, {"steps", steps}});
  replace(g, id, x);
  return true;
}

// gather with one known index is a slice.
bool gather_constant(Graph& g, NodeId id, const Context&) {
  const Tensor* index = elements(g, input(g, id, 1));
  ValueId x = input(g, id, 0);
  if (!index || index->count() != 1 || g.type(x).dtype == DType::string) return false;
  int64_t rank = g.type(x).rank(), axis = g[id].get_int("axis");
  axis = axis < 0 ? axis + rank : axis;
  const Dim& size = g.type(x).shape[static_cast<size_t>(axis)];
  int64_t i = index->get_int(0);
  Dim start = i < 0 ? size + i : Dim(i);
  if (at_most(Dim(0), start, g.symbols->ranges) != Tri::yes ||
      at_most(start + 1, size, g.symbols->ranges) != Tri::yes)
    return false;
  Builder b = builder_at(g, id);
  ValueId s = b.op("slice", {x},
                   {{"axes", Ints{axis}}, {"starts", Shape{start}}, {"sizes", Shape{1}}, {"steps", Ints{1}}});
  replace(g, id, b.reshape(s, g.type(result(g, id)).shape));
  return true;
}

// A zero pad of spatial axes in front of a convolution becomes its padding.
bool pad_into_conv(Graph& g, NodeId id, const Context&) {
  const Node& n = g[id];
  NodeId p = producer(g, n.inputs[0], "pad");
  if (!p || g[p].get_text("mode") != "constant" || !is_float(g.type(n.inputs[0]).dtype)) return false;
  if (input(g, p, 1) && !is_uniform(g, input(g, p, 1), 0)) return false;
  Shape low = g[p].get_dims("low"), high = g[p].get_dims("high");
  for (size_t d = 0; d < low.size(); ++d) {
    bool spatial = d >= 2;
    if (!spatial && (!(low[d] == Dim(0)) || !(high[d] == Dim(0)))) return false;
    if (spatial && (low[d].range(g.symbols->ranges).min < 0 || high[d].range(g.symbols->ranges).min < 0))
      return false;
  }
  Attrs attrs = n.attrs;
  Shape conv_low = n.get_dims("low"), conv_high = n.get_dims("high");
  for (size_t d = 0; d < conv_low.size(); ++d) {
    conv_low[d] = conv_low[d] + low[d + 2];
    conv_high[d] = conv_high[d] + high[d + 2];
  }
  attrs["low"] = conv_low;
  attrs["high"] = conv_high;
  std::vector<ValueId> inputs = n.inputs;
  inputs[0] = input(g, p, 0);
  Builder b = builder_at(g, id);
  replace(g, id, b.op("conv", inputs, attrs));
  return true;
}

// The sum of two values side by side between zeros (gradients of slices of one tensor) is their
// concatenation.
bool add_of_pads(Graph& g, NodeId id, const Context&) {
  Padded a, b;
  if (!padded(g, input(g, id, 0), a) || !padded(g, input(g, id, 1), b) || a.axis != b.axis ||
      !same_shape(g, input(g, id, 0), input(g, id, 1)))
    return false;
  auto end = [&](const Padded& p) { return p.low + g.type(p.x).shape[p.axis]; };
  if (end(b) == a.low) std::swap(a, b);
  if (!(end(a) == b.low)) return false;
  Builder build = builder_at(g, id);
  ValueId v = build.op("concat", {a.x, b.x}, {{"axis", static_cast<int64_t>(a.axis)}});
  if (!(a.low == Dim(0)) || !(b.high == Dim(0))) {
    Shape low(g.type(v).shape.size(), Dim(0)), high = low;
    low[a.axis] = a.low;
    high[a.axis] = b.high;
    v = build.op("pad", {v}, {{"low", low}, {"high", high}});
  }
  replace(g, id, v);
  return true;
}

}  // namespace pelton::passes
