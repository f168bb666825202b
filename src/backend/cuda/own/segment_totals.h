// SPDX-License-Identifier: Apache-2.0
// Totals of stretches of partial sums.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

namespace pelton::backend::cuda {

// *to[s] = partial[first[s]] + ... + partial[first[s + 1] - 1], f32 in device memory, in one order. `first`
// has one number more than `to`.
cudaError_t segment_totals(const float* partial, const std::vector<int>& first, const std::vector<float*>& to,
                           cudaStream_t stream);

}  // namespace pelton::backend::cuda
