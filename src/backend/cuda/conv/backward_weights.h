// SPDX-License-Identifier: Apache-2.0
// The gradient of a convolution's weights at exact sizes, and the ways to compute it. Letters as in
// problem.h: g[N,K,P...] is the gradient of the result, x[N,C,S...] the data, dw[K,C/groups,K...] lies plain.
#pragma once

#include <optional>

#include "backend/cuda/conv/problem.h"
#include "backend/cuda/memory.h"

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
  bool tf32 = false, clusters = false;

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
  virtual void chosen() const {}  // keeps what took long to make (kept.h)
  // The type that the sums are rounded to where they have to be judged before the way is offered.
  virtual std::optional<Elem> judged_as() const { return {}; }
  // Whether its values have to be those of the first way before it is offered.
  virtual bool compared() const { return false; }
};
using WeightsMethods = std::vector<std::unique_ptr<WeightsMethod>>;
inline constexpr const char* kDirect = "direct";   // the method of add_weights_direct
std::vector<std::string> timed_weights_methods();  // every name that a timing may choose

inline constexpr const char* kRows = "rows";  // of add_weights_rows

struct ConvWeights;
struct RowsProduct;
// As a product of rows (own/rows_product.h), without addresses, if it is one.
std::optional<RowsProduct> rows_product_of(const WeightsProblem& problem);
ConvWeights conv_weights_of(const WeightsProblem& problem);  // without addresses

// Each adds what it has for the problem; with `only`, at most the method of that name.
void add_weights_product(const WeightsProblem& problem, const std::string& only, WeightsMethods& to);
void add_weights_rows(const WeightsProblem& problem, const std::string& only, WeightsMethods& to);
void add_weights_cudnn(const WeightsProblem& problem, const std::string& only, WeightsMethods& to);
void add_weights_depthwise(const WeightsProblem& problem, bool first_alone, WeightsMethods& to);
void add_weights_direct(const WeightsProblem& problem, WeightsMethods& to);  // takes everything

// Buffers with numbers in them, to time and judge methods with.
class WeightsTrial {
 public:
  WeightsTrial(const WeightsProblem& problem, const WeightsMethods& methods);
  const WeightsBuffers& buffers() const { return b_; }

 private:
  std::vector<DeviceBuffer> memory_;
  WeightsBuffers b_;
};

// Engines of cuDNN (9.19) sum f32 less exactly than one addition after the other does, without saying so.
// Leaves out what is not as exact on these operands as the acceptance rule (docs/numerics.md) wants of the
// judged ones.
void leave_out_inexact(const WeightsProblem& problem, const WeightsBuffers& trial, WeightsMethods& methods);
// Leaves out compared ways that yield something else than the first does.
void leave_out_different(const WeightsProblem& problem, const WeightsBuffers& trial, WeightsMethods& methods);

}  // namespace pelton::backend::cuda
