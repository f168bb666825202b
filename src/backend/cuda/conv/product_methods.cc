// SPDX-License-Identifier: Apache-2.0
// Convolutions of one place as cuBLASLt products: channels-last data is a matrix of places by channels. Bias,
// residual and ReLU go into the product where they stand first; what is left follows in place.
#include "backend/cuda/conv/problem.h"
#include "backend/cuda/libraries.h"
#include "backend/cuda/matmul_call.h"
#include "backend/cuda/own/move_taps.h"

namespace pelton::backend::cuda {
namespace {

using S = EpilogueStep;

class ProductMethod final : public ConvMethod {
 public:
  ProductMethod(const ConvProblem& p, std::unique_ptr<MatmulCall> call, int bias, int residual, int taken)
      : call_(std::move(call)),
        weights_(p, MovedWeights::Taps::middle),
        bias_(bias),
        residual_(residual),
        taken_(taken) {
    steps_.type = elem(p.y.dtype);
    steps_.channels_last = true;
    steps_.n = static_cast<int>(p.y.dims[0]);
    steps_.c = static_cast<int>(p.y.dims[1]);
    steps_.places = element_count(Dims(p.y.dims.begin() + 2, p.y.dims.end()));
  }
  std::string name() const override { return "cublaslt"; }
  int64_t scratch_bytes() const override { return call_->workspace_bytes(); }
  Packed packed() const override { return weights_.packed(); }
  void run(const ConvBuffers& b, cudaStream_t stream) const override {
    auto operand = [&](int step) { return step < 0 ? nullptr : b.steps.steps[step].operand; };
    // One tap: the weights stay as they are.
    call_->run(b.x, weights_.get(b, nullptr, stream), operand(residual_), b.y, operand(bias_), b.scratch,
               stream);
    ApplySteps rest = steps_;
    rest.y = b.y;
    for (int i = taken_; i < b.steps.count; ++i)
      rest.epilogue.steps[rest.epilogue.count++] = b.steps.steps[i];
    PELTON_CUDA(apply_steps(rest, stream));
  }

 private:
  std::unique_ptr<MatmulCall> call_;
  MovedWeights weights_;
  int bias_, residual_, taken_;  // steps: -1, -1 and 0 if the product takes none
  ApplySteps steps_;
};

bool all(const Dims& v, int64_t value) {
  for (int64_t x : v)
    if (x != value) return false;
  return true;
}

}  // namespace

void add_product_methods(const ConvProblem& p, const std::string& only, ConvMethods& to) {
  if (!only.empty() && only != "cublaslt") return;
  if (p.groups != 1 || p.taps() != 1 || !p.channels_last() || !all(p.window.strides, 1) ||
      !all(p.window.low, 0) || !all(p.window.high, 0) || !all(p.window.output_padding, 0) ||
      !missing_cublas_lt().empty())
    return;
  MatmulProblem m;
  m.in = p.x.dtype;
  m.out = p.y.dtype;
  m.m = p.x.count() / p.x.dims[1];
  m.k = p.x.dims[1];
  m.n = p.y.dims[1];
  m.transpose_b = !p.transposed;  // weights [results, channels], transposed [channels, results]
  m.tf32 = p.tf32;
  int at = 0, bias = -1, residual = -1;
  auto next = [&](S::Op op, S::Where where) {
    if (at >= p.steps.form.count) return false;
    const S& s = p.steps.form.steps[at];
    return s.op == op && s.where == where && (where == S::none || s.type == elem(p.y.dtype));
  };
  if (next(S::add, S::channel)) bias = at++;
  if (next(S::add, S::full)) residual = at++;
  if (next(S::relu, S::none)) {
    m.activation = Activation::relu;
    ++at;
  }
  m.bias = bias >= 0;
  m.residual = residual >= 0;
  std::unique_ptr<MatmulCall> call = MatmulCall::make(m);
  if (!call && m.activation != Activation::none) {
    m.activation = Activation::none;
    call = MatmulCall::make(m);
    --at;
  }
  if (call) to.push_back(std::make_unique<ProductMethod>(p, std::move(call), bias, residual, at));
}

}  // namespace pelton::backend::cuda
