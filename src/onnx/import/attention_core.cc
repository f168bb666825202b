// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "onnx/import/attention.h"
#include "onnx/import/helpers.h"

namespace pelton::onnx {

ValueId split_heads(NodeContext& c, ValueId x, int64_t heads) {
  const Shape s = c.b.shape(x);
  if (s.size() != 3 || heads < 1)
    c.refuse(ErrorCode::bad_shape, cat("cannot split ", c.b.type(x).str(), " into ", heads, " heads"));
  return c.b.transpose(c.b.reshape(x, {s.at(0), s.at(1), heads, Dim::floor_div(s.at(2), heads)}),
                       {0, 2, 1, 3});
}
ValueId merge_heads(NodeContext& c, ValueId x) {
  const Shape s = c.b.shape(x);
  return c.b.reshape(c.b.transpose(x, {0, 2, 1, 3}), {s.at(0), s.at(2), s.at(1) * s.at(3)});
}
ValueId repeat_heads(NodeContext& c, ValueId x, int64_t times) {
  if (times == 1) return x;
  const Shape s = c.b.shape(x);
  ValueId wide = c.b.broadcast_to(c.b.reshape(x, {s.at(0), s.at(1), 1, s.at(2), s.at(3)}),
                                  {s.at(0), s.at(1), times, s.at(2), s.at(3)});
  return c.b.reshape(wide, {s.at(0), s.at(1) * times, s.at(2), s.at(3)});
}

ValueId positions(NodeContext& c, const Dim& count, size_t axis) {
  Shape dims(4, Dim(1));
  dims[axis] = count;
  return c.b.op("iota", {}, {{"dims", dims}, {"axis", static_cast<int64_t>(axis)}, {"dtype", DType::i64}});
}
ValueId as_scalar(NodeContext& c, const Dim& d) {
  return c.b.reshape(c.b.op("contents", {}, {{"dims", Shape{d}}}), {});
}

ValueId widened_mask(NodeContext& c, ValueId mask, const Dim& keys) {
  const Shape s = c.b.shape(mask);
  if (s.empty() || s.back() == keys || s.back() == Dim(1)) return mask;
  Shape low(s.size(), Dim(0)), high(s.size(), Dim(0));
  high.back() = keys - s.back();
  double out = c.b.dtype(mask) == DType::boolean ? 0 : -std::numeric_limits<double>::infinity();
  return c.b.op("pad", {mask, c.b.like(mask, out)},
                {{"low", low}, {"high", high}, {"mode", std::string("constant")}});
}

ValueId both_masks(NodeContext& c, ValueId mask, ValueId allowed) {
  if (!allowed) return mask;
  if (!mask) return allowed;
  if (c.b.dtype(mask) == DType::boolean) return c.b.op("and", {mask, allowed});
  return c.b.select(allowed, mask, c.b.like(mask, -std::numeric_limits<double>::infinity()));
}

namespace {

ValueId allowed_by_position(NodeContext& c, const AttentionCall& call, const Dim& queries, const Dim& keys) {
  if (!call.causal && call.left < 0 && call.right < 0) return {};
  ValueId q = positions(c, queries, 2), k = positions(c, keys, 3), allowed;
  if (call.offset) q = c.b.add(q, call.offset);
  auto require = [&](ValueId test) { allowed = allowed ? c.b.op("and", {allowed, test}) : test; };
  auto shifted = [&](int64_t by) {
    return by ? c.b.add(q, c.b.scalar(DType::i64, static_cast<double>(by))) : q;
  };
  if (call.causal) require(c.b.op("le", {k, q}));
  if (call.left >= 0) require(c.b.op("ge", {k, shifted(-call.left)}));
  if (call.right >= 0) require(c.b.op("le", {k, shifted(call.right)}));
  return allowed;
}

}  // namespace

AttentionResult attend(NodeContext& c, const AttentionCall& call, Scores scores) {
  const Shape qs = c.b.shape(call.q), ks = c.b.shape(call.k);
  if (qs.size() != 4 || ks.size() != 4)
    c.refuse(ErrorCode::bad_shape,
             cat("attends with ", c.b.type(call.q).str(), " to ", c.b.type(call.k).str()));
  ValueId allowed = allowed_by_position(c, call, qs.at(2), ks.at(2));
  ValueId mask = both_masks(c, call.mask, allowed);
  DType t = c.b.dtype(call.q);
  if (scores == Scores::none && !call.sink && at_least_f32(t) == call.softmax_type) {
    Attrs attrs;
    if (call.scale != 0) attrs["scale"] = call.scale;
    if (call.softcap != 0) attrs["softcap"] = call.softcap;
    std::vector<ValueId> inputs{call.q, call.k, call.v};
    if (mask) inputs.push_back(mask);
    return {c.b.op("attention", inputs, std::move(attrs)), {}};
  }
  const int64_t heads = c.need_const(qs.at(1), "the number of heads"),
                shared = c.need_const(ks.at(1), "the number of key heads");
  if (shared < 1 || heads % shared)
    c.refuse(ErrorCode::bad_shape, cat("shares ", shared, " heads of keys among ", heads, " heads"));
  double scale = call.scale != 0
                     ? call.scale
                     : 1 / std::sqrt(static_cast<double>(c.need_const(qs.at(3), "the head size")));
  ValueId k = repeat_heads(c, call.k, heads / shared), v = repeat_heads(c, call.v, heads / shared);
  ValueId root = c.b.like(call.q, std::sqrt(scale));
  ValueId s = c.b.op("matmul", {c.b.mul(call.q, root), c.b.mul(k, root)}, {{"transpose_b", true}});
  AttentionResult out;
  if (scores == Scores::raw) out.scores = s;
  if (call.softcap != 0) {
    ValueId cap = c.b.like(s, call.softcap);
    s = c.b.mul(c.b.op("tanh", {c.b.div(s, cap)}), cap);
  }
  if (scores == Scores::capped) out.scores = s;
  ValueId low = c.b.like(s, -std::numeric_limits<double>::infinity());
  if (mask) s = c.b.dtype(mask) == DType::boolean ? c.b.select(mask, s, low) : c.b.add(s, c.b.cast(mask, t));
  if (scores == Scores::biased) out.scores = s;
  ValueId all = s;
  if (call.sink) {
    Shape one = c.b.shape(s);
    one.back() = 1;
    all = concat(c, {s, c.b.broadcast_to(c.b.cast(call.sink, t), one)}, 3);
  }
  ValueId p = c.b.op("softmax", {c.b.cast(all, call.softmax_type)}, {{"axis", int64_t{-1}}});
  if (call.sink) p = slice_axis(c, p, 3, 0, ks.at(2));
  if (mask) {  // a row with no key yields zeros, not NaN
    ValueId any = c.b.op("gt", {reduce(c, "reduce_max", s, {3}, true), low});
    p = c.b.select(any, p, c.b.like(p, 0));
  }
  p = c.b.cast(p, t);
  if (scores == Scores::probabilities) out.scores = p;
  out.y = c.b.matmul(p, v);
  return out;
}

}  // namespace pelton::onnx
