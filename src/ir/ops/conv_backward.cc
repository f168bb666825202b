// SPDX-License-Identifier: Apache-2.0
// Rows, inference and gradients of the convolutions' backward forms.
#include "ir/ops/conv_backward.h"

#include "ir/ops/composite.h"
#include "ir/ops/gradients.h"
#include "ir/ops/window.h"

namespace pelton::ir {
namespace {

constexpr auto kShape = ErrorCode::bad_shape;
using C = GradientContext;
using Values = std::vector<ValueId>;

// g[N,O,P...] fits a convolution of x[N,C,S...] with w[O,C/groups,K...].
void check(InferContext& c, const Shape& g, const Shape& x, const Shape& w) {
  int64_t groups = c.node.get_int("groups");
  c.require(g.size() >= 3 && g.size() == x.size() && g.size() == w.size(), kShape, "C2",
            cat("needs operands of one rank, 3 or more: ", cat(g), ", ", cat(x), " and ", cat(w)));
  c.require(groups >= 1 && divisible_by(w[0], groups, c.ranges()) != Tri::no &&
                divisible_by(x[1], groups, c.ranges()) != Tri::no,
            kShape, "C3",
            cat("cannot split ", x[1].str(), " and ", w[0].str(), " channels into ", groups, " groups"));
  c.same(x[1], w[1] * groups, "C4");
  c.same(g[0], x[0], "C4");
  c.same(g[1], w[0], "C4");
  Shape out = infer_window(c, Shape(x.begin() + 2, x.end()), Shape(w.begin() + 2, w.end()));
  for (size_t d = 0; d < out.size(); ++d) c.same(g[d + 2], out[d], "C5");
}
void check_types(InferContext& c) {
  for (size_t i : {0, 1}) require_float(c, i, "C1");
  require_same_type(c, 0, 1, "C1");
}

// (g, w) {dims: [N,C,S...]} -> x's shape.
void infer_data(InferContext& c) {
  check_types(c);
  const Shape& dims = c.node.get_dims("dims");
  check(c, c.shape(0), dims, c.shape(1));
  c.output(0, c.dtype(0), dims);
}
// (g, x) {kernel} -> [O, C/groups, K...].
void infer_weights(InferContext& c) {
  check_types(c);
  c.require(c.rank(0) >= 3 && c.rank(1) == c.rank(0), kShape, "C2",
            cat("needs operands of one rank, 3 or more: ", cat(c.shape(0)), " and ", cat(c.shape(1))));
  Shape w{c.shape(0)[1], Dim::floor_div(c.shape(1)[1], std::max<int64_t>(1, c.node.get_int("groups")))};
  for (int64_t k : c.node.get_ints("kernel")) w.emplace_back(k);
  check(c, c.shape(0), c.shape(1), w);
  c.output(0, c.dtype(0), w);
}

Attrs shared(const Node& n) {
  Attrs attrs;
  for (const char* name : {"strides", "dilations", "low", "high", "groups"})
    if (n.has_attr(name)) attrs[name] = n.attr(name);
  return attrs;
}
ValueId backward_data(Builder& b, const Node& n, ValueId g, ValueId w, const Shape& dims) {
  Attrs attrs = shared(n);
  attrs["dims"] = dims;
  return b.op("conv_backward_data", {g, w}, attrs);
}
ValueId backward_weights(Builder& b, const Node& n, ValueId g, ValueId x, const Shape& w) {
  auto kernel = as_dims(Shape(w.begin() + 2, w.end()));
  if (!kernel)
    fail(ErrorCode::bad_shape,
         cat("the gradient of convolution weights ", cat(w), " needs fixed kernel sizes"), b.node_name());
  Attrs attrs = shared(n);
  attrs["kernel"] = Ints(*kernel);
  return b.op("conv_backward_weights", {g, x}, attrs);
}
ValueId channel_sums(Builder& b, ValueId g) {
  Ints axes = axis_range(2, b.rank(g));
  axes.insert(axes.begin(), 0);
  return b.reduce("reduce_sum", g, axes, false);
}

void conv(C& c) {
  Builder& b = c.b;
  const Shape x = b.shape(c.in(0)), w = b.shape(c.in(1));
  if (c.wants(0)) c.set(0, backward_data(b, c.node, c.grad(), c.in(1), x));
  if (c.wants(1)) c.set(1, backward_weights(b, c.node, c.grad(), c.in(0), w));
  if (c.has(2) && c.wants(2)) c.set(2, channel_sums(b, c.grad()));
}
// The transpose is conv's gradient by its data, so conv is its own.
void conv_transpose(C& c) {
  Builder& b = c.b;
  const Shape w = b.shape(c.in(1));
  if (c.wants(0)) c.set(0, b.op("conv", {c.grad(), c.in(1)}, shared(c.node)));
  if (c.wants(1)) c.set(1, backward_weights(b, c.node, c.in(0), c.grad(), w));
  if (c.has(2) && c.wants(2)) c.set(2, channel_sums(b, c.grad()));
}
void data(C& c) {
  Builder& b = c.b;
  const Shape w = b.shape(c.in(1));
  if (c.wants(0)) c.set(0, b.op("conv", {c.grad(), c.in(1)}, shared(c.node)));
  if (c.wants(1)) c.set(1, backward_weights(b, c.node, c.in(0), c.grad(), w));
}
void weights(C& c) {
  Builder& b = c.b;
  const Shape x = b.shape(c.in(1));
  if (c.wants(0)) c.set(0, b.op("conv", {c.in(1), c.grad()}, shared(c.node)));
  if (c.wants(1)) c.set(1, backward_data(b, c.node, c.in(0), c.grad(), x));
}

double products(const Dims& g, double taps_each) {
  return 2 * static_cast<double>(element_count(g)) * taps_each;
}
double data_flops(const Graph&, const Node&, const std::vector<Dims>& in, const std::vector<Dims>&) {
  return products(in[0], in[1][0] ? static_cast<double>(element_count(in[1]) / in[1][0]) : 0);
}
double weights_flops(const Graph&, const Node&, const std::vector<Dims>& in, const std::vector<Dims>& out) {
  return products(in[0], out[0][0] ? static_cast<double>(element_count(out[0]) / out[0][0]) : 0);
}

}  // namespace

void add_conv_backward(OpRows& rows) {
  OpDef row;
  row.name = "conv_backward_data";
  row.family = Family::convolution;
  row.min_inputs = row.max_inputs = 2;
  const AttrDef groups{"groups", AttrKind::integer, Attr(int64_t{1})},
      dims{"dims", AttrKind::dims, std::nullopt}, kernel{"kernel", AttrKind::ints, std::nullopt};
  row.attrs = window_attrs();
  row.attrs.push_back(groups);
  const std::vector<AttrDef> common = row.attrs;
  row.attrs.push_back(dims);
  row.constraints = {"C1: operands of one float type",
                     "C2: operands of one rank, 3 or more",
                     "C3: groups divides the channels of both sides",
                     "C4: channels and batch fit",
                     "C5: the gradient has the size of the convolution's result",
                     kW1,
                     kW2,
                     kW3};
  row.infer = infer_data;
  row.eval = eval_conv_backward_data;
  row.decompose = decompose_conv_backward_data;
  row.flops = data_flops;
  row.precision = Precision::accumulates;
  row.layout = LayoutFreedom::channels;
  rows.push_back(row);

  row.name = "conv_backward_weights";
  row.attrs = common;
  row.attrs.push_back(kernel);
  row.infer = infer_weights;
  row.eval = eval_conv_backward_weights;
  row.decompose = decompose_conv_backward_weights;
  row.flops = weights_flops;
  rows.push_back(std::move(row));
}

void add_conv_gradients(OpRows& rows) {
  set_gradients(rows, {{"conv", conv},
                       {"conv_transpose", conv_transpose},
                       {"conv_backward_data", data},
                       {"conv_backward_weights", weights}});
}

}  // namespace pelton::ir
