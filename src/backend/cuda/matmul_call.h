// SPDX-License-Identifier: Apache-2.0
// One cuBLASLt product at exact sizes: D = act(alpha A B + beta C + bias), row-major, with one batch dim.
// Floats; i8 to i32 with alpha 1 and nothing behind; f8e4m3fn and f8e5m2 (not both sides the latter) to f16,
// bf16 or f32, their scales in alpha. The library takes 8-bit operands where the sum runs along rows of both
// (transpose_b alone) and sizes are multiples of 16, of i8 of 4.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/handles.h"
#include "backend/cuda/memory.h"
#include "tensor/dtype.h"

namespace pelton::backend::cuda {

enum class Activation : uint8_t { none, relu, gelu_tanh };

struct MatmulProblem {
  DType in = DType::f32, out = DType::f32;
  std::optional<DType> in_b;  // where B has another type than A
  DType b_type() const { return in_b.value_or(in); }
  int64_t m = 0, n = 0, k = 0, batch = 1;
  bool transpose_a = false, transpose_b = false;     // A is [k, m] in memory, B is [n, k]
  int64_t stride_a = 0, stride_b = 0, stride_d = 0;  // elements between batches; 0: the same matrix for all
  int64_t pitch_a = 0, pitch_b = 0, pitch_d = 0;     // elements between rows of A, B and D; 0: dense
  float alpha = 1;
  bool residual = false;  // C, laid out as D; beta is 1
  bool bias = false;      // n values of the type of D
  Activation activation = Activation::none;
  // Of steps of training (train/product_gradient.cc), one at a time and with neither bias nor residual.
  // D = (A B) * the activation's slope by what the forward product left: of gelu_tanh the operand, laid out
  // as D; of relu a bit for each element that passes, rows of mask_pitch() bits.
  Activation gradient_of = Activation::none;
  // What is summed up over k and written to `bias`, of type `sums_type`: a value for each row of D of A, for
  // each column of B.
  enum class Sums : uint8_t { none, of_a, of_b } sums = Sums::none;
  DType sums_type = DType::f32;
  bool tf32 = false;  // f32 operands may be rounded to TF32
  std::string key() const;
};

// Bits from row to row of what a ReLU let through: the library wants multiples of 128.
inline int64_t mask_pitch(int64_t columns) {
  return (columns + 127) / 128 * 128;
}

// Memory of the current GPU with finite numbers of any type in it, for timing.
DeviceBuffer trial_buffer(int64_t bytes);

// Immutable after it is made. Any thread.
class MatmulCall {
 public:
  // Picks the algorithm by timing the library's proposals on the current GPU. Null if the library has none;
  // with an activation, or the gradient of one, also where each makes a number of NaN or the memory does not
  // hold what it takes to see that.
  static std::unique_ptr<MatmulCall> make(const MatmulProblem& problem);
  int64_t workspace_bytes() const { return algorithm_.workspace_bytes; }
  // `c` and `bias` are null unless the problem has them (sums are written to `bias`), likewise `forward`,
  // what gradient_of reads. `workspace` is 256-byte aligned or null.
  void run(const void* a, const void* b, const void* c, void* d, const void* bias, void* workspace,
           cudaStream_t stream, const void* forward = nullptr) const;

 private:
  explicit MatmulCall(const MatmulProblem& problem);
  MatmulHandle description(const void* bias, const void* forward) const;
  struct Algorithm {
    cublasLtMatmulAlgo_t algorithm;
    int64_t workspace_bytes;
  };
  std::vector<Algorithm> proposals() const;
  std::optional<size_t> pick(const std::vector<Algorithm>& found);
  bool choose();
  MatmulProblem p_;
  LayoutHandle a_, b_, d_;
  Algorithm algorithm_{};
};

}  // namespace pelton::backend::cuda
