// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/conv/problem.h"

#include <cstring>

#include "backend/cuda/aligned.h"
#include "backend/cuda/own/move_taps.h"
#include "ir/op.h"

namespace pelton::backend::cuda {

ConvProblem::ConvProblem(const Instance& instance, const device::Target& target, bool here)
    : group(parse_group(instance.graph, instance.id, &instance, {.gate = true})) {
  PELTON_CHECK(group.reason.empty(), group.reason);
  const ir::Node& n = group.node();
  const GroupOperand &xo = group.operands[0], &wo = group.operands[1];
  x = spec_of(xo, DType::f32, instance);
  y = instance.outputs[0];
  sums = y;
  w = dims_of(wo, instance);
  // The gradient of the data is the transposed convolution of the result's gradient; the size of the data
  // tells how many of its last places no window reached.
  transposed = n.is("conv_transpose") || n.is("conv_backward_data");
  groups = n.get_int("groups");
  window = conv_window(n, instance, w);
  weights = wo.constant;
  x_input = xo.input;
  w_input = wo.input;
  gate_input = group.gate.input;
  const GroupOperand bias = group.operands.size() > 2 ? group.operands[2] : GroupOperand();
  steps = plan_steps(group, bias, instance, sums, here);
  multiprocessors = cuda::multiprocessors(target);
  tf32 = target.tf32;
}

std::string ConvProblem::key() const {
  std::string k = cat(transposed ? "conv_transpose " : "conv ", name(x.dtype), x.dims, x.layout.str(), " ", w,
                      " ", name(y.dtype), y.dims, y.layout.str(), " g", groups, " s", window.strides, " d",
                      window.dilations, " p", window.low, window.high, weights.defined() ? "" : " changing",
                      tf32 ? " tf32" : "", gate_input < 0 ? "" : " gated");
  for (int i = 0; i < steps.form.count; ++i) {
    const EpilogueStep& s = steps.form.steps[i];
    append(k,
           cat(" ", static_cast<int>(s.op), ".", static_cast<int>(s.where), ".", static_cast<int>(s.type)));
  }
  return k;
}

MovedWeights::MovedWeights(const ConvProblem& p, Taps taps) {
  a_ = p.w[0];
  b_ = p.w[1];
  taps_ = p.taps();
  if (taps == Taps::first) {  // [1, A*B, taps] to [1, taps, A*B]
    b_ *= a_;
    a_ = 1;
  }
  element_bytes_ = elem_bytes(elem(p.x.dtype));
  as_it_is_ = taps == Taps::last || taps_ == 1 || b_ == 1;
  const int64_t bytes = a_ * b_ * taps_ * element_bytes_;
  if (!p.weights.defined()) {
    if (!as_it_is_) scratch_bytes_ = aligned(bytes);
    return;
  }
  if (as_it_is_) {
    packed_ =
        shared_packed(p.weights, "as it is", [&] { return upload(p.weights, "weights of a convolution"); });
    return;
  }
  packed_ = shared_packed(p.weights, taps == Taps::first ? "taps first" : "channels last", [&] {
    std::vector<std::byte> moved(static_cast<size_t>(bytes));
    const auto* from = static_cast<const std::byte*>(p.weights.data());
    const auto size = static_cast<size_t>(element_bytes_);
    for (int64_t a = 0; a < a_; ++a)
      for (int64_t t = 0; t < taps_; ++t)
        for (int64_t b = 0; b < b_; ++b)
          std::memcpy(&moved[static_cast<size_t>((a * taps_ + t) * b_ + b) * size],
                      from + static_cast<size_t>((a * b_ + b) * taps_ + t) * size, size);
    return upload(moved.data(), bytes, "weights of a convolution");
  });
}

const void* MovedWeights::get(const ConvBuffers& buffers, void* scratch, cudaStream_t stream) const {
  if (packed_) return packed_->get();
  if (as_it_is_) return buffers.w;
  PELTON_CUDA(move_taps(buffers.w, scratch, element_bytes_, a_, b_, taps_, stream));
  return scratch;
}

}  // namespace pelton::backend::cuda
