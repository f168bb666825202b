// SPDX-License-Identifier: Apache-2.0
// lstm, gru and rnn: one product of the inputs of all steps and directions, then all steps in one launch.
#include <algorithm>
#include <string_view>

#include "backend/cuda/aligned.h"
#include "backend/cuda/implementations.h"
#include "backend/cuda/matmul_call.h"
#include "backend/cuda/own/host.h"
#include "backend/cuda/own/recurrence.h"
#include "device/fault.h"
#include "ir/op.h"
#include "ir/ops/rnn.h"

namespace pelton::backend::cuda {
namespace {

namespace at = ir::rnn_input;

constexpr int64_t kMostSize = int64_t{1} << 24;

CellFunction function_of(const ir::RnnActivation& a) {
  using F = CellFunction;
  constexpr std::pair<std::string_view, F::Code> kCodes[] = {
      {"relu", F::relu},
      {"tanh", F::tanh},
      {"sigmoid", F::sigmoid},
      {"affine", F::affine},
      {"leakyrelu", F::leaky_relu},
      {"thresholdedrelu", F::thresholded_relu},
      {"scaledtanh", F::scaled_tanh},
      {"hardsigmoid", F::hard_sigmoid},
      {"elu", F::elu},
      {"softsign", F::softsign},
      {"softplus", F::softplus},
  };
  for (const auto& [name, code] : kCodes)
    if (name == a.name) return {code, static_cast<float>(a.alpha), static_cast<float>(a.beta)};
  PELTON_CHECK(false, a.name);
  return {};
}

// What tells how much a block holds of a state.
Recurrence layer_of(const ir::Node& n, DType type) {
  Recurrence p;
  p.cell = n.is("lstm") ? Recurrence::lstm : n.is("gru") ? Recurrence::gru : Recurrence::rnn;
  p.type = elem(type);
  p.linear_before_reset = n.is("gru") && n.get_bool("linear_before_reset");
  p.directions = static_cast<int>(ir::rnn_directions(n));
  p.batch = 1;
  return p;
}

std::string refuse(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  if (std::string why = refuse_layouts(graph, id); !why.empty()) return why;
  const DType t = input_type(graph, id, at::x).dtype;
  if (!elem_of(t)) return cat("needs f32, f16 or bf16, got ", name(t));
  const ir::Node& n = graph[id];
  const Dim& hidden = input_type(graph, id, at::r).shape[2];
  if (!hidden.is_const()) return cat("needs a state of known size, not of ", hidden.str());
  // What the smallest part of a GPU has, whichever the plan will run on.
  Recurrence least = layer_of(n, t);
  least.hidden = static_cast<int>(std::min<int64_t>(hidden.value(), kMostSize));
  least.multiprocessors = 16;
  least.shared_bytes = 99 << 10;
  if (least.hidden > 0 && recurrence_shares(least).shared_bytes == 0)
    return cat("keeps a state of ", hidden.value(),
               " values on a multiprocessor, which not every GPU has room for");
  if (n.inputs.size() > at::lengths && n.inputs[at::lengths])
    if (const DType l = input_type(graph, id, at::lengths).dtype; l != DType::i32 && l != DType::i64)
      return cat("needs i32 or i64 lengths, got ", name(l));
  return {};
}

Recurrence recurrence_of(const Instance& instance, const device::Target& target) {
  const ir::Node& n = instance.node();
  const Dims &x = instance.inputs[at::x].dims, &r = instance.inputs[at::r].dims;
  Recurrence p = layer_of(n, instance.inputs[at::x].dtype);
  p.reverse = n.get_text("direction") == "reverse";
  p.input_forget = n.is("lstm") && n.get_bool("input_forget");
  p.clip = static_cast<float>(n.get_real("clip"));
  for (const int64_t size : {x[0], x[1], r[2]})
    if (size >= kMostSize)
      fail(ErrorCode::bad_shape, cat("takes sizes below 2^24, not x", cat(x), " and r", cat(r)),
           instance.graph.describe(instance.id));
  p.steps = static_cast<int>(x[0]);
  p.batch = static_cast<int>(x[1]);
  p.hidden = static_cast<int>(r[2]);
  const std::vector<ir::RnnActivation> all = ir::rnn_activations(n, ir::rnn_directions(n));
  const size_t each = all.size() / ir::rnn_directions(n);
  for (size_t i = 0; i < all.size(); ++i) p.functions[i / each][i % each] = function_of(all[i]);
  p.tf32 = target.tf32;
  // All blocks run at the same time: what is there counts, not what the plan was made for.
  int gpu = 0;
  PELTON_CUDA(cudaGetDevice(&gpu));
  PELTON_CUDA(cudaDeviceGetAttribute(&p.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu));
  PELTON_CUDA(cudaDeviceGetAttribute(&p.multiprocessors, cudaDevAttrMultiProcessorCount, gpu));
  if (instance.has(at::lengths)) p.length_bytes = bits(instance.inputs[at::lengths].dtype) / 8;
  return p;
}

class RecurrentKernel final : public Kernel {
 public:
  RecurrentKernel(const Instance& instance, const device::Target& target)
      : p_(recurrence_of(instance, target)), shares_(recurrence_shares(p_)) {
    const int64_t inputs = instance.inputs[at::x].dims[2];
    MatmulProblem m;
    m.in = instance.inputs[at::x].dtype;
    m.out = DType::f32;
    m.m = int64_t{1} * p_.steps * p_.batch;
    m.n = int64_t{1} * p_.directions * p_.gates() * p_.hidden;
    m.k = inputs;
    m.transpose_b = true;
    m.tf32 = target.tf32;
    projected_bytes_ = aligned(m.m * m.n * 4);
    if (m.m > 0 && inputs > 0) {
      product_ = MatmulCall::make(m);
      if (!product_) fail(ErrorCode::driver, cat("cuBLASLt has no way to compute ", m.key()));
    }
    if (shares_.shared_bytes == 0)
      fail(ErrorCode::bad_shape, cat("a state of ", p_.hidden, " values does not fit a multiprocessor"),
           instance.graph.describe(instance.id));
  }
  int64_t scratch_bytes() const override {
    return projected_bytes_ + states_bytes() + (product_ ? product_->workspace_bytes() : 0);
  }
  void run(const RunArgs& args) const override {
    auto in = [&](size_t i) { return i < args.in.size() ? args.in[i] : nullptr; };
    auto out = [&](size_t i) { return i < args.out.size() ? args.out[i] : nullptr; };
    auto* const scratch = static_cast<std::byte*>(args.scratch);
    Recurrence p = p_;
    p.projected = reinterpret_cast<const float*>(scratch);
    p.scratch = scratch + projected_bytes_;
    if (product_)
      product_->run(in(at::x), in(at::w), nullptr, scratch, nullptr,
                    scratch + projected_bytes_ + states_bytes(), stream_of(args));
    else if (projected_bytes_ > 0)
      PELTON_CUDA(cudaMemsetAsync(scratch, 0, static_cast<size_t>(projected_bytes_), stream_of(args)));
    p.r = in(at::r);
    p.b = in(at::b);
    p.lengths = in(at::lengths);
    p.fault = device::fault_word();
    p.h0 = in(at::h0);
    p.c0 = in(at::c0);
    p.peepholes = in(at::p);
    p.y = out(0);
    p.last_h = out(1);
    p.last_c = out(2);
    PELTON_CUDA(recurrence(p, shares_, stream_of(args)));
  }

 private:
  int64_t states_bytes() const { return aligned(recurrence_scratch_bytes(p_)); }

  Recurrence p_;
  RecurrenceShares shares_;
  std::unique_ptr<MatmulCall> product_;  // null where no input has a value
  int64_t projected_bytes_ = 0;
};

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  if (instance.inputs[at::x].dims[1] == 0 || instance.inputs[at::r].dims[2] == 0) return nothing();
  return std::make_unique<RecurrentKernel>(instance, target);
}

}  // namespace

void add_recurrent(Registry& registry) {
  registry.add({.name = "cuda.recurrent",
                .ops = {"lstm", "gru", "rnn"},
                .refuse = refuse,
                .prepare = prepare,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
