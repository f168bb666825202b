// SPDX-License-Identifier: Apache-2.0
// The gradient of a convolution's weights at exact sizes, and the ways to compute it. Letters as in
// problem.h: g[N,K,P...] is the gradient of the result, x[N,C,S...] the data, dw[K,C/groups,K...] lies plain.
#pragma once

#include <optional>

#include "backend/cuda/conv/problem.h"

namespace pelton::backend::cuda {

struct WeightsProblem {
  WeightsProblem(const Instance& instance, const device::Target& target);

  TensorSpec g, x;
  Dims dw;
  DType result = DType::f32;
  int64_t groups = 1;
  ConvWindow window;
  size_t g_input = 0, x_input = 1;
  int multiprocessors = 132;
  bool tf32 = false;

  size_t spatial() const { return x.dims.size() - 2; }
  int64_t taps() const { return element_count(Dims(dw.begin() + 2, dw.end())); }
  bool channels_last() const { return is_channels_last(x.layout) && is_channels_last(g.layout); }
  bool plain() const { return x.layout.is_plain() && g.layout.is_plain(); }
  std::string key() const;
};

struct WeightsBuffers {
  const void *g = nullptr, *x = nullptr;
  void *dw = nullptr, *scratch = nullptr;
};

class WeightsMethod {
 public:
  virtual ~WeightsMethod() = default;
  virtual std::string name() const = 0;
  virtual int64_t scratch_bytes() const { return 0; }
  virtual void run(const WeightsBuffers& buffers, cudaStream_t stream) const = 0;
};
using WeightsMethods = std::vector<std::unique_ptr<WeightsMethod>>;
std::vector<std::string> timed_weights_methods();  // every name that methods of the two timed adders may have

// Each adds what it has for the problem; with `only`, at most the method of that name.
void add_weights_product(const WeightsProblem& problem, const std::string& only, WeightsMethods& to);
void add_weights_cudnn(const WeightsProblem& problem, const std::string& only, WeightsMethods& to);
void add_weights_depthwise(const WeightsProblem& problem, WeightsMethods& to);
void add_weights_direct(const WeightsProblem& problem, WeightsMethods& to);  // takes everything

}  // namespace pelton::backend::cuda
