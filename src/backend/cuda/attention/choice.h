// SPDX-License-Identifier: Apache-2.0
// Our kernels or cuDNN's for one attention: found by timing where the work is worth it.
#pragma once

#include <optional>

#include "backend/cuda/attention/cudnn_attention.h"

namespace pelton::backend::cuda {

// None: ours. Problems come with sizes and strides, without addresses.
std::optional<CudnnAttention> faster_attention(const Attention& problem, bool sums);
// cuDNN's plans among which it would choose on a GPU that is not here, kept (kept.h); how many.
size_t keep_attention_plans(const Attention& problem, bool sums, const CudnnMachine& machine);
// None either in a plan that must give the same bits each time.
std::optional<CudnnAttentionBackward> faster_attention_backward(const AttentionBackward& problem);

}  // namespace pelton::backend::cuda
