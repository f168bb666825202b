// SPDX-License-Identifier: Apache-2.0
// Gradients of movement: each puts elements back where they came from and adds up those that were copied.
#include <algorithm>

#include "ir/ops/composite.h"
#include "ir/ops/gradients.h"

namespace pelton::ir {
namespace {

using C = GradientContext;

void reshape(C& c) {
  c.set(0, c.b.reshape(c.grad(), c.b.shape(c.in(0))));
}
void transpose(C& c) {
  const Ints& perm = c.node.get_ints("perm");
  Ints inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  c.set(0, c.b.transpose(c.grad(), inverse));
}
void broadcast(C& c) {
  c.set(0, c.grad());
}

// Zeros around (and, for steps, between) the elements that were read.
void slice(C& c) {
  Builder& b = c.b;
  const Shape shape = b.shape(c.in(0));
  const Ints &axes = c.node.get_ints("axes"), &steps = c.node.get_ints("steps");
  const Shape &starts = c.node.get_dims("starts"), &sizes = c.node.get_dims("sizes");
  ValueId g = c.grad();
  Shape low(shape.size(), Dim(0)), high = low;
  Ints flipped;
  for (size_t i = 0; i < axes.size(); ++i)
    if (steps[i] < 0) flipped.push_back(wrap_axis(axes[i], b.rank(g)));
  if (!flipped.empty()) g = b.op("reverse", {g}, {{"axes", flipped}});
  for (size_t i = 0; i < axes.size(); ++i) {
    auto axis = static_cast<size_t>(wrap_axis(axes[i], b.rank(g)));
    int64_t step = std::abs(steps[i]);
    Dim first = steps[i] < 0 ? starts[i] + (sizes[i] - 1) * steps[i] : starts[i], length = sizes[i];
    if (step > 1) {
      Shape spread = b.shape(g);
      ValueId wide = b.unsqueeze(g, {static_cast<int64_t>(axis) + 1});
      Shape none(spread.size() + 1, Dim(0)), behind = none;
      behind[axis + 1] = step - 1;
      spread[axis] = length = sizes[i] * step;
      g = b.reshape(b.op("pad", {wide}, {{"low", none}, {"high", behind}}), spread);
    }
    low[axis] = first;
    high[axis] = shape[axis] - first - length;
  }
  c.set(0, b.op("pad", {g}, {{"low", low}, {"high", high}}));
}

void concat(C& c) {
  int64_t axis = wrap_axis(c.node.get_int("axis"), c.b.rank(c.in(0)));
  Dim start = 0;
  for (size_t i = 0; i < c.node.inputs.size(); ++i) {
    Dim size = c.b.shape(c.in(i))[static_cast<size_t>(axis)];
    if (c.wants(i))
      c.set(
          i,
          c.b.op(
              "slice", {c.grad()},
              {{"axes", Ints{axis}}, {"starts", Shape{start}}, {"sizes", Shape{size}}, {"steps", Ints{1}}}));
    start = start + size;
  }
}

// Index read by each padded position of an axis of n elements.
ValueId padded_index(Builder& b, const std::string& mode, const Dim& n, const Dim& low, const Dim& high) {
  auto whole = [&](const Dim& d) { return b.reshape(b.op("contents", {}, {{"dims", Shape{d}}}), {}); };
  ValueId i = b.op("iota", {}, {{"dims", Shape{low + n + high}}, {"dtype", DType::i64}});
  i = b.sub(i, whole(low));
  ValueId zero = b.like(i, 0), last = whole(n - 1);
  if (mode == "edge") return b.op("min", {b.op("max", {i, zero}), last});
  if (mode == "wrap") return b.op("mod", {i, whole(n)});
  // reflect: a walk to and fro of period 2 (n - 1), which for one element is a stand still
  ValueId period = b.op("max", {b.mul(last, b.like(i, 2)), b.like(i, 1)});
  ValueId at = b.op("mod", {i, period});
  return b.op("min", {at, b.op("abs", {b.sub(period, at)})});
}

void pad(C& c) {
  Builder& b = c.b;
  const Shape &low = c.node.get_dims("low"), &high = c.node.get_dims("high");
  const std::string& mode = c.node.get_text("mode");
  if (mode == "constant") {
    Shape less_low, less_high;
    for (const Dim& d : low) less_low.push_back(-d);
    for (const Dim& d : high) less_high.push_back(-d);
    ValueId inner = b.op("pad", {c.grad()}, {{"low", less_low}, {"high", less_high}});
    if (c.wants(0)) c.set(0, inner);
    if (c.has(1) && c.wants(1)) {
      Ints all = axis_range(0, b.rank(inner));
      ValueId rest =
          b.sub(b.reduce("reduce_sum", c.grad(), all, false), b.reduce("reduce_sum", inner, all, false));
      c.set(1, b.reshape(rest, b.shape(c.in(1))));
    }
    return;
  }
  // Other modes read x[index] along each axis: add up what each element was read for.
  const Shape shape = b.shape(c.in(0));
  ValueId g = c.grad();
  for (size_t d = 0; d < shape.size(); ++d) {
    if (low[d] == Dim(0) && high[d] == Dim(0)) continue;
    ValueId index = b.unsqueeze(padded_index(b, mode, shape[d], low[d], high[d]), {1});
    Ints perm = axis_range(0, b.rank(g));
    std::swap(perm[0], perm[d]);
    ValueId moved = b.transpose(g, perm);
    Shape to = b.shape(moved);
    to[0] = shape[d];
    ValueId sums =
        b.op("scatter_nd", {zeros(b, b.dtype(g), to), index, moved}, {{"reduction", std::string("add")}});
    g = b.transpose(sums, perm);
  }
  if (c.wants(0)) c.set(0, g);
}

void tile(C& c) {
  Builder& b = c.b;
  const Shape shape = b.shape(c.in(0)), &repeats = c.node.get_dims("repeats");
  Shape split;
  Ints axes;
  for (size_t d = 0; d < shape.size(); ++d) {
    axes.push_back(static_cast<int64_t>(split.size()));
    split.push_back(repeats[d]);
    split.push_back(shape[d]);
  }
  c.set(0, b.reduce("reduce_sum", b.reshape(c.grad(), split), axes, false));
}

void reverse(C& c) {
  c.set(0, c.b.op("reverse", {c.grad()}, c.node.attrs));
}
void fill(C& c) {
  ValueId sum = c.b.reduce("reduce_sum", c.grad(), axis_range(0, c.b.rank(c.grad())), false);
  c.set(0, c.b.reshape(sum, c.b.shape(c.in(0))));
}
void trilu(C& c) {
  std::vector<ValueId> inputs = c.node.inputs;
  inputs[0] = c.grad();
  c.set(0, c.b.op("trilu", inputs, c.node.attrs));
}

}  // namespace

void add_shape_gradients(OpRows& rows) {
  set_gradients(rows, {{"reshape", reshape},
                       {"dynamic_reshape", reshape},
                       {"transpose", transpose},
                       {"broadcast_to", broadcast},
                       {"after", broadcast},
                       {"slice", slice},
                       {"concat", concat},
                       {"pad", pad},
                       {"tile", tile},
                       {"reverse", reverse},
                       {"fill", fill},
                       {"trilu", trilu}});
}

}  // namespace pelton::ir
