// SPDX-License-Identifier: Apache-2.0
// Our own kernels as ways to compute a convolution.
#include <algorithm>
#include <cstring>

#include "backend/cuda/conv/cudnn_graph.h"
#include "backend/cuda/conv/cudnn_shapes.h"
#include "backend/cuda/conv/problem.h"
#include "backend/cuda/conv/window_of.h"
#include "backend/cuda/own/conv_gemm.h"
#include "backend/cuda/own/conv_weights.h"
#include "backend/cuda/own/depthwise.h"
#include "backend/cuda/own/direct_conv.h"
#include "backend/cuda/own/stem_conv.h"

namespace pelton::backend::cuda {
namespace {

std::string gemm_name(int configuration) {
  return cat("product ", conv_gemm_name(configuration));
}

class GemmMethod final : public ConvMethod {
 public:
  GemmMethod(const ConvProblem& p, const ConvGemm& g, int configuration)
      : gemm_(g), configuration_(configuration), weights_(p, MovedWeights::Taps::middle) {
    gemm_.fixed_weights = p.weights.defined();
  }
  std::string name() const override { return gemm_name(configuration_); }
  int64_t scratch_bytes() const override { return weights_.scratch_bytes(); }
  Packed packed() const override { return weights_.packed(); }
  void run(const ConvBuffers& b, cudaStream_t stream) const override {
    ConvGemm g = gemm_;
    g.x = b.x;
    g.w = weights_.get(b, b.scratch, stream);
    g.gate = b.gate;
    g.y = b.y;
    g.epilogue = b.steps;
    PELTON_CUDA(conv_gemm(g, configuration_, stream));
  }

 private:
  ConvGemm gemm_;
  int configuration_;
  MovedWeights weights_;
};

class DepthwiseMethod final : public ConvMethod {
 public:
  explicit DepthwiseMethod(const ConvProblem& p)
      : multiprocessors_(p.multiprocessors), weights_(p, MovedWeights::Taps::first) {
    set_window(depthwise_, p);
    depthwise_.fixed_weights = p.weights.defined();
  }
  std::string name() const override { return "depthwise"; }
  int parts() const override { return depthwise_parts(depthwise_, multiprocessors_); }
  int64_t scratch_bytes() const override { return weights_.scratch_bytes(); }
  Packed packed() const override { return weights_.packed(); }
  void run(const ConvBuffers& b, cudaStream_t stream) const override {
    Depthwise g = depthwise_;
    g.x = b.x;
    g.w = weights_.get(b, b.scratch, stream);
    g.y = b.y;
    g.part_sums = b.part_sums;
    g.epilogue = b.steps;
    PELTON_CUDA(depthwise(g, multiprocessors_, stream));
  }

 private:
  Depthwise depthwise_;
  int multiprocessors_;
  MovedWeights weights_;
};

class DepthwiseBackwardMethod final : public ConvMethod {
 public:
  explicit DepthwiseBackwardMethod(const ConvProblem& p)
      : depthwise_(depthwise_backward_of(p.y.dims, p.x.dims, p.w, p.window, p.x.dtype, p.y.dtype)),
        weights_(p, MovedWeights::Taps::first) {}
  std::string name() const override { return "depthwise backward"; }
  int64_t scratch_bytes() const override { return weights_.scratch_bytes(); }
  Packed packed() const override { return weights_.packed(); }
  void run(const ConvBuffers& b, cudaStream_t stream) const override {
    DepthwiseBackward d = depthwise_;
    d.g = b.x;
    d.other = weights_.get(b, b.scratch, stream);
    d.result = b.y;
    d.epilogue = b.steps;
    PELTON_CUDA(depthwise_backward_data(d, stream));
  }

 private:
  DepthwiseBackward depthwise_;
  MovedWeights weights_;
};

// At stride 1 the gradient of the data is a convolution of the gradient with the taps turned round.
class TurnedDepthwiseMethod final : public ConvMethod {
 public:
  explicit TurnedDepthwiseMethod(const ConvProblem& p) : multiprocessors_(p.multiprocessors) {
    set_window(depthwise_, p);
    depthwise_.pad_h = (depthwise_.r - 1) * depthwise_.dilation_h - depthwise_.pad_h;
    depthwise_.pad_w = (depthwise_.s - 1) * depthwise_.dilation_w - depthwise_.pad_w;
  }
  std::string name() const override { return "depthwise turned"; }
  int64_t scratch_bytes() const override {
    return static_cast<int64_t>(depthwise_.c) * depthwise_.r * depthwise_.s * elem_bytes(depthwise_.type);
  }
  void run(const ConvBuffers& b, cudaStream_t stream) const override {
    Depthwise g = depthwise_;
    PELTON_CUDA(taps_turned(b.w, b.scratch, elem_bytes(g.type), g.c, g.r * g.s, stream));
    g.x = b.x;
    g.w = b.scratch;
    g.y = b.y;
    g.epilogue = b.steps;
    PELTON_CUDA(depthwise(g, multiprocessors_, stream));
  }

 private:
  Depthwise depthwise_;
  int multiprocessors_;
};

class StemMethod final : public ConvMethod {
 public:
  StemMethod(const ConvProblem& p, const StemConv& g) : conv_(g), multiprocessors_(p.multiprocessors) {
    if (!p.weights.defined()) return;
    const StemWeights form = stem_conv_weights(g);
    const int64_t depth = p.w[1] * p.taps();
    packed_ = shared_packed(p.weights, cat("rows of ", form.pitch), [&] {
      const auto size = static_cast<size_t>(elem_bytes(g.type));
      std::vector<std::byte> rows(static_cast<size_t>(form.rows) * static_cast<size_t>(form.pitch) * size);
      for (int64_t k = 0; k < p.w[0]; ++k)
        std::memcpy(&rows[static_cast<size_t>(k * form.pitch) * size],
                    static_cast<const std::byte*>(p.weights.data()) + static_cast<size_t>(k * depth) * size,
                    static_cast<size_t>(depth) * size);
      return upload(rows.data(), static_cast<int64_t>(rows.size()), "weights of a convolution");
    });
    conv_.packed = true;
  }
  std::string name() const override { return "few channels"; }
  Packed packed() const override { return packed_; }
  void run(const ConvBuffers& b, cudaStream_t stream) const override {
    StemConv g = conv_;
    g.x = b.x;
    g.w = packed_ ? packed_->get() : b.w;
    g.y = b.y;
    g.epilogue = b.steps;
    PELTON_CUDA(stem_conv(g, multiprocessors_, stream));
  }

 private:
  StemConv conv_;
  int multiprocessors_;
  Packed packed_;
};

class DirectMethod final : public ConvMethod {
 public:
  explicit DirectMethod(const ConvProblem& p) {
    DirectConv& g = conv_;
    g.type = elem(p.x.dtype);
    g.y_type = elem(p.y.dtype);
    g.transposed = p.transposed;
    g.x_channels_last = is_channels_last(p.x.layout);
    g.y_channels_last = is_channels_last(p.y.layout);
    g.n = small(p.x.dims[0]);
    g.c = small(p.x.dims[1]);
    g.k = small(p.y.dims[1]);
    g.groups = small(p.groups);
    const size_t s = p.spatial();
    for (size_t i = 0; i < s; ++i) {
      const size_t to = 3 - s + i;
      g.in[to] = small(p.x.dims[i + 2]);
      g.out[to] = small(p.y.dims[i + 2]);
      g.kernel[to] = small(p.w[i + 2]);
      g.stride[to] = small(p.window.strides[i]);
      g.dilation[to] = small(p.window.dilations[i]);
      g.low[to] = small(p.window.low[i]);
    }
    if (p.weights.defined())
      packed_ =
          shared_packed(p.weights, "as it is", [&] { return upload(p.weights, "weights of a convolution"); });
  }
  std::string name() const override { return "direct"; }
  Packed packed() const override { return packed_; }
  void run(const ConvBuffers& b, cudaStream_t stream) const override {
    DirectConv g = conv_;
    g.x = b.x;
    g.w = packed_ ? packed_->get() : b.w;
    g.y = b.y;
    g.epilogue = b.steps;
    PELTON_CUDA(direct_conv(g, stream));
  }

 private:
  DirectConv conv_;
  Packed packed_;
};

}  // namespace

std::vector<std::string> timed_conv_methods() {
  std::vector<std::string> names{"cublaslt"};
  for (int i = 0; i < conv_gemm_configurations(); ++i) names.push_back(gemm_name(i));
  for (std::string& name : f32_method_names()) names.push_back(std::move(name));
  for (int i = 0; i < kCudnnProposals; ++i) {
    names.push_back(cat("cudnn fused ", i));
    names.push_back(cat("cudnn ", i));
  }
  return names;
}

void add_gemm_methods(const ConvProblem& p, size_t most, const std::string& only, ConvMethods& to) {
  if (p.transposed || p.groups != 1 || p.spatial() > 2 || !p.channels_last() || p.x.dtype == DType::f32 ||
      p.x.dims[1] % 8 != 0 || !fits_int(p))
    return;
  ConvGemm g;
  set_window(g, p);
  g.k = small(p.y.dims[1]);
  g.gated = p.gate_input >= 0;
  std::vector<int> order;
  for (int i = 0; i < conv_gemm_configurations(); ++i)
    if (conv_gemm_fits(g, i)) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return conv_gemm_cost(g, a, p.multiprocessors) < conv_gemm_cost(g, b, p.multiprocessors);
  });
  if (only.empty()) order.resize(std::min(order.size(), most));
  for (int i : order)
    if (only.empty() || only == gemm_name(i)) to.push_back(std::make_unique<GemmMethod>(p, g, i));
}

void add_depthwise_methods(const ConvProblem& p, ConvMethods& to) {
  const int64_t c = p.x.dims[1];
  if (p.groups != c || p.y.dims[1] != c || p.spatial() > 2 || !p.channels_last() || !fits_int(p)) return;
  const bool turned =
      p.transposed && !p.weights.defined() &&
      std::all_of(p.window.strides.begin(), p.window.strides.end(), [](int64_t s) { return s == 1; });
  if (turned)
    to.push_back(std::make_unique<TurnedDepthwiseMethod>(p));
  else if (p.transposed)
    to.push_back(std::make_unique<DepthwiseBackwardMethod>(p));
  else
    to.push_back(std::make_unique<DepthwiseMethod>(p));
}

void add_stem_methods(const ConvProblem& p, ConvMethods& to) {
  if (p.transposed || p.groups != 1 || p.spatial() > 2 || !is_channels_last(p.y.layout) ||
      p.x.dtype == DType::f32 || !fits_int(p))
    return;
  StemConv g;
  set_window(g, p);
  g.k = small(p.y.dims[1]);
  g.channels_last = is_channels_last(p.x.layout);
  if (stem_conv_takes(g)) to.push_back(std::make_unique<StemMethod>(p, g));
}

bool stem_takes(const ir::Node& conv, const ir::Type& x, const ir::Type& w) {
  if (!conv.is("conv") || conv.get_int("groups") != 1 || x.rank() != 4 || x.dtype == DType::f32) return false;
  for (const Dim& d : w.shape)
    if (!d.is_const()) return false;
  // Larger than any that it takes stays so as an int.
  auto small = [](int64_t v) { return static_cast<int>(std::min<int64_t>(v, 1 << 24)); };
  auto at = [&](const ir::Ints& v, size_t i) { return v.empty() ? 1 : small(v[i]); };
  StemConv g;
  g.type = elem(x.dtype);
  g.k = small(w.shape[0].value());
  g.c = small(w.shape[1].value());
  g.r = small(w.shape[2].value());
  g.s = small(w.shape[3].value());
  g.stride_h = at(conv.get_ints("strides"), 0);
  g.stride_w = at(conv.get_ints("strides"), 1);
  g.dilation_h = at(conv.get_ints("dilations"), 0);
  g.dilation_w = at(conv.get_ints("dilations"), 1);
  return stem_conv_takes(g);
}

void add_direct_method(const ConvProblem& p, ConvMethods& to) {
  to.push_back(std::make_unique<DirectMethod>(p));
}

}  // namespace pelton::backend::cuda
