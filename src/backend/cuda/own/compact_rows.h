// SPDX-License-Identifier: Apache-2.0
// y[rows, columns], dense, from rows that lie `pitch` elements apart.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace pelton::backend::cuda {

struct CompactRows {
  const void* x = nullptr;  // 16-byte aligned, as y is
  void* y = nullptr;
  int bytes = 2;                             // of an element: 2 or 4
  int64_t rows = 0, columns = 0, pitch = 0;  // pitch * bytes is a multiple of 16; rows * columns < 2^31
};
cudaError_t compact_rows(const CompactRows& problem, cudaStream_t stream);

}  // namespace pelton::backend::cuda
