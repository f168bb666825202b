// SPDX-License-Identifier: Apache-2.0
// Cross entropy of rows of logits x[rows, classes] and its gradient, without a softmax in memory. Sums in
// f32, in a fixed order.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

struct CrossEntropy {
  const void *x = nullptr, *labels = nullptr,
             *weights = nullptr;                   // weights [classes] of weight_type, or null
  Elem type = Elem::f32, weight_type = Elem::f32;  // type of x
  bool label64 = true;
  int64_t rows = 0, ignore = 0;
  int classes = 0;
  enum Reduction : uint8_t { none, sum, mean } reduction = sum;
  float* scratch = nullptr;   // cross_entropy_scratch_bytes()
  uint32_t* fault = nullptr;  // see device/fault.h
  // Forward.
  void* loss = nullptr;  // one, or [rows]
  Elem loss_type = Elem::f32;
  float* log_sums = nullptr;  // [rows] or null
  // Backward.
  const float* known_log_sums = nullptr;  // [rows]
  const void* g = nullptr;                // as the loss, of loss_type
  void* dx = nullptr;
  Elem dx_type = Elem::f32;
};
int64_t cross_entropy_scratch_bytes(const CrossEntropy& problem);
cudaError_t cross_entropy(const CrossEntropy& problem, cudaStream_t stream);
cudaError_t cross_entropy_backward(const CrossEntropy& problem, cudaStream_t stream);

}  // namespace pelton::backend::cuda
