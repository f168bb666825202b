// SPDX-License-Identifier: Apache-2.0
// Ways to compute the gradient of weights: a cuBLASLt product where the kernel is one place, cuDNN's plans,
// our depthwise kernel, and one that takes everything.
#include <algorithm>

#include "backend/cuda/aligned.h"
#include "backend/cuda/conv/backward_weights.h"
#include "backend/cuda/conv/cudnn_graph.h"
#include "backend/cuda/conv/cudnn_shapes.h"
#include "backend/cuda/libraries.h"
#include "backend/cuda/matmul_call.h"
#include "backend/cuda/own/conv_weights.h"
#include "backend/cuda/own/depthwise_lines.h"
#include "backend/cuda/own/depthwise_weights.h"
#include "base/log.h"

namespace pelton::backend::cuda {
namespace {

using TensorRef = CudnnGraph::TensorRef;

int small(int64_t v) {
  if (v != static_cast<int>(v))
    fail(ErrorCode::bad_shape, cat("a convolution of size ", v), "", "use fewer than 2147483648 of each");
  return static_cast<int>(v);
}
bool all(const Dims& v, int64_t value) {
  return std::all_of(v.begin(), v.end(), [&](int64_t x) { return x == value; });
}

// dw[K,C] = g[places,K]^T x[places,C].
class ProductMethod final : public WeightsMethod {
 public:
  explicit ProductMethod(std::unique_ptr<MatmulCall> call) : call_(std::move(call)) {}
  std::string name() const override { return "cublaslt"; }
  int64_t scratch_bytes() const override { return call_->workspace_bytes(); }
  void run(const WeightsBuffers& b, cudaStream_t stream) const override {
    call_->run(b.g, b.x, nullptr, b.dw, nullptr, b.scratch, stream);
  }

 private:
  std::unique_ptr<MatmulCall> call_;
};

// A plan, and where its result does not lie as wanted a copy that does.
class CudnnMethod final : public WeightsMethod {
 public:
  CudnnMethod(std::shared_ptr<const CudnnPlan> plan, const WeightsProblem& p, DType made)
      : plan_(std::move(plan)), made_(elem(made)), wanted_(elem(p.result)) {
    judged_ = made_ != wanted_ || (p.x.dtype == DType::f32 && !p.tf32);
    a_ = p.dw[0];
    b_ = p.dw[1];
    taps_ = p.taps();
    const bool moves = p.channels_last() && taps_ > 1 && b_ > 1;
    if (!moves && made == p.result) return;
    if (!moves) {  // a cast alone
      b_ *= taps_;
      taps_ = 1;
    }
    between_bytes_ = aligned(element_count(p.dw) * elem_bytes(made_));
  }
  std::string name() const override {
    return cat("cudnn ", plan_->name(), made_ == wanted_ ? "" : " narrow");
  }
  std::optional<Elem> judged_as() const override {
    if (judged_) return made_;
    return {};
  }
  int64_t scratch_bytes() const override { return between_bytes_ + plan_->workspace_bytes(); }
  void chosen() const override { plan_->keep(); }
  void run(const WeightsBuffers& b, cudaStream_t stream) const override {
    void* made = between_bytes_ ? b.scratch : b.dw;
    plan_->run({const_cast<void*>(b.x), made, const_cast<void*>(b.g)},
               static_cast<std::byte*>(b.scratch) + between_bytes_, stream);
    if (between_bytes_) PELTON_CUDA(taps_last(made, made_, b.dw, wanted_, a_, b_, taps_, stream));
  }

 private:
  std::shared_ptr<const CudnnPlan> plan_;
  Elem made_, wanted_;
  bool judged_ = false;
  int64_t a_ = 0, b_ = 0, taps_ = 0, between_bytes_ = 0;
};

class DepthwiseMethod final : public WeightsMethod {
 public:
  DepthwiseMethod(const DepthwiseBackward& d, int multiprocessors)
      : depthwise_(d), multiprocessors_(multiprocessors) {}
  std::string name() const override { return "depthwise"; }
  int64_t scratch_bytes() const override { return depthwise_partial_bytes(depthwise_, multiprocessors_); }
  void run(const WeightsBuffers& b, cudaStream_t stream) const override {
    DepthwiseBackward d = depthwise_;
    d.g = b.g;
    d.other = b.x;
    d.result = b.dw;
    PELTON_CUDA(depthwise_backward_weights(d, static_cast<float*>(b.scratch), multiprocessors_, stream));
  }

 private:
  DepthwiseBackward depthwise_;
  int multiprocessors_;
};

// From shared memory.
class StagedDepthwiseMethod final : public WeightsMethod {
 public:
  StagedDepthwiseMethod(const DepthwiseBackward& d, const DepthwiseShares& shares)
      : depthwise_(d), shares_(shares) {}
  std::string name() const override {
    return cat("depthwise ", shares_.lanes, "x", shares_.blocks, shares_.cluster ? " cluster" : "");
  }
  int64_t scratch_bytes() const override { return depthwise_weights_scratch_bytes(depthwise_, shares_); }
  bool compared() const override { return true; }
  void run(const WeightsBuffers& b, cudaStream_t stream) const override {
    DepthwiseBackward d = depthwise_;
    d.g = b.g;
    d.other = b.x;
    d.result = b.dw;
    PELTON_CUDA(depthwise_weights(d, shares_, static_cast<float*>(b.scratch), stream));
  }

 private:
  DepthwiseBackward depthwise_;
  DepthwiseShares shares_;
};

// From registers.
class LinesDepthwiseMethod final : public WeightsMethod {
 public:
  LinesDepthwiseMethod(const DepthwiseBackward& d, const DepthwiseLines& lines)
      : depthwise_(d), lines_(lines) {}
  std::string name() const override {
    return cat("depthwise lines ", lines_.lanes, "x", lines_.rows, "x", lines_.segment, " ", lines_.blocks);
  }
  int64_t scratch_bytes() const override { return depthwise_lines_scratch_bytes(depthwise_, lines_); }
  bool compared() const override { return true; }
  void run(const WeightsBuffers& b, cudaStream_t stream) const override {
    DepthwiseBackward d = depthwise_;
    d.g = b.g;
    d.other = b.x;
    d.result = b.dw;
    PELTON_CUDA(depthwise_weights_by_lines(d, lines_, static_cast<float*>(b.scratch), stream));
  }

 private:
  DepthwiseBackward depthwise_;
  DepthwiseLines lines_;
};

class DirectMethod final : public WeightsMethod {
 public:
  explicit DirectMethod(const ConvWeights& conv) : conv_(conv) {}
  std::string name() const override { return kDirect; }
  void run(const WeightsBuffers& b, cudaStream_t stream) const override {
    ConvWeights d = conv_;
    d.g = b.g;
    d.x = b.x;
    d.dw = b.dw;
    PELTON_CUDA(conv_weights(d, stream));
  }

 private:
  ConvWeights conv_;
};

}  // namespace

std::vector<std::string> timed_weights_methods() {
  std::vector<std::string> names{"cublaslt", kRows, kDirect};
  for (int i = 0; i < kCudnnProposals; ++i) {
    names.push_back(cat("cudnn ", i));
    names.push_back(cat("cudnn ", i, " narrow"));
  }
  return names;
}

void add_weights_product(const WeightsProblem& p, const std::string& only, WeightsMethods& to) {
  if (!only.empty() && only != "cublaslt") return;
  if (p.groups != 1 || p.taps() != 1 || !p.channels_last() || !all(p.window.strides, 1) ||
      !all(p.window.low, 0) || !all(p.window.high, 0) || !missing_cublas_lt().empty())
    return;
  if (p.result != p.x.dtype && p.result != DType::f32) return;
  MatmulProblem m;
  m.in = p.x.dtype;
  m.out = p.result;
  m.m = p.dw[0];
  m.n = p.dw[1];
  m.k = p.x.count() / p.x.dims[1];
  m.transpose_a = true;
  m.tf32 = p.tf32;
  if (std::unique_ptr<MatmulCall> call = MatmulCall::make(m))
    to.push_back(std::make_unique<ProductMethod>(std::move(call)));
}

void add_weights_cudnn(const WeightsProblem& p, const std::string& only, WeightsMethods& to) {
  if (!only.empty() && !only.starts_with("cudnn ")) return;
  if (std::string why = missing_cudnn(); !why.empty()) {
    log_debug(cat("no cuDNN: ", why));
    return;
  }
  // Of one channel a group its plans (9.19) are far off in f32 and sum in f16.
  if (!(p.channels_last() || p.plain()) || (p.groups > 1 && p.dw[1] == 1)) return;
  const bool last = p.channels_last();
  const CudnnGraph::Window window = widened_window(p.window);
  for (const Dims* pads : {&window.low, &window.high})
    for (int64_t v : *pads)
      if (v < 0) return;
  const Dims x = widened(p.x.dims), g = widened(p.g.dims), dw = widened(p.dw);
  auto add = [&](DType made) {
    constexpr std::string_view kNarrow = " narrow";
    std::string wanted;
    if (!only.empty()) {
      const bool narrow = only.ends_with(kNarrow);
      if (narrow != (made != p.result)) return;
      wanted = only.substr(6, only.size() - 6 - (narrow ? kNarrow.size() : 0));
    }
    CudnnGraph graph(cudnn_machine());
    const TensorRef tx = graph.tensor(p.x.dtype, x, channel_strides(x, last)),
                    tw = graph.tensor(made, dw, channel_strides(dw, last)),
                    tg = graph.tensor(p.g.dtype, g, channel_strides(g, last));
    graph.backward_weights(tg, tx, tw, window);
    for (auto& plan :
         graph.plans({.only = wanted, .count = 5, .tensor_cores = p.x.dtype != DType::f32 || p.tf32}))
      to.push_back(std::make_unique<CudnnMethod>(std::move(plan), p, made));
  };
  const size_t before = to.size();
  add(p.result);
  // Not all that it takes can be stored wider than the operands.
  if (p.result != p.x.dtype && to.size() == before) add(p.x.dtype);
}

void add_weights_depthwise(const WeightsProblem& p, bool first_alone, WeightsMethods& to) {
  const int64_t c = p.x.dims[1];
  if (p.groups != c || p.g.dims[1] != c || p.spatial() > 2 || !p.channels_last()) return;
  for (const Dims* dims : {&p.x.dims, &p.g.dims, &p.window.low, &p.window.strides, &p.window.dilations})
    for (int64_t d : *dims)
      if (d > (1 << 24) || d < -(1 << 24)) return;
  const DepthwiseBackward d = depthwise_backward_of(p.x.dims, p.g.dims, p.dw, p.window, p.x.dtype, p.result);
  to.push_back(std::make_unique<DepthwiseMethod>(d, p.multiprocessors));
  if (first_alone || !p.clusters) return;
  for (const DepthwiseShares& s : depthwise_weights_shares(d, p.multiprocessors))
    to.push_back(std::make_unique<StagedDepthwiseMethod>(d, s));
  for (const DepthwiseLines& s : depthwise_lines(d, p.multiprocessors))
    to.push_back(std::make_unique<LinesDepthwiseMethod>(d, s));
}

ConvWeights conv_weights_of(const WeightsProblem& p) {
  ConvWeights d;
  d.type = elem(p.x.dtype);
  d.result_type = elem(p.result);
  d.g_channels_last = is_channels_last(p.g.layout);
  d.x_channels_last = is_channels_last(p.x.layout);
  d.n = small(p.x.dims[0]);
  d.c = small(p.x.dims[1]);
  d.k = small(p.g.dims[1]);
  d.groups = small(p.groups);
  const size_t s = p.spatial();
  for (size_t i = 0; i < s; ++i) {
    const size_t to = 3 - s + i;
    d.in[to] = small(p.x.dims[i + 2]);
    d.out[to] = small(p.g.dims[i + 2]);
    d.kernel[to] = small(p.dw[i + 2]);
    d.stride[to] = small(p.window.strides[i]);
    d.dilation[to] = small(p.window.dilations[i]);
    d.low[to] = small(p.window.low[i]);
  }
  return d;
}

void add_weights_direct(const WeightsProblem& p, WeightsMethods& to) {
  to.push_back(std::make_unique<DirectMethod>(conv_weights_of(p)));
}

}  // namespace pelton::backend::cuda
