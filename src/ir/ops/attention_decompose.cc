// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "ir/ops/attention.h"
#include "ir/ops/composite.h"

namespace pelton::ir {
namespace {

using Values = std::vector<ValueId>;

ValueId slice(Builder& b, ValueId x, int64_t axis, Dim start, Dim size, int64_t step = 1) {
  return b.op("slice", {x},
              {{"axes", Ints{axis}},
               {"starts", Shape{std::move(start)}},
               {"sizes", Shape{std::move(size)}},
               {"steps", Ints{step}}});
}
ValueId to_float(Builder& b, const Dim& d, DType t) {
  return b.cast(b.reshape(b.op("contents", {}, {{"dims", Shape{d}}}), {}), t);
}
ValueId positions(Builder& b, const Dim& count, int64_t axis) {
  Shape dims(2, Dim(1));
  dims[static_cast<size_t>(axis)] = count;
  return b.op("iota", {}, {{"dims", dims}, {"axis", axis}, {"dtype", DType::i64}});
}

}  // namespace

Values decompose_attention(Builder& b, const Node& n) {
  ValueId q = n.inputs[0], k = n.inputs[1], v = n.inputs[2];
  const Shape qs = b.shape(q), ks = b.shape(k), vs = b.shape(v);
  DType t = b.dtype(q);
  // Query heads of one key head form an axis of their own, over which keys and values broadcast.
  bool grouped = qs[1] != ks[1];
  if (grouped) {
    q = b.reshape(q, {qs[0], ks[1], Dim::floor_div(qs[1], ks[1]), qs[2], qs[3]});
    k = b.reshape(k, {ks[0], ks[1], 1, ks[2], ks[3]});
    v = b.reshape(v, {vs[0], vs[1], 1, vs[2], vs[3]});
  }
  ValueId s = b.cast(b.op("matmul", {q, k}, {{"transpose_b", true}}), wide_type(t));
  if (grouped) s = b.reshape(s, {qs[0], qs[1], qs[2], ks[2]});
  if (double scale = n.get_real("scale"); scale != 0)
    s = b.mul(s, b.like(s, scale));
  else if (qs[3].is_const())
    s = b.mul(s, b.like(s, 1 / std::sqrt(static_cast<double>(qs[3].value()))));
  else
    s = b.mul(s, b.op("rsqrt", {to_float(b, qs[3], b.dtype(s))}));
  if (double cap = n.get_real("softcap"); cap != 0)
    s = b.mul(b.op("tanh", {b.div(s, b.like(s, cap))}), b.like(s, cap));
  ValueId never = b.like(s, -INFINITY);
  bool masked = n.inputs.size() > 3 && n.inputs[3], causal = n.get_bool("causal");
  if (masked) {
    ValueId mask = n.inputs[3];
    s = b.dtype(mask) == DType::boolean ? b.select(mask, s, never) : b.add(s, b.cast(mask, b.dtype(s)));
  }
  if (causal) {
    ValueId shift = b.reshape(b.op("contents", {}, {{"dims", Shape{ks[2] - qs[2]}}}), {});
    ValueId last = b.add(positions(b, qs[2], 0), shift);
    s = b.select(b.op("le", {positions(b, ks[2], 1), last}), s, never);
  }
  ValueId top = b.reduce("reduce_max", s, {3}, true);
  ValueId sees_none = b.op("eq", {top, never});
  ValueId e = b.op("exp", {b.sub(s, b.select(sees_none, b.like(s, 0), top))});
  ValueId sum = b.reduce("reduce_sum", e, {3}, true);
  ValueId p = b.cast(b.div(e, b.select(sees_none, b.like(s, 1), sum)), t);
  if (grouped) p = b.reshape(p, {qs[0], ks[1], Dim::floor_div(qs[1], ks[1]), qs[2], ks[2]});
  Values out{b.reshape(b.matmul(p, v), {qs[0], qs[1], qs[2], vs[3]})};
  if (n.outputs.size() > 1) out.push_back(b.reshape(b.add(top, b.op("log", {sum})), {qs[0], qs[1], qs[2]}));
  return out;
}

Values decompose_rotary(Builder& b, const Node& n) {
  ValueId x = n.inputs[0];
  const Shape shape = b.shape(x);
  bool flat = shape.size() == 3, interleaved = n.get_bool("interleaved");
  int64_t heads = n.get_int("heads");
  // cos and sin as [N or 1, L, half] with an axis for the heads.
  auto table = [&](size_t i) {
    ValueId v = n.inputs[i];
    if (n.inputs.size() > 3 && n.inputs[3]) v = b.op("gather", {v, n.inputs[3]}, {{"axis", int64_t{0}}});
    return b.unsqueeze(v, {flat ? 2 : 1});
  };
  ValueId cosine = table(1), sine = table(2);
  if (flat) x = b.reshape(x, {shape[0], shape[1], heads, Dim::floor_div(shape[2], heads)});
  Dim size = b.shape(x)[3], rotated = n.get_int("dims") > 0 ? Dim(n.get_int("dims")) : size;
  Dim half = Dim::floor_div(rotated, 2);
  ValueId first = interleaved ? slice(b, x, 3, 0, half, 2) : slice(b, x, 3, 0, half);
  ValueId second = interleaved ? slice(b, x, 3, 1, half, 2) : slice(b, x, 3, half, half);
  ValueId left = b.sub(b.mul(first, cosine), b.mul(second, sine));
  ValueId right = b.add(b.mul(first, sine), b.mul(second, cosine));
  ValueId y;
  if (interleaved) {
    Shape pairs = b.shape(left);
    y = b.op("concat", {b.unsqueeze(left, {4}), b.unsqueeze(right, {4})}, {{"axis", int64_t{4}}});
    y = b.reshape(y, {pairs[0], pairs[1], pairs[2], rotated});
  } else {
    y = b.op("concat", {left, right}, {{"axis", int64_t{3}}});
  }
  if (rotated != size)
    y = b.op("concat", {y, slice(b, x, 3, rotated, size - rotated)}, {{"axis", int64_t{3}}});
  return {b.reshape(y, shape)};
}

}  // namespace pelton::ir
