// SPDX-License-Identifier: Apache-2.0
// Elements read and slices written at computed places. Scattered slices are put in the order of their targets
// first (stable), so that sums are made in one order: the same bits each time.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

inline constexpr int kIndexRank = 8;

// y[i] = x at i with the coordinate of `axis` replaced by index[i]; negative ones count from the end.
struct GatherElements {
  const void *x = nullptr, *index = nullptr;
  void* y = nullptr;
  bool index64 = true;
  int element_bytes = 4, rank = 0, axis = 0;
  int64_t dims[kIndexRank] = {};     // of the index and of y
  int64_t strides[kIndexRank] = {};  // of x
  int64_t size = 0;                  // of x along the axis
  uint32_t* fault = nullptr;         // see device/fault.h
};
cudaError_t gather_elements(const GatherElements& problem, cudaStream_t stream);

// y = data, with updates[count][slice] brought to slices of y. A target comes from a tuple of indices over
// the first `length` axes of y, or (elements) from the coordinates of the update with that of `axis`
// replaced.
struct Scatter {
  const void *data = nullptr, *index = nullptr, *updates = nullptr;  // data null: zeros
  void *y = nullptr, *scratch = nullptr;
  bool index64 = true, add = false;  // else the last update of a place wins
  Elem type = Elem::f32;             // add: of the elements
  int element_bytes = 4;
  int64_t count = 0, slice = 0;  // updates, and elements of each
  int64_t y_count = 0;           // elements of y
  int length = 1;
  int64_t sizes[kIndexRank] = {};    // tuples: of y's first axes; elements: of y
  int64_t strides[kIndexRank] = {};  // of y in slices
  bool elements = false;
  int rank = 0, axis = 0;
  int64_t dims[kIndexRank] = {};  // elements: of the updates
  uint32_t* fault = nullptr;
};
int64_t scatter_scratch_bytes(const Scatter& problem);
cudaError_t scatter(const Scatter& problem, cudaStream_t stream);

}  // namespace pelton::backend::cuda
