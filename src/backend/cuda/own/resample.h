// SPDX-License-Identifier: Apache-2.0
// Separable resampling by tables of taps: each result element is the sum over the product of its taps along
// up to three axes. The axes are those that change; what lies between and around them is folded into strides.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

struct ResampleTap {
  int index;
  float weight;
};
struct Resample {
  const void* x = nullptr;
  void* y = nullptr;
  Elem type = Elem::f32;
  // Results in memory order: count = outer * out[0] * between[0] * out[1] * ... ; unused axes have size 1.
  int out[3] = {1, 1, 1};
  int64_t x_stride[3] = {};           // elements of x from one position on the axis to the next
  int64_t between[4] = {1, 1, 1, 1};  // sizes in front of, between and behind the axes
  int64_t x_between[4] = {};          // their strides in x
  const ResampleTap* taps[3] = {};    // [out[i], width[i]]
  int width[3] = {1, 1, 1};
  int64_t count = 0;
};
cudaError_t resample(const Resample& problem, cudaStream_t stream);

}  // namespace pelton::backend::cuda
