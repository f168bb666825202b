// SPDX-License-Identifier: Apache-2.0
// Gradients of gather, scatter and sorting. What a gather reads is added up where it was read; of updates
// that meet at one place the last wins, so the others get nothing.
#include "ir/ops/composite.h"
#include "ir/ops/gradients.h"

namespace pelton::ir {
namespace {

using C = GradientContext;

Attrs adding(Attrs attrs) {
  attrs["reduction"] = std::string("add");
  return attrs;
}
ValueId counting(Builder& b, Shape dims, int64_t axis) {
  return b.op("iota", {}, {{"dims", std::move(dims)}, {"axis", axis}, {"dtype", DType::i64}});
}

// x[..., n, ...] read at i[I...]: the axes of i come to the front, where scatter_nd wants them.
void gather(C& c) {
  Builder& b = c.b;
  const Shape shape = b.shape(c.in(0));
  int64_t axis = wrap_axis(c.node.get_int("axis"), b.rank(c.in(0))), picks = b.rank(c.in(1));
  Ints perm = axis_range(axis, axis + picks), back;
  for (int64_t d = 0; d < b.rank(c.grad()); ++d)
    if (d < axis || d >= axis + picks) perm.push_back(d);
  Shape to{shape[static_cast<size_t>(axis)]};
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
    if (d != axis) to.push_back(shape[static_cast<size_t>(d)]);
    back.push_back(d < axis ? d + 1 : d == axis ? 0 : d);
  }
  ValueId updates = b.transpose(c.grad(), perm), index = b.unsqueeze(c.in(1), {-1});
  ValueId sums = b.op("scatter_nd", {zeros(b, b.dtype(updates), to), index, updates}, adding({}));
  c.set(0, b.transpose(sums, back));
}

void gather_elements(C& c) {
  c.set(0, c.b.op("scatter_elements", {zeros_like(c.b, c.in(0)), c.in(1), c.grad()},
                  adding({{"axis", c.node.get_int("axis")}})));
}

// The tuples with the coordinates of the batch in front of them.
ValueId full_index(Builder& b, ValueId index, int64_t batch) {
  if (batch == 0) return index;
  Shape one = b.shape(index);
  one.back() = 1;
  index = b.cast(index, DType::i64);
  std::vector<ValueId> parts;
  for (int64_t d = 0; d < batch; ++d) parts.push_back(counting(b, one, d));
  parts.push_back(index);
  return b.op("concat", parts, {{"axis", b.rank(index) - 1}});
}
void gather_nd(C& c) {
  ValueId index = full_index(c.b, c.in(1), c.node.get_int("batch_dims"));
  c.set(0, c.b.op("scatter_nd", {zeros_like(c.b, c.in(0)), index, c.grad()}, adding({})));
}

// The two scatters: the one of elements along an axis, the other of slices at index tuples.
class Scatter {
 public:
  explicit Scatter(C& c) : c_(c), elements_(c.node.is("scatter_elements")) {}

  ValueId into(ValueId data, ValueId updates, const char* reduction) {
    Attrs attrs = place();
    attrs["reduction"] = std::string(reduction);
    return c_.b.op(elements_ ? "scatter_elements" : "scatter_nd", {data, c_.in(1), updates}, attrs);
  }
  ValueId from(ValueId data) {
    return c_.b.op(elements_ ? "gather_elements" : "gather_nd", {data, c_.in(1)}, place());
  }
  // Whether each update is the last one at its place; broadcasts to the updates.
  ValueId wins() {
    Builder& b = c_.b;
    Shape numbered = b.shape(c_.in(1)), board = b.shape(c_.in(0));
    if (!elements_) {
      auto tuple = static_cast<size_t>(numbered.back().value());
      numbered.pop_back();
      board.resize(tuple);
    }
    ValueId ids = b.reshape(counting(b, {element_count(numbered)}, 0), numbered);
    ValueId last = from(into(zeros(b, DType::i64, board), ids, "none"));
    ValueId same = b.op("eq", {last, ids});
    Shape shape = b.shape(same);
    shape.resize(b.shape(c_.in(2)).size(), Dim(1));
    return b.reshape(same, shape);
  }

 private:
  Attrs place() const {
    Attrs attrs;
    if (elements_) attrs["axis"] = c_.node.get_int("axis");
    return attrs;
  }
  C& c_;
  bool elements_;
};

void scatter(C& c) {
  Builder& b = c.b;
  Scatter s(c);
  ValueId g = c.grad(), zero = b.like(g, 0);
  const std::string& reduction = c.node.get_text("reduction");
  if (reduction == "none") {
    if (c.wants(0)) c.set(0, s.into(g, zeros_like(b, c.in(2)), "none"));
    if (c.wants(2)) c.set(2, b.select(s.wins(), s.from(g), zero));
  } else if (reduction == "add") {
    if (c.wants(0)) c.set(0, g);
    if (c.wants(2)) c.set(2, s.from(g));
  } else if (reduction == "mul") {
    if (c.wants(2)) c.refuse("updates that multiply have no gradient");
    ValueId ones = b.op("fill", {b.like(g, 1)}, {{"dims", b.shape(g)}});
    c.set(0, b.mul(g, s.into(ones, c.in(2), "mul")));
  } else {  // max, min: those that tie share
    ValueId r = c.result(0), data_hit = b.op("eq", {c.in(0), r}),
            update_hit = b.op("eq", {c.in(2), s.from(r)});
    DType t = b.dtype(g);
    ValueId share = b.div(g, s.into(b.cast(data_hit, t), b.cast(update_hit, t), "add"));
    if (c.wants(0)) c.set(0, b.select(data_hit, share, zero));
    if (c.wants(2)) c.set(2, b.select(update_hit, s.from(share), zero));
  }
}

// The on value is read where a one stands, the off value elsewhere.
void one_hot(C& c) {
  Builder& b = c.b;
  DType t = b.dtype(c.grad());
  ValueId one = b.op("one_hot", {c.in(0), c.in(1), b.constant(from_doubles(t, {2}, {0, 1}))},
                     {{"axis", c.node.get_int("axis")}});
  Ints all = axis_range(0, b.rank(c.grad()));
  ValueId on = b.reduce("reduce_sum", b.mul(c.grad(), one), all, false);
  ValueId off = b.sub(b.reduce("reduce_sum", c.grad(), all, false), on);
  c.set(2, b.op("concat", {b.reshape(off, {1}), b.reshape(on, {1})}, {{"axis", int64_t{0}}}));
}

void reverse_sequence(C& c) {
  c.set(0, c.b.op("reverse_sequence", {c.grad(), c.in(1)}, c.node.attrs));
}

// past with `update` written from write_indices (0 without) on along an axis.
void tensor_scatter(C& c) {
  Builder& b = c.b;
  if (c.wants(0)) c.set(0, b.op("tensor_scatter", {c.grad(), zeros_like(b, c.in(1)), c.in(2)}, c.node.attrs));
  if (!c.wants(1)) return;
  const Shape update = b.shape(c.in(1));
  int64_t axis = wrap_axis(c.node.get_int("axis"), b.rank(c.in(0)));
  ValueId at = counting(b, update, axis);
  if (c.has(2)) {
    Shape first(update.size(), Dim(1));
    first[0] = update[0];
    at = b.add(at, b.reshape(b.cast(c.in(2), DType::i64), first));
  }
  if (c.node.get_bool("circular"))
    at = b.op("mod", {at, size_scalar(b, b.shape(c.in(0))[static_cast<size_t>(axis)], DType::i64)});
  c.set(1, b.op("gather_elements", {c.grad(), at}, {{"axis", axis}}));
}

// Values of topk and sort come from the places that result 1 names, each read once.
void sorted_values(C& c) {
  if (c.grad())
    c.set(0, c.b.op("scatter_elements", {zeros_like(c.b, c.in(0)), c.result(1), c.grad()},
                    adding({{"axis", c.node.get_int("axis")}})));
}

}  // namespace

void add_index_gradients(OpRows& rows) {
  set_gradients(rows, {{"gather", gather},
                       {"gather_elements", gather_elements},
                       {"gather_nd", gather_nd},
                       {"scatter_elements", scatter},
                       {"scatter_nd", scatter},
                       {"one_hot", one_hot},
                       {"reverse_sequence", reverse_sequence},
                       {"tensor_scatter", tensor_scatter},
                       {"topk", sorted_values},
                       {"sort", sorted_values}});
}

}  // namespace pelton::ir
