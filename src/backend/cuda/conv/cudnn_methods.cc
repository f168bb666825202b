// SPDX-License-Identifier: Apache-2.0
// cuDNN's plans as ways to compute a convolution: with the steps inside the plan where it takes them, and as
// a bare convolution with our steps after it.
#include "backend/cuda/conv/cudnn_graph.h"
#include "backend/cuda/conv/cudnn_shapes.h"
#include "backend/cuda/conv/problem.h"
#include "backend/cuda/libraries.h"
#include "backend/cuda/own/move_taps.h"
#include "base/log.h"

namespace pelton::backend::cuda {
namespace {

using S = EpilogueStep;
using TensorRef = CudnnGraph::TensorRef;

std::optional<cudnnPointwiseMode_t> mode_of(S::Op op) {
  switch (op) {
    case S::relu:
      return CUDNN_POINTWISE_RELU_FWD;
    case S::sigmoid:
      return CUDNN_POINTWISE_SIGMOID_FWD;
    case S::tanh:
      return CUDNN_POINTWISE_TANH_FWD;
    case S::silu:
      return CUDNN_POINTWISE_SWISH_FWD;
    case S::gelu:
      return CUDNN_POINTWISE_GELU_FWD;
    case S::add:
      return CUDNN_POINTWISE_ADD;
    case S::mul:
      return CUDNN_POINTWISE_MUL;
    default:
      return {};
  }
}

const char* prefix(bool fused) {
  return fused ? "cudnn fused " : "cudnn ";
}

class CudnnMethod final : public ConvMethod {
 public:
  CudnnMethod(std::shared_ptr<const CudnnPlan> plan, MovedWeights weights, bool fused, const ConvProblem& p)
      : plan_(std::move(plan)), weights_(std::move(weights)), fused_(fused) {
    steps_.type = elem(p.y.dtype);
    steps_.channels_last = is_channels_last(p.y.layout);
    steps_.n = static_cast<int>(p.y.dims[0]);
    steps_.c = static_cast<int>(p.y.dims[1]);
    steps_.places = element_count(Dims(p.y.dims.begin() + 2, p.y.dims.end()));
  }
  std::string name() const override { return cat(prefix(fused_), plan_->name()); }
  int64_t scratch_bytes() const override { return weights_.scratch_bytes() + plan_->workspace_bytes(); }
  Packed packed() const override { return weights_.packed(); }
  void chosen() const override { plan_->keep(); }
  void run(const ConvBuffers& b, cudaStream_t stream) const override {
    const void* w = weights_.get(b, b.scratch, stream);
    std::vector<void*> pointers = {const_cast<void*>(b.x), const_cast<void*>(w), b.y};
    if (fused_)
      for (int i = 0; i < b.steps.count; ++i)
        if (b.steps.steps[i].where != S::none)
          pointers.push_back(const_cast<void*>(b.steps.steps[i].operand));
    plan_->run(pointers, static_cast<std::byte*>(b.scratch) + weights_.scratch_bytes(), stream);
    if (fused_) return;
    ApplySteps steps = steps_;
    steps.y = b.y;
    steps.epilogue = b.steps;
    PELTON_CUDA(apply_steps(steps, stream));
  }

 private:
  std::shared_ptr<const CudnnPlan> plan_;
  MovedWeights weights_;
  bool fused_;
  ApplySteps steps_;
};

bool fusable(const ConvProblem& p) {
  for (int i = 0; i < p.steps.form.count; ++i) {
    const S& s = p.steps.form.steps[i];
    // Its plans yield wrong results for one number an image and channel (seen with 9.19).
    if (!mode_of(s.op) || s.where == S::image_channel || s.where == S::one) return false;
    // Its relu in true f32 or behind groups makes 0 of NaN (9.19).
    if (s.op == S::relu && ((p.x.dtype == DType::f32 && !p.tf32) || p.groups > 1)) return false;
  }
  return p.steps.form.count > 0;
}

bool takes(const ConvProblem& p) {
  if (!(p.channels_last() || p.plain())) return false;
  for (const Dims* pads : {&p.window.low, &p.window.high})
    for (int64_t v : *pads)
      if (v < 0) return false;
  return true;
}

CudnnGraph graph_of(const ConvProblem& p, bool fused, CudnnMachine machine) {
  const bool last = p.channels_last();
  const Dims x = widened(p.x.dims), y = widened(p.y.dims), w = widened(p.w);
  CudnnGraph::Window window = widened_window(p.window);
  if (p.transposed)
    // The library derives the operand's size from the result's; pads it does not see are rows cut off.
    for (size_t i = 0, skip = window.high.size() - p.window.output_padding.size();
         i < p.window.output_padding.size(); ++i)
      window.high[skip + i] = std::max<int64_t>(0, window.high[skip + i] - p.window.output_padding[i]);
  CudnnGraph g(std::move(machine));
  const TensorRef tx = g.tensor(p.x.dtype, x, channel_strides(x, last)),
                  tw = g.tensor(p.x.dtype, w, channel_strides(w, last)),
                  ty = g.tensor(p.y.dtype, y, channel_strides(y, last));
  const int count = fused ? p.steps.form.count : 0;
  std::vector<TensorRef> operands;
  for (int i = 0; i < count; ++i) {
    const S& s = p.steps.form.steps[i];
    if (s.where == S::none) {
      operands.push_back(-1);
      continue;
    }
    Dims d(y.size(), 1);
    if (s.where == S::full) d = y;
    if (s.where == S::channel) d[1] = y[1];
    const DType type = s.type == Elem::f32 ? DType::f32 : s.type == Elem::f16 ? DType::f16 : DType::bf16;
    operands.push_back(g.tensor(type, d, channel_strides(d, last)));
  }
  TensorRef value = count == 0 ? ty : g.tensor(DType::f32, y, channel_strides(y, last), false);
  g.convolution(tx, tw, value, window, p.transposed);
  for (int i = 0; i < count; ++i) {
    const TensorRef next = i + 1 == count ? ty : g.tensor(DType::f32, y, channel_strides(y, last), false);
    g.pointwise(*mode_of(p.steps.form.steps[i].op), value, operands[static_cast<size_t>(i)], next);
    value = next;
  }
  return g;
}

CudnnPlanWishes wishes_of(const ConvProblem& p, bool fused, const std::string& only) {
  return {.only = only,
          .count = fused ? size_t{3} : size_t{4},
          .tensor_cores = p.x.dtype != DType::f32 || p.tf32};
}

}  // namespace

void add_cudnn_methods(const ConvProblem& p, const std::string& only, ConvMethods& to) {
  if (!only.empty() && !only.starts_with("cudnn ")) return;
  if (std::string why = missing_cudnn(); !why.empty()) {
    log_debug(cat("no cuDNN: ", why));
    return;
  }
  if (!takes(p)) return;
  const MovedWeights weights(p, p.channels_last() ? MovedWeights::Taps::middle : MovedWeights::Taps::last);
  auto add = [&](bool fused) {
    std::string wanted;  // the one plan to make
    if (!only.empty()) {
      if (only.starts_with(prefix(true)) != fused) return;
      wanted = only.substr(std::string_view(prefix(fused)).size());
    }
    for (auto& plan : graph_of(p, fused, cudnn_machine()).plans(wishes_of(p, fused, wanted)))
      to.push_back(std::make_unique<CudnnMethod>(std::move(plan), weights, fused, p));
  };
  if (fusable(p)) add(true);
  add(false);
}

size_t keep_cudnn_plans(const ConvProblem& p, const CudnnMachine& machine) {
  if (!takes(p)) return 0;
  size_t kept = graph_of(p, false, machine).keep_plans(wishes_of(p, false, ""));
  if (fusable(p)) kept += graph_of(p, true, machine).keep_plans(wishes_of(p, true, ""));
  return kept;
}

}  // namespace pelton::backend::cuda
