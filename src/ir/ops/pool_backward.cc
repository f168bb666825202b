// SPDX-License-Identifier: Apache-2.0
// Gradients of pooling. max_pool_backward finds the maximum of each window again, so that the forward pass
// stores no indices; avg_pool_backward spreads each gradient over the taps that were averaged. g[N,C,P...] is
// the gradient of the result, x[N,C,S...].
#include "ir/ops/pool_backward.h"
#include "ir/ops/composite.h"
#include "ir/ops/gradients.h"
#include "ir/ops/window.h"

namespace pelton::ir {
namespace {

constexpr auto kShape = ErrorCode::bad_shape;
using C = GradientContext;
using Values = std::vector<ValueId>;

void check(InferContext& c, const Shape& x) {
  const Shape& g = c.shape(0);
  c.require(x.size() >= 3 && g.size() == x.size(), kShape, "C2",
            cat("needs a gradient and data of one rank, 3 or more, not ", cat(g), " and ", cat(x)));
  Shape want{x[0], x[1]},
      spatial = infer_window(c, Shape(x.begin() + 2, x.end()), to_shape(c.node.get_ints("kernel")),
                             c.node.get_bool("ceil"));
  want.insert(want.end(), spatial.begin(), spatial.end());
  for (size_t d = 0; d < want.size(); ++d) c.same(g[d], want[d], "C3");
}
// (g, x) -> dx.
void infer_max(InferContext& c) {
  for (size_t i : {0, 1}) require_float(c, i, "C1");
  require_same_type(c, 0, 1, "C1");
  check(c, c.shape(1));
  c.output(0, c.dtype(0), c.shape(1));
}
// (g) {dims: [N,C,S...]} -> dx.
void infer_avg(InferContext& c) {
  require_float(c, 0, "C1");
  check(c, c.node.get_dims("dims"));
  c.output(0, c.dtype(0), c.node.get_dims("dims"));
}

Attrs without(Attrs attrs, std::string_view name) {
  attrs.erase(attrs.find(name));
  return attrs;
}

Values decompose_max(Builder& b, const Node& n) {
  ValueId x = n.inputs[1], g = n.inputs[0];
  const Shape shape = b.shape(x);
  DType t = b.dtype(g);
  Dim all = element_count(shape), read = element_count(b.shape(g));
  ValueId index = b.reshape(b.ops("max_pool", {x}, n.attrs, 2)[1], {read, 1});
  ValueId flat = b.reshape(g, {read}), none = b.op("lt", {index, b.like(index, 0)});
  flat = b.select(b.reshape(none, {read}), b.scalar(t, 0), flat);  // a window that sees nothing has no place
  ValueId sums = b.op("scatter_nd", {zeros(b, t, {all}), b.op("max", {index, b.like(index, 0)}), flat},
                      {{"reduction", std::string("add")}});
  return {b.reshape(sums, shape)};
}

// The gradients, each over the number of taps of its window, spread by a convolution of every channel with
// ones.
Values decompose_avg(Builder& b, const Node& n) {
  auto x = as_dims(n.get_dims("dims")), g = as_dims(b.shape(n.inputs[0]));
  if (!x || !g) return {};
  const size_t spatial = x->size() - 2;
  Window w = window_of(n, spatial);
  auto low = as_dims(w.low), high = as_dims(w.high);
  if (!low || !high) return {};
  ConcreteWindow window{n.get_ints("kernel"), w.strides, w.dilations, *low, *high};
  Dims places(g->begin() + 2, g->end());
  std::vector<double> counts;
  for_each_index(places, [&](const Dims& o) {
    double count = 1;
    for (size_t d = 0; d < spatial; ++d) {
      int64_t inside = 0, limit = (*x)[d + 2] + (n.get_bool("count_padding") ? (*high)[d] : 0);
      for (int64_t k = 0; k < window.kernel[d]; ++k) {
        int64_t at = window.position(d, o[d], k);
        inside += at < limit && (at >= 0 || n.get_bool("count_padding"));
      }
      count *= static_cast<double>(inside);
    }
    counts.push_back(count);
  });
  DType t = b.dtype(n.inputs[0]);
  Dims shape{1, 1}, planes{(*x)[0] * (*x)[1], 1}, pooled = planes, kernel{1, 1};
  shape.insert(shape.end(), places.begin(), places.end());
  pooled.insert(pooled.end(), places.begin(), places.end());
  planes.insert(planes.end(), x->begin() + 2, x->end());
  kernel.insert(kernel.end(), window.kernel.begin(), window.kernel.end());
  // A last window of `ceil` runs over the end: as much padding as it needs.
  Shape reach = w.high;
  for (size_t d = 0; d < spatial; ++d)
    reach[d] =
        std::max((*high)[d], window.position(d, places[d] - 1, window.kernel[d] - 1) + 1 - (*x)[d + 2]);
  ValueId share = b.div(n.inputs[0], b.constant(from_doubles(t, shape, counts)));
  ValueId ones = b.constant(Tensor::full(t, kernel, 1));
  Attrs attrs{{"dims", to_shape(planes)}, {"low", w.low}, {"high", reach}};
  for (const char* name : {"strides", "dilations"})
    if (n.has_attr(name)) attrs[name] = n.attr(name);
  ValueId dx = b.op("conv_backward_data", {b.reshape(share, to_shape(pooled)), ones}, attrs);
  return {b.reshape(dx, to_shape(*x))};
}

void max_pool(C& c) {
  if (c.grad()) {
    Attrs attrs = c.node.attrs;
    attrs.erase("row_major");
    c.set(0, c.b.op("max_pool_backward", {c.grad(), c.in(0)}, attrs));
  }
}
void avg_pool(C& c) {
  Attrs attrs = c.node.attrs;
  attrs["dims"] = c.b.shape(c.in(0));
  c.set(0, c.b.op("avg_pool_backward", {c.grad()}, attrs));
}
void avg_pool_backward(C& c) {
  c.set(0, c.b.op("avg_pool", {c.grad()}, without(c.node.attrs, "dims")));
}

// y = (sum |x|^p)^(1/p): the sum is a convolution of every channel with ones.
void lp_pool(C& c) {
  Builder& b = c.b;
  if (c.node.get_bool("ceil")) c.refuse("lp_pool with ceil has no gradient");
  ValueId x = c.in(0), y = c.result(0);
  auto p = static_cast<double>(c.node.get_int("p"));
  const Shape xs = b.shape(x), ys = b.shape(y);
  Shape planes = xs, pooled = ys;
  planes[0] = xs[0] * xs[1];
  pooled[0] = ys[0] * ys[1];
  planes[1] = pooled[1] = 1;
  Shape kernel{1, 1};
  for (int64_t k : c.node.get_ints("kernel")) kernel.emplace_back(k);
  ValueId ones = b.op("fill", {b.like(x, 1)}, {{"dims", kernel}});
  ValueId g = c.grad();
  if (p != 1) {
    // A window of zeros has no direction: its gradient is 0.
    ValueId empty = b.op("eq", {y, b.like(y, 0)});
    g = b.mul(g, b.op("pow", {b.select(empty, b.like(y, 1), y), b.like(y, 1 - p)}));
  }
  Attrs attrs;
  for (const char* name : {"strides", "dilations", "low", "high"})
    if (c.node.has_attr(name)) attrs[name] = c.node.attr(name);
  attrs["dims"] = planes;
  ValueId spread = b.reshape(b.op("conv_backward_data", {b.reshape(g, pooled), ones}, attrs), xs);
  ValueId slope = b.op("sign", {x});
  if (p != 1) slope = b.mul(slope, b.op("pow", {b.op("abs", {x}), b.like(x, p - 1)}));
  c.set(0, b.mul(spread, slope));
}

// What unpool moved to an index is read there.
void max_unpool(C& c) {
  if (c.has(2)) c.refuse("max_unpool into a given shape has no gradient");
  Builder& b = c.b;
  const Shape shape = b.shape(c.in(0));
  ValueId flat = b.reshape(c.grad(), {element_count(b.shape(c.grad()))});
  c.set(0, b.op("gather", {flat, c.in(1)}, {{"axis", int64_t{0}}}));
}

double flops(const Graph&, const Node& node, const std::vector<Dims>& in, const std::vector<Dims>&) {
  return static_cast<double>(element_count(in[0])) *
         static_cast<double>(element_count(node.get_ints("kernel")));
}

OpDef backward(std::string_view name, int inputs, const AttrDef* extra, void (*infer)(InferContext&),
               void (*eval)(EvalContext&)) {
  OpDef row;
  row.name = name;
  row.family = Family::pooling;
  row.min_inputs = row.max_inputs = inputs;
  row.attrs = window_attrs();
  row.attrs.push_back({"kernel", AttrKind::ints, {}});
  row.attrs.push_back({"ceil", AttrKind::boolean, Attr(false)});
  if (extra) row.attrs.push_back(*extra);
  row.constraints = {"C1: operands of one float type",
                     "C2: data of rank 3 or more",
                     "C3: the gradient has the shape of the pooled result",
                     kW1,
                     kW2,
                     kW3};
  row.infer = infer;
  row.eval = eval;
  row.flops = flops;
  row.precision = Precision::accumulates;
  row.layout = LayoutFreedom::channels;
  return row;
}

}  // namespace

void add_pool_backward(OpRows& rows) {
  rows.push_back(backward("max_pool_backward", 2, nullptr, infer_max, eval_max_pool_backward));
  rows.back().decompose = decompose_max;
  const AttrDef count{"count_padding", AttrKind::boolean, Attr(false)};
  rows.push_back(backward("avg_pool_backward", 1, &count, infer_avg, eval_avg_pool_backward));
  rows.back().decompose = decompose_avg;
  rows.back().attrs.push_back({"dims", AttrKind::dims, {}});
}

void add_pool_gradients(OpRows& rows) {
  set_gradients(rows, {{"max_pool", max_pool},
                       {"avg_pool", avg_pool},
                       {"avg_pool_backward", avg_pool_backward},
                       {"lp_pool", lp_pool},
                       {"max_unpool", max_unpool}});
}

}  // namespace pelton::ir
