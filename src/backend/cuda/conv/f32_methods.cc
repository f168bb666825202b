// SPDX-License-Identifier: Apache-2.0
// The product kernel of f32 convolutions (own/conv_f32.h) as ways to compute one: tile shapes, and blocks
// that share the depth of a tile.
#include <algorithm>

#include "backend/cuda/conv/problem.h"
#include "backend/cuda/conv/window_of.h"
#include "backend/cuda/own/conv_f32.h"

namespace pelton::backend::cuda {
namespace {

std::string f32_name(int configuration) {
  return cat("f32 product ", conv_f32_name(configuration));
}

class F32Method final : public ConvMethod {
 public:
  F32Method(const ConvProblem& p, const ConvF32& g, int configuration)
      : conv_(g), configuration_(configuration), weights_(p, MovedWeights::Taps::middle) {}
  std::string name() const override { return f32_name(configuration_); }
  int64_t scratch_bytes() const override { return weights_.scratch_bytes(); }
  Packed packed() const override { return weights_.packed(); }
  void run(const ConvBuffers& b, cudaStream_t stream) const override {
    ConvF32 g = conv_;
    g.x = static_cast<const float*>(b.x);
    g.w = static_cast<const float*>(weights_.get(b, b.scratch, stream));
    g.y = b.y;
    g.epilogue = b.steps;
    PELTON_CUDA(conv_f32(g, configuration_, stream));
  }

 private:
  ConvF32 conv_;
  int configuration_;
  MovedWeights weights_;
};

}  // namespace

std::vector<std::string> f32_method_names() {
  std::vector<std::string> names;
  for (int i = 0; i < conv_f32_configurations(); ++i) names.push_back(f32_name(i));
  return names;
}

void add_f32_methods(const ConvProblem& p, size_t most, const std::string& only, ConvMethods& to) {
  if (p.transposed || p.groups != 1 || p.spatial() > 2 || !p.channels_last() || p.x.dtype != DType::f32 ||
      p.x.dims[1] % 4 != 0 || p.y.dims[1] % 4 != 0 || !fits_int(p))
    return;
  ConvF32 g;
  set_window(g, p);
  g.k = small(p.y.dims[1]);
  std::vector<int> order;
  for (int i = 0; i < conv_f32_configurations(); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return conv_f32_cost(g, a, p.multiprocessors) < conv_f32_cost(g, b, p.multiprocessors);
  });
  if (only.empty()) order.resize(std::min(order.size(), most));
  for (int i : order)
    if (only.empty() || only == f32_name(i)) to.push_back(std::make_unique<F32Method>(p, g, i));
}

}  // namespace pelton::backend::cuda
