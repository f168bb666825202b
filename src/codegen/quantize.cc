// SPDX-License-Identifier: Apache-2.0
#include "codegen/quantize.h"

#include "ir/builder.h"
#include "ir/op.h"

namespace pelton::codegen {
namespace {

using namespace ir;

bool is_narrow(DType t) {  // integers that f32 holds
  return t == DType::i8 || t == DType::u8 || t == DType::i16 || t == DType::u16;
}
bool is_real(DType t) {
  return t == DType::f32 || t == DType::f16 || t == DType::bf16;
}
double lowest_of(DType t) {
  return t == DType::i8 ? -128 : t == DType::i16 ? -32768 : 0;
}
double highest_of(DType t) {
  return t == DType::i8 ? 127 : t == DType::u8 ? 255 : t == DType::i16 ? 32767 : 65535;
}

class Expansion {
 public:
  Expansion(Graph& g, NodeId id) : g_(g), node_(g[id]), b_(g, id) { b_.set_name(node_.name); }

  std::vector<ValueId> run() {
    const Node& n = node_;
    if (n.is("dynamic_quantize")) return dynamic();
    if (!n.is("quantize") && !n.is("dequantize") && !n.is("requantize")) return {};
    if ((!n.is("requantize") && n.get_int("block") != 0) || !is_real(type(1))) return {};
    const DType from = type(0), to = n.get_dtype("to");
    if (n.is("dequantize")) {
      const bool exact = is_narrow(from) || (from == DType::i32 && !zero());
      if (!exact || !is_real(to)) return {};
      ValueId x = b_.cast(n.inputs[0], DType::f32);
      if (zero()) x = b_.sub(x, along_axis(zero()));
      return {b_.cast(b_.mul(x, along_axis(n.inputs[1])), to)};
    }
    if ((!is_real(from) && from != DType::i32) || !is_narrow(to)) return {};
    const ValueId x = b_.cast(n.inputs[0], DType::f32), scale = along_axis(n.inputs[1]);
    const ValueId q = n.is("quantize") ? b_.div(x, scale) : b_.mul(x, scale);
    return {stored(q, zero() ? along_axis(zero()) : ValueId{}, to)};
  }

 private:
  DType type(size_t i) const { return g_.type(node_.inputs[i]).dtype; }
  ValueId zero() const { return node_.inputs.size() > 2 ? node_.inputs[2] : ValueId{}; }

  // One value, or one for each index of the axis, in f32 and spread over the data.
  ValueId along_axis(ValueId v) {
    const Shape& data = g_.type(node_.inputs[0]).shape;
    const bool one = element_count(g_.type(v).shape) == Dim(1);
    Shape shape(one ? 0 : data.size(), Dim(1));
    if (!one) {
      int64_t axis = node_.get_int("axis");
      axis += axis < 0 ? static_cast<int64_t>(data.size()) : 0;
      shape[static_cast<size_t>(axis)] = data[static_cast<size_t>(axis)];
    }
    return b_.reshape(b_.cast(v, DType::f32), shape);
  }
  // Half to even, plus zero, saturated; NaN gives the zero point.
  ValueId stored(ValueId q, ValueId zero, DType to) {
    q = b_.select(b_.op("is_nan", {q}), b_.like(q, 0), b_.op("round", {q}));
    if (zero) q = b_.add(q, zero);
    q = b_.op("max", {q, b_.like(q, lowest_of(to))});
    return b_.cast(b_.op("min", {q, b_.like(q, highest_of(to))}), to);
  }
  // The range of x, made to hold 0, over 255 steps.
  std::vector<ValueId> dynamic() {
    if (!is_real(type(0))) return {};
    const ValueId x = b_.cast(node_.inputs[0], DType::f32), none = b_.like(x, 0);
    Ints axes;
    for (int64_t a = 0; a < b_.rank(x); ++a) axes.push_back(a);
    const ValueId high = b_.op("max", {b_.reduce("reduce_max", x, axes, false), none}),
                  low = b_.op("min", {b_.reduce("reduce_min", x, axes, false), none}),
                  scale = b_.div(b_.sub(high, low), b_.like(x, 255));
    const ValueId spread = b_.op("gt", {scale, none});
    ValueId zero = b_.op("max", {b_.div(b_.sub(none, low), scale), none});
    zero = b_.op("round", {b_.op("min", {zero, b_.like(x, 255)})});
    zero = b_.select(spread, zero, none);
    const ValueId q = b_.select(spread, b_.div(x, scale), none);
    return {stored(q, zero, DType::u8), scale, b_.cast(zero, DType::u8)};
  }

  Graph& g_;
  const Node node_;  // a copy: the graph grows meanwhile
  Builder b_;
};

}  // namespace

bool expand_quantization(Graph& graph, NodeId id) {
  const std::vector<ValueId> outputs = graph[id].outputs;
  const std::vector<ValueId> results = Expansion(graph, id).run();
  if (results.empty()) return false;
  for (size_t i = 0; i < results.size(); ++i) graph.replace_uses(outputs[i], results[i]);
  graph.remove(id);
  return true;
}

}  // namespace pelton::codegen
