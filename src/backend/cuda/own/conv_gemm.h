// SPDX-License-Identifier: Apache-2.0
// Convolution as one matrix product on tensor cores, its left side read where it lies: x[N,H,W,C] and
// w[K,R,S,C] in f16 or bf16, sums in f32, C a multiple of 8. Rows of the product are pixels of the result.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

struct ConvGemm {
  const void* x = nullptr;
  const void* w = nullptr;
  bool fixed_weights = false;  // w is never written while kernels run: it may be read early
  // [N,C], a multiple of 8 channels, in the type of x: each element of x is multiplied by its image's factor
  // of its channel, and rounded, before the product. Null: none. Kernels of one place only.
  const void* gate = nullptr;
  bool gated = false;     // there will be one: what is asked before the address is known
  void* y = nullptr;      // [N,P,Q,K]
  Elem type = Elem::f16;  // of x and w
  Elem y_type = Elem::f16;
  int n = 0, h = 0, w_ = 0, c = 0, p = 0, q = 0, k = 0, r = 1, s = 1;
  int stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1;
  Epilogue epilogue;
};
// Rows of the product, n * p * q, must stay below 2^31.

int conv_gemm_configurations();
// "64x32x128": rows, columns and depth of a block's tile.
const char* conv_gemm_name(int configuration);
// Estimate of the time by waves of blocks and depth; only its order among configurations counts.
double conv_gemm_cost(const ConvGemm& problem, int configuration, int multiprocessors);
// Whether the factors of a gated problem fit beside the tiles; the last configuration takes all up to this.
inline constexpr int kConvGemmMaxGated = 2048;  // channels
bool conv_gemm_fits(const ConvGemm& problem, int configuration);
cudaError_t conv_gemm(const ConvGemm& problem, int configuration, cudaStream_t stream);

}  // namespace pelton::backend::cuda
