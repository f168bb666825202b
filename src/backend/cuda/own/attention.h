// SPDX-License-Identifier: Apache-2.0
// attention(q[N,H,L,D], k[N,G,M,D], v[N,G,M,E], [mask]) that never stores a score: a block of queries meets
// blocks of keys, running maxima and sums re-scale what is there. Operands are read by strides, so heads that
// lie inside a row ([N,L,H,D]) need no transpose. Products in the element type (f32: f32), all else in f32.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

struct Attention {
  const void *q = nullptr, *k = nullptr, *v = nullptr, *mask = nullptr;
  void* y = nullptr;
  float* log_sums = nullptr;  // [N,H,L] or null
  Elem type = Elem::f16;
  enum Mask : uint8_t { no_mask, boolean, added } mask_kind = no_mask;
  Elem mask_type = Elem::f32;
  int n = 0, heads = 0, groups = 0, queries = 0, keys = 0, depth = 0, width = 0;
  // Elements between images, heads and rows; a row's elements are neighbours.
  int64_t q_strides[3] = {}, k_strides[3] = {}, v_strides[3] = {}, y_strides[3] = {};
  int64_t mask_strides[4] = {};  // 0 where it broadcasts
  float scale = 1, softcap = 0;
  bool causal = false;
};

inline constexpr int kAttentionMaxHead = 256;  // depth and width
// Tensor cores for f16 and bf16, heads of a multiple of 8 up to 128 whose rows start at 16 bytes; a kernel of
// f32 products for heads of a multiple of 4; a scalar kernel for the rest.
cudaError_t attention(const Attention& problem, cudaStream_t stream);

}  // namespace pelton::backend::cuda
