// SPDX-License-Identifier: Apache-2.0
// conv (constant weights) and matmul of 8-bit integers, exact, and what follows them, where oneDNN's 8-bit
// sums are not (without VNNI they saturate in between).
#include "backend/conv_window.h"
#include "backend/cpu/implementations.h"
#include "backend/cpu/own/byte_product.h"
#include "backend/cpu/own/row_chain.h"
#include "backend/cpu/support.h"
#include "base/cat.h"

namespace pelton::backend::cpu {
namespace {

bool byte(DType t) {
  return t == DType::u8 || t == DType::i8;
}
GroupOperand operand(const Group& group, size_t i) {
  return i < group.operands.size() ? group.operands[i] : GroupOperand();
}
bool single(const Shape& shape) {
  for (const Dim& d : shape)
    if (!(d == Dim(1))) return false;
  return true;
}

// Operands of the product by their roles; conv has a bias in the middle, or sums are added to its results.
struct Roles {
  GroupOperand x, w, bias, x_zero, w_zero;
  bool conv;
  explicit Roles(const Group& group) : conv(group.node().is("conv")) {
    x = operand(group, 0);
    w = operand(group, 1);
    bias = conv && operand(group, 2).present() ? operand(group, 2) : group.sums;
    x_zero = operand(group, conv ? 3 : 2);
    w_zero = operand(group, conv ? 4 : 3);
  }
};

// Right matrices that a run brings, or several of them.
bool is_late(const Roles& r) {
  return !r.w.constant.defined() || (!r.conv && r.w.constant.rank() != 2);
}

std::string refuse_conv(const Group& group, const ir::Type& x, const ir::Type& y) {
  const ir::Node& n = group.node();
  if (x.rank() < 3 || x.rank() > 5) return cat("takes 1 to 3 spatial dims, not ", x.rank() - 2);
  if (x.layout.kind != ir::Layout::Kind::channels_last || !(y.layout == x.layout))
    return "needs channels-last images";
  for (std::string_view side : {"low", "high"})
    for (const Dim& d : n.get_dims(side))
      if (!d.is_const() || d.value() < 0) return "needs constant pads that do not crop";
  return {};
}

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target& target) {
  if (target.isa < device::CpuIsa::avx2) return "needs AVX2";
  const Group group = parse_group(graph, node, nullptr, {.sums = true});
  if (!group.reason.empty()) return group.reason;
  const ir::Node& n = group.node();
  if (!n.is("conv") && !n.is("matmul")) return "is not around a conv or matmul";
  if (graph[node].outputs.size() != 1) return "has more than one result";
  const Roles r(group);
  if (r.x.input < 0 || r.x.reshaped) return "needs a left operand that is an input";
  const ir::Type &x = graph.type(graph[node].inputs[static_cast<size_t>(r.x.input)]),
                 &y = graph.type(graph[node].outputs[0]);
  if (!byte(x.dtype)) return cat("needs 8-bit integers, got ", name(x.dtype));
  const bool late = is_late(r);
  if (late && (r.conv || r.w.input < 0)) return "needs constant weights";
  if (r.w.reshaped) return "needs weights that are not reshaped";
  const DType w = group.graph->type(n.inputs[1]).dtype;
  if (!byte(w)) return cat("needs 8-bit weights, got ", name(w));
  if (r.x_zero.present() && !single(r.x_zero.shape)) return "has more than one zero point on the left";
  if (r.w_zero.present() && (late ? !single(r.w_zero.shape) : !r.w_zero.constant.defined()))
    return "has computed zero points of the weights";
  const size_t axis = r.conv ? 1 : y.rank() - 1;
  if (r.bias.present() && !r.bias.constant.defined()) return "has a computed bias";
  if (group.sums.present() && (r.conv && operand(group, 2).present())) return "has two biases";
  if (group.sums.present() && !lies_along(group.sums.shape, y.rank(), axis))
    return "has a bias that is not one an output";
  if (r.conv) {
    if (std::string why = refuse_conv(group, x, y); !why.empty()) return why;
  } else {
    if (x.rank() < 2 || !x.layout.is_plain() || n.get_bool("transpose_a"))
      return "needs a plain left matrix that is not transposed";
    const ir::Type& right = graph.type(graph[node].inputs[static_cast<size_t>(std::max(0, r.w.input))]);
    if (late && (!right.layout.is_plain() || right.rank() < 2)) return "needs plain right matrices";
  }
  if (!late && r.w_zero.present()) {
    const int64_t outputs = r.w.constant.dims()[r.conv || n.get_bool("transpose_b") ? 0 : 1];
    if (r.w_zero.constant.count() != 1 && r.w_zero.constant.count() != outputs)
      return "has zero points of the weights that are not one an output";
  }
  if (group.result == DType::i32 && !group.steps.empty()) return "computes in integers behind the sums";
  if (!byte(group.result) && group.result != DType::f32 && group.result != DType::i32)
    return cat("does not yield ", name(group.result));
  return RowChain::refuse(group, 0, graph, node, axis);
}

// The matrix of each of the batches of the result, where `dims` ends in a matrix of one of its operands.
std::vector<int64_t> matrices_of(const Dims& dims, const Dims& batch) {
  std::vector<int64_t> out;
  for (int64_t b = 0; b < element_count(batch); ++b) {
    int64_t rest = b, at = 0, step = 1;
    for (size_t d = batch.size(), i = dims.size() - 2; d-- > 0 && i-- > 0;) {
      at += dims[i] == 1 ? 0 : rest % batch[d] * step;
      rest /= batch[d];
      step *= dims[i];
    }
    out.push_back(at);
  }
  return out;
}

ByteProblem problem_of(const Group& group, const Instance& instance) {
  const Roles r(group);
  const ir::Node& n = group.node();
  ByteProblem p;
  p.x = r.x;
  p.w = r.w;
  p.bias = r.bias;
  p.x_zero = r.x_zero;
  p.w_zero = r.w_zero;
  const Dims& x = instance.inputs[static_cast<size_t>(r.x.input)].dims;
  if (!r.conv) {
    const bool flipped = n.get_bool("transpose_b");
    p.late = is_late(r);
    const Dims& w = p.late ? instance.inputs[static_cast<size_t>(r.w.input)].dims : r.w.constant.dims();
    p.channels = x.back();
    p.outputs = w[w.size() - (flipped ? 2 : 1)];
    p.w_output = flipped ? p.channels : 1;
    p.w_channel = flipped ? 1 : p.outputs;
    p.in[1] = p.late ? x[x.size() - 2] : element_count(Dims(x.begin(), x.end() - 1));
    p.padded[1] = p.out[1] = p.in[1];
    if (!p.late) return p;
    const Dims& y = instance.outputs[0].dims;
    const Dims batch(y.begin(), y.end() - 2);
    p.images = element_count(batch);
    p.x_of = matrices_of(x, batch);
    p.w_of = matrices_of(w, batch);
    return p;
  }
  const Dims& w = r.w.constant.dims();
  const ConvWindow window = conv_window(n, instance, w);
  p.images = x[0];
  p.channels = x[1];
  p.outputs = w[0];
  p.groups = n.get_int("groups");
  const int64_t places = element_count(window.kernel);
  p.w_channel = places;
  p.w_output = w[1] * places;
  const size_t spatial = x.size() - 2;
  for (size_t i = 0; i < spatial; ++i) {
    const size_t d = 3 - spatial + i;
    p.in[d] = x[2 + i];
    p.low[d] = window.low[i];
    p.padded[d] = p.in[d] + window.low[i] + window.high[i];
    p.kernel[d] = window.kernel[i];
    p.stride[d] = window.strides[i];
    p.dilation[d] = window.dilations[i];
    p.out[d] = instance.outputs[0].dims[2 + i];
  }
  return p;
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  const Group group = parse_group(instance.graph, instance.id, &instance, {.sums = true});
  PELTON_CHECK(group.reason.empty(), group.reason);
  if (instance.outputs[0].count() == 0) return make_kernel([](const RunArgs&) {});
  return make_byte_product(group, instance, problem_of(group, instance), target);
}

}  // namespace

void add_byte_contraction(Registry& registry) {
  registry.add({"cpu.int8", {"conv", "matmul", "fused"}, refuse, prepare});
}

}  // namespace pelton::backend::cpu
