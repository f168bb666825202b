// SPDX-License-Identifier: Apache-2.0
// The gradient of an activation on a gradient that a product has left, and what a product that applies it
// itself reads.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

struct ProductGate {
  void* d = nullptr;        // [rows, columns], changed in place
  const void* x = nullptr;  // what the activation read; of a ReLU perhaps its result
  Elem type = Elem::f16;    // of both
  int64_t rows = 0, columns = 0;
  bool gelu_tanh = false;  // else ReLU: d where x > 0, else 0
};
cudaError_t apply_gate(const ProductGate& problem, cudaStream_t stream);

// A bit for each element of x, set where x > 0, the first lowest; rows of `pitch` bits (a multiple of 8),
// bits behind the columns are 0.
cudaError_t gate_mask(const ProductGate& problem, void* mask, int64_t pitch, cudaStream_t stream);

}  // namespace pelton::backend::cuda
