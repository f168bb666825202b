// SPDX-License-Identifier: Apache-2.0
#include "ir/gradient.h"

#include "ir/infer.h"

namespace pelton::ir {

GradientContext::GradientContext(Graph& graph, NodeId id, std::vector<ValueId> result_grads,
                                 std::vector<bool> wanted)
    : b(graph),
      node(graph[id]),
      id_(id),
      result_grads_(std::move(result_grads)),
      input_grads_(node.inputs.size()),
      wanted_(std::move(wanted)) {
  b.set_name(cat(node.name.empty() ? std::string(node.op->name) : node.name, "/grad"));
}

ValueId GradientContext::result(size_t i) {
  Graph& g = b.graph();
  if (i < g[id_].outputs.size()) return g[id_].outputs[i];
  PELTON_CHECK(static_cast<int>(i) < node.op->max_outputs, g.describe(id_), " has no result ", i);
  while (g[id_].outputs.size() <= i) g.add_node_output(id_);
  infer(g, id_);
  return g[id_].outputs[i];
}

ValueId GradientContext::grad_or_zeros(size_t i) {
  return grad(i) ? grad(i) : zeros_like(b, result(i));
}

void GradientContext::set(size_t i, ValueId gradient) {
  PELTON_CHECK(has(i), node.op->name, " has no input ", i);
  ValueId g = sum_to_shape(b, gradient, b.shape(in(i)));
  PELTON_CHECK(b.dtype(g) == b.dtype(in(i)), "the gradient of ", node.op->name, " for input ", i, " is ",
               name(b.dtype(g)));
  input_grads_[i] = g;
}

int64_t GradientContext::name_stream() {
  Node& n = b.graph().edit(id_);
  if (n.get_int("stream") == 0) n.attrs["stream"] = static_cast<int64_t>(n.stable_id);
  return n.get_int("stream");
}

void GradientContext::refuse(std::string_view why) {
  fail(ErrorCode::unsupported_op, cat("cannot be differentiated: ", why), b.graph().describe(id_));
}

ValueId sum_to_shape(Builder& b, ValueId g, Shape to) {
  const Shape from = b.shape(g);
  if (from == to) return g;
  PELTON_CHECK(from.size() >= to.size(), "a gradient of shape ", cat(from), " for ", cat(to));
  size_t extra = from.size() - to.size();
  const SymbolRanges& ranges = b.graph().symbols->ranges;
  Ints axes;
  for (size_t d = 0; d < from.size(); ++d) {
    if (d < extra) {
      axes.push_back(static_cast<int64_t>(d));
      continue;
    }
    const Dim& t = to[d - extra];
    if (from[d] == t || equal(from[d], t, ranges) == Tri::yes) continue;
    if (t != Dim(1) && equal(t, 1, ranges) != Tri::yes)
      fail(ErrorCode::bad_shape,
           cat("the gradient of a value of shape ", cat(to), " broadcast to ", cat(from),
               " needs to know whether ", t.str(), " is 1"),
           b.node_name(), "declare the size fixed");
    axes.push_back(static_cast<int64_t>(d));
  }
  if (!axes.empty()) g = b.reduce("reduce_sum", g, axes, false);
  return b.reshape(g, to);
}

ValueId zeros(Builder& b, DType dtype, Shape shape) {
  ValueId zero = b.scalar(dtype, 0);
  return shape.empty() ? zero : b.op("fill", {zero}, {{"dims", shape}});
}
ValueId zeros_like(Builder& b, ValueId v) {
  return zeros(b, b.dtype(v), b.shape(v));
}

ValueId size_scalar(Builder& b, const Dim& size, DType dtype) {
  if (size.is_const()) return b.scalar(dtype, static_cast<double>(size.value()));
  return b.cast(b.reshape(b.op("contents", {}, {{"dims", Shape{size}}}), {}), dtype);
}

}  // namespace pelton::ir
