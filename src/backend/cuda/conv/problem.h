// SPDX-License-Identifier: Apache-2.0
// A convolution with what follows it, at exact sizes, and the ways to compute it. Letters: N images, C input
// channels, K results a place, taps: product of the kernel's sizes.
#pragma once

#include "backend/conv_window.h"
#include "backend/cuda/own/steps.h"

namespace pelton::backend::cuda {

struct CudnnMachine;

struct ConvProblem {
  // `here`: a GPU is, to which constant operands are copied.
  ConvProblem(const Instance& instance, const device::Target& target, bool here = true);

  Group group;
  TensorSpec x, y;
  TensorSpec sums;          // y before the steps: same dims and layout, in the type of y
  Dims w;                   // [K,C/groups,K...]; transposed: [C,K/groups,K...]
  bool transposed = false;  // conv_backward_data too: x is the gradient of the result, y that of the data
  int64_t groups = 1;
  ConvWindow window;
  Tensor weights;  // undefined if they change between runs
  int x_input = 0, w_input = 1;
  int gate_input = -1;  // factors of x, one an image and channel; -1: none
  StepsPlan steps;      // the bias, then the chain
  int multiprocessors = 132;
  bool tf32 = false;  // f32 operands may be rounded to it

  size_t spatial() const { return x.dims.size() - 2; }
  int64_t taps() const { return element_count(Dims(w.begin() + 2, w.end())); }
  bool channels_last() const { return is_channels_last(x.layout) && is_channels_last(y.layout); }
  bool plain() const { return x.layout.is_plain() && y.layout.is_plain(); }
  std::string key() const;  // tells problems apart
};

struct ConvBuffers {
  const void *x = nullptr, *w = nullptr;  // w: as the graph has it; null if it was packed
  const void* gate = nullptr;             // [N,C] of a gated problem
  void *y = nullptr, *scratch = nullptr;
  float* part_sums = nullptr;  // [N,parts(),K], where the sums of the results are wanted
  Epilogue steps;
};

class ConvMethod {
 public:
  virtual ~ConvMethod() = default;
  virtual std::string name() const = 0;
  virtual int64_t scratch_bytes() const { return 0; }
  virtual Packed packed() const { return {}; }  // null: reads ConvBuffers::w
  // In how many parts of the places it can sum up the results; 0: not.
  virtual int parts() const { return 0; }
  virtual void chosen() const {}  // keeps what took long to make (kept.h)
  virtual void run(const ConvBuffers& buffers, cudaStream_t stream) const = 0;
};
using ConvMethods = std::vector<std::unique_ptr<ConvMethod>>;
// Every name that a method of the adders below that take `only` may have; those of add_f32_methods().
std::vector<std::string> timed_conv_methods();
std::vector<std::string> f32_method_names();

// Gated problems are for the first adder alone; it has a way for all that conv.cc lets through.
// Each adds what it has for the problem, most promising first; none is fine. With `only`, at most the method
// of that name is made: plans of cuDNN take long to make.
void add_gemm_methods(const ConvProblem& problem, size_t most, const std::string& only, ConvMethods& to);
void add_f32_methods(const ConvProblem& problem, size_t most, const std::string& only, ConvMethods& to);
void add_depthwise_methods(const ConvProblem& problem, ConvMethods& to);
void add_stem_methods(const ConvProblem& problem, ConvMethods& to);
void add_product_methods(const ConvProblem& problem, const std::string& only, ConvMethods& to);
void add_cudnn_methods(const ConvProblem& problem, const std::string& only, ConvMethods& to);
// The plans of the one before for a GPU that is not here, kept (kept.h); how many.
size_t keep_cudnn_plans(const ConvProblem& problem, const CudnnMachine& machine);
void add_direct_method(const ConvProblem& problem, ConvMethods& to);  // takes everything

// Whether add_stem_methods() will have a way for this node at every size: of few channels, whose operand may
// then lie plain and its result channels last.
bool stem_takes(const ir::Node& conv, const ir::Type& x, const ir::Type& w);

// Weights [A,B,taps] as they are, with their taps moved to the middle ([A,taps,B]) or to the front
// ([taps,A*B]): packed once if they are constant, else into scratch at each run.
class MovedWeights {
 public:
  enum class Taps : uint8_t { last, middle, first };
  MovedWeights(const ConvProblem& problem, Taps taps);
  int64_t scratch_bytes() const { return scratch_bytes_; }
  const Packed& packed() const { return packed_; }
  const void* get(const ConvBuffers& buffers, void* scratch, cudaStream_t stream) const;

 private:
  Packed packed_;
  bool as_it_is_ = false;  // nothing moves
  int64_t a_ = 0, b_ = 0, taps_ = 0, scratch_bytes_ = 0;
  int element_bytes_ = 0;
};

}  // namespace pelton::backend::cuda
