// SPDX-License-Identifier: Apache-2.0
#include "passes/absorb.h"

#include "passes/rewrite.h"

namespace pelton::passes {

using namespace ir;

namespace {

// dequantize of 8-bit integers with constant f32 parameters: (data - zero) * scale.
struct Dequantized {
  ValueId data, zero;  // zero: none where it is 0 throughout
  Tensor scale;
  int64_t axis = 0;  // of the scales, where there are several; not negative
  bool single() const { return scale.count() == 1; }
};

bool all_zero(const Tensor& t) {
  for (int64_t i = 0; i < t.count(); ++i)
    if (t.get_int(i) != 0) return false;
  return true;
}

std::optional<Dequantized> dequantized(const Graph& g, ValueId v) {
  const NodeId id = producer(g, v, "dequantize");
  if (!id || g.type(v).dtype != DType::f32) return std::nullopt;
  const Node& n = g[id];
  const DType t = g.type(n.inputs[0]).dtype;
  Dequantized d;
  d.data = n.inputs[0];
  const Tensor* scale = elements(g, n.inputs[1]);
  if ((t != DType::i8 && t != DType::u8) || !scale || scale->dtype() != DType::f32) return std::nullopt;
  d.scale = *scale;
  if (n.get_int("block") != 0) return std::nullopt;
  const int64_t rank = g.type(d.data).rank();
  d.axis = n.get_int("axis");
  d.axis += d.axis < 0 ? rank : 0;
  if (const ValueId z = input(g, id, 2)) {
    const Tensor* zero = elements(g, z);
    if (!zero) return std::nullopt;
    if (!all_zero(*zero)) d.zero = z;
  }
  return d;
}

// The product of two scales as one vector (or one value); the order of the two is the contraction's.
Tensor product(const Tensor& a, const Tensor& b) {
  const Tensor& longer = a.count() > b.count() ? a : b;
  const int64_t count = longer.count();
  Tensor out = Tensor::zeros(DType::f32, count == 1 ? Dims{} : Dims{count});
  for (int64_t i = 0; i < count; ++i)
    out.set_double(i, a.get_double(a.count() == 1 ? 0 : i) * b.get_double(b.count() == 1 ? 0 : i));
  return out;
}

// One zero point as a scalar; `none` stays none.
ValueId one_zero(Builder& b, const Graph& g, ValueId zero) {
  return zero ? b.constant(elements(g, zero)->reshaped({})) : ValueId{};
}

// conv(dequantize(x), dequantize(w)) = dequantize(conv(x, w)), the bias added behind.
bool integer_conv(Graph& g, NodeId id, const Context&) {
  if (g[id].inputs.size() > 3) return false;
  const auto x = dequantized(g, input(g, id, 0)), w = dequantized(g, input(g, id, 1));
  if (!x || !w || !x->single() || w->zero || g.type(w->data).dtype != DType::i8) return false;
  if (!w->single() && w->axis != 0) return false;
  if (x->zero && elements(g, x->zero)->count() != 1) return false;
  const ValueId bias = input(g, id, 2);
  Builder b(g, id);
  b.set_name(g[id].name);
  std::vector<ValueId> inputs = {x->data, w->data};
  if (x->zero) inputs.insert(inputs.end(), {ValueId{}, one_zero(b, g, x->zero)});
  const ValueId sums = b.op("conv", inputs, g[id].attrs);
  ValueId y = b.op("dequantize", {sums, b.constant(product(x->scale, w->scale))},
                   {{"axis", int64_t{1}}, {"to", DType::f32}});
  if (bias) {
    Shape dims(static_cast<size_t>(g.type(y).rank() - 1), Dim(1));
    dims[0] = g.type(bias).shape[0];
    y = b.add(y, b.reshape(bias, dims));
  }
  replace(g, id, y);
  return true;
}

// The same of a product with a right operand of rank 2.
bool integer_matmul(Graph& g, NodeId id, const Context&) {
  if (g[id].inputs.size() > 2) return false;
  const auto a = dequantized(g, input(g, id, 0)), w = dequantized(g, input(g, id, 1));
  if (!a || !w || !a->single() || w->zero || g.type(w->data).dtype != DType::i8) return false;
  if (g.type(w->data).rank() != 2 || g.type(a->data).rank() < 2) return false;
  if (!w->single() && w->axis != (g[id].get_bool("transpose_b") ? 0 : 1)) return false;
  if (a->zero && elements(g, a->zero)->count() != 1) return false;
  Builder b(g, id);
  b.set_name(g[id].name);
  std::vector<ValueId> inputs = {a->data, w->data};
  if (a->zero) inputs.push_back(one_zero(b, g, a->zero));
  const ValueId sums = b.op("matmul", inputs, g[id].attrs);
  replace(g, id,
          b.op("dequantize", {sums, b.constant(product(a->scale, w->scale))},
               {{"axis", g.type(sums).rank() - 1}, {"to", DType::f32}}));
  return true;
}

// What moves or picks values commutes with a scale that is positive and the same for all of them.
bool sink(Graph& g, NodeId id, const Context&) {
  const Node& n = g[id];
  const auto x = dequantized(g, input(g, id, 0));
  if (!x || !x->single() || n.inputs.size() != 1 || n.outputs.size() != 1) return false;
  if (!(x->scale.get_double(0) > 0) || !single_use(g, input(g, id, 0))) return false;
  if (n.is("max_pool")) {
    // A window that lies in the padding alone has no smallest value in common.
    for (std::string_view side : {"low", "high"})
      for (const Dim& d : n.get_dims(side))
        if (!d.is_const()) return false;
  }
  const NodeId scaled = producer(g, input(g, id, 0), "dequantize");
  Builder b(g, id);
  b.set_name(n.name);
  const ValueId moved = b.op(n.op->name, {x->data}, n.attrs);
  std::vector<ValueId> inputs = g[scaled].inputs;
  inputs[0] = moved;
  replace(g, id, b.op("dequantize", inputs, g[scaled].attrs));
  return true;
}

// quantize(dequantize(q)) with the same parameters is q.
bool round_trip(Graph& g, NodeId id, const Context&) {
  const auto x = dequantized(g, input(g, id, 0));
  if (!x || g[id].get_dtype("to") != g.type(x->data).dtype || g[id].get_int("block") != 0) return false;
  const Tensor* scale = elements(g, input(g, id, 1));
  const ValueId z = input(g, id, 2);
  const Tensor* zero = elements(g, z);
  if (!scale || scale->dtype() != DType::f32 || !x->single() || scale->count() != 1 || (z && !zero))
    return false;
  const int64_t here = zero ? zero->get_int(0) : 0, there = x->zero ? elements(g, x->zero)->get_int(0) : 0;
  if (here != there || scale->get_double(0) != x->scale.get_double(0) || !(scale->get_double(0) > 0))
    return false;
  replace(g, id, x->data);
  return true;
}

const Rule kRules[] = {
    {"absorb/conv", {"conv"}, integer_conv},
    {"absorb/matmul", {"matmul"}, integer_matmul},
    {"absorb/sink", {"max_pool", "reshape", "transpose", "slice"}, sink},
    {"absorb/round_trip", {"quantize"}, round_trip},
};

}  // namespace

bool absorb(Graph& graph, const Context& context) {
  return apply_rules(graph, kRules, context);
}

}  // namespace pelton::passes
