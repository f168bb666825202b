// SPDX-License-Identifier: Apache-2.0
// Convolution of few channels (the first layer of an image network) on tensor cores: x[N,C,H,W] or [N,H,W,C]
// with C up to 4, results channels last. A block keeps the weights and a patch of the image in shared memory.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

struct StemConv {
  const void* x = nullptr;
  const void* w = nullptr;  // [K,C,R,S], or packed: rows and pitch as below, zeros where nothing is
  bool packed = false;
  void* y = nullptr;                          // [N,P,Q,K]
  Elem type = Elem::f16, y_type = Elem::f16;  // type: f16 or bf16
  bool channels_last = false;                 // of x
  int n = 0, h = 0, w_ = 0, c = 0, p = 0, q = 0, k = 0, r = 1, s = 1;
  int stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1;
  Epilogue epilogue;
};

// Whether the patch and the weights fit; k must be a multiple of 8.
bool stem_conv_takes(const StemConv& problem);
// Of packed weights: a row a result, c * r * s elements in front of its pitch.
struct StemWeights {
  int rows, pitch;
};
StemWeights stem_conv_weights(const StemConv& problem);
cudaError_t stem_conv(const StemConv& problem, int multiprocessors, cudaStream_t stream);

}  // namespace pelton::backend::cuda
