// SPDX-License-Identifier: Apache-2.0
// Gradients of reductions and scans. Elements that tie for a maximum or minimum share its gradient evenly.
#include <algorithm>

#include "ir/ops/composite.h"
#include "ir/ops/gradients.h"

namespace pelton::ir {
namespace {

using C = GradientContext;

Ints reduced_axes(C& c) {
  Ints axes = c.node.get_ints("axes");
  for (int64_t& a : axes) a = wrap_axis(a, c.b.rank(c.in(0)));
  std::sort(axes.begin(), axes.end());
  return axes;
}
// A reduced value with the reduced axes kept at size 1.
ValueId kept(C& c, ValueId v, const Ints& axes) {
  Shape shape = c.b.shape(c.in(0));
  for (int64_t a : axes) shape[static_cast<size_t>(a)] = 1;
  return c.b.reshape(v, shape);
}

void reduce_sum(C& c) {
  c.set(0, c.b.broadcast_to(kept(c, c.grad(), reduced_axes(c)), c.b.shape(c.in(0))));
}
void reduce_mean(C& c) {
  Ints axes = reduced_axes(c);
  Dim count = 1;
  for (int64_t a : axes) count = count * c.b.shape(c.in(0))[static_cast<size_t>(a)];
  ValueId g = c.b.div(c.grad(), size_scalar(c.b, count, c.b.dtype(c.grad())));
  c.set(0, c.b.broadcast_to(kept(c, g, axes), c.b.shape(c.in(0))));
}
void reduce_extreme(C& c) {
  Ints axes = reduced_axes(c);
  ValueId x = c.in(0), zero = c.b.like(x, 0);
  ValueId hit = c.b.op("eq", {x, kept(c, c.result(0), axes)});
  ValueId ties = c.b.reduce("reduce_sum", c.b.cast(hit, c.b.dtype(x)), axes, true);
  c.set(0, c.b.select(hit, c.b.div(kept(c, c.grad(), axes), ties), zero));
}

// The product of all the others, without division: what stands before times what stands behind.
void reduce_prod(C& c) {
  Builder& b = c.b;
  Ints axes = reduced_axes(c), perm;
  const Shape shape = b.shape(c.in(0));
  for (int64_t d = 0; d < b.rank(c.in(0)); ++d)
    if (!std::binary_search(axes.begin(), axes.end(), d)) perm.push_back(d);
  Dim count = 1;
  for (int64_t a : axes) count = count * shape[static_cast<size_t>(a)];
  Shape flat, moved;
  for (int64_t d : perm) flat.push_back(shape[static_cast<size_t>(d)]);
  flat.push_back(count);
  perm.insert(perm.end(), axes.begin(), axes.end());
  for (int64_t d : perm) moved.push_back(shape[static_cast<size_t>(d)]);
  Ints inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);

  ValueId x = b.reshape(b.transpose(c.in(0), perm), flat);
  auto axis = static_cast<int64_t>(flat.size()) - 1;
  ValueId before = b.op("cumprod", {x}, {{"axis", axis}, {"exclusive", true}});
  ValueId behind = b.op("cumprod", {x}, {{"axis", axis}, {"exclusive", true}, {"reverse", true}});
  ValueId others = b.transpose(b.reshape(b.mul(before, behind), moved), inverse);
  c.set(0, b.mul(kept(c, c.grad(), axes), others));
}

void cumsum(C& c) {
  Attrs attrs = c.node.attrs;
  attrs["reverse"] = !c.node.get_bool("reverse");
  c.set(0, c.b.op("cumsum", {c.grad()}, attrs));
}

// d r[k] / d x[i]: the product of the elements up to k but for x[i], from a square of copies of x whose
// diagonal is 1; quadratic in the axis, without division.
void cumprod(C& c) {
  Builder& b = c.b;
  ValueId x = c.in(0);
  int64_t axis = wrap_axis(c.node.get_int("axis"), b.rank(x)), last = b.rank(x) - 1;
  bool reverse = c.node.get_bool("reverse"), exclusive = c.node.get_bool("exclusive");
  Ints perm = axis_range(0, b.rank(x));
  std::swap(perm[static_cast<size_t>(axis)], perm[static_cast<size_t>(last)]);  // its own inverse
  x = b.transpose(x, perm);
  ValueId g = b.transpose(c.grad(), perm);
  Dim n = b.shape(x).back();
  Shape square = b.shape(x);
  square.push_back(n);
  auto counting = [&](int64_t along) {
    return b.op("iota", {}, {{"dims", Shape{n, n}}, {"axis", along}, {"dtype", DType::i64}});
  };
  ValueId i = counting(0), k = counting(1);
  ValueId copies = b.broadcast_to(b.unsqueeze(x, {last}), square);
  ValueId products = b.op("cumprod", {b.select(b.op("eq", {i, k}), b.like(x, 1), copies)},
                          {{"axis", last + 1}, {"reverse", reverse}, {"exclusive", exclusive}});
  std::string_view sees = reverse ? (exclusive ? "lt" : "le") : (exclusive ? "gt" : "ge");
  ValueId terms = b.mul(products, b.unsqueeze(g, {last}));
  ValueId sum = b.reduce("reduce_sum", b.select(b.op(sees, {k, i}), terms, b.like(x, 0)), {last + 1}, false);
  c.set(0, b.transpose(sum, perm));
}

}  // namespace

void add_reduce_gradients(OpRows& rows) {
  set_gradients(rows, {{"reduce_sum", reduce_sum},
                       {"reduce_mean", reduce_mean},
                       {"reduce_max", reduce_extreme},
                       {"reduce_min", reduce_extreme},
                       {"reduce_prod", reduce_prod},
                       {"cumsum", cumsum},
                       {"cumprod", cumprod}});
}

}  // namespace pelton::ir
