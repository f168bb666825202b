// SPDX-License-Identifier: Apache-2.0
// out[o, i, k] = x[o, index[i], k], whatever the element. Negative indices count from the end; for one
// outside, the elements have all bits set, nothing outside of x is read, and *fault becomes 1 unless it is
// null.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace pelton::backend::cuda {

struct GatherSizes {
  int64_t outer, axis, count, bytes;  // `count`: indices; `bytes`: of one row below the axis
};
void launch_gather(const void* x, const void* index, bool index64, void* out, const GatherSizes& sizes,
                   uint32_t* fault, cudaStream_t stream);

}  // namespace pelton::backend::cuda
