// SPDX-License-Identifier: Apache-2.0
// Squeeze-and-excite in one launch: y = x * act2(w2 act1(w1 mean(x) + b1) + b2) for x[N,P,C] (channels last,
// P places), w1[H,C], w2[C,H] (read as its transpose). A cluster of blocks takes an image, each block some of
// its channels; the blocks exchange sums through their shared memory. Where the sums of x are known already
// (own/depthwise.h), it yields the factors y[N,C] of x alone.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

struct SqueezeExcite {
  const void* x = nullptr;
  const float* part_sums = nullptr;  // [N,parts,C], of x over parts of its places; then x is not read
  int parts = 0;
  const void* w1 = nullptr;
  const void* b1 = nullptr;    // [H] or null
  const void* w2 = nullptr;    // [H,C], the second layer's weights transposed
  const void* b2 = nullptr;    // [C] or null
  bool fixed_weights = false;  // w1 and w2 are never written while kernels run: they may be read early
  void* y = nullptr;
  Elem type = Elem::f16;  // of all of them
  int n = 0, places = 0, c = 0, hidden = 0;
  EpilogueStep act1, act2;  // without operands
};

inline constexpr int kSqueezeExciteMaxHidden = 1024, kSqueezeExciteMaxChannels = 8192;
// c must be a multiple of 8 (4 in f32), within the limits above.
cudaError_t squeeze_excite(const SqueezeExcite& problem, cudaStream_t stream);

}  // namespace pelton::backend::cuda
