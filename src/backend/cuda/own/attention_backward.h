// SPDX-License-Identifier: Apache-2.0
// The gradient of attention on tensor cores, from its result and the log-sum-exp of its rows. Scores are
// computed again, block by block, and never stored; every sum has one order, so the bits are the same each
// time.
#pragma once

#include "backend/cuda/own/attention.h"

namespace pelton::backend::cuda {

struct AttentionBackward {
  Attention forward;  // q, k, v, mask and sizes; y: the result (read only), log_sums: known
  const void* g = nullptr;
  int64_t g_strides[3] = {}, dq_strides[3] = {}, dk_strides[3] = {}, dv_strides[3] = {};
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;
  float* row_sums = nullptr;  // scratch: a number a query and head
};
// f16 and bf16, depth and width multiples of 8 up to 128, strides multiples of 8, operands at multiples of 16
// bytes.
inline constexpr int kAttentionBackwardMaxHead = 128;
cudaError_t attention_backward(const AttentionBackward& problem, cudaStream_t stream);

}  // namespace pelton::backend::cuda
