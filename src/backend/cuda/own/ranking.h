// SPDX-License-Identifier: Apache-2.0
// Sorting, picking and scanning along one axis. Line i of `lines` starts at i / stride * stride * size + i %
// stride; its elements lie `stride` apart. Order: numbers by value, NaN above all, equal elements by index.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace pelton::backend::cuda {

enum class Number : uint8_t { f32, f16, bf16, i32, i16, i8, u32, u16, u8, f64, i64 };

struct Lines {
  int64_t size = 0, stride = 1, count = 0;
};

// The first `keep` of each sorted line.
struct SortLines {
  const void* x = nullptr;
  void* values = nullptr;      // lines of `keep` elements with the same stride
  int64_t* indices = nullptr;  // likewise; may be null
  void* scratch = nullptr;     // sort_scratch_bytes()
  Number type = Number::f32;   // of 32 bits or less
  bool descending = false;
  Lines lines;
  int64_t keep = 0;
};
int64_t sort_scratch_bytes(const SortLines& problem);
cudaError_t sort_lines(const SortLines& problem, cudaStream_t stream);

// Index of the largest (smallest) element of each line; NaN wins, then the first (last) of equal ones.
struct PickLines {
  const void* x = nullptr;
  int64_t* index = nullptr;
  Number type = Number::f32;
  bool max = true, last = false;
  Lines lines;
};
cudaError_t pick_lines(const PickLines& problem, cudaStream_t stream);

// Running sums or products: floats in f64, integers in 64 bits, wrapped to the type.
struct ScanLines {
  const void* x = nullptr;
  void* y = nullptr;
  Number type = Number::f32;
  bool product = false, exclusive = false, reverse = false;
  Lines lines;
};
cudaError_t scan_lines(const ScanLines& problem, cudaStream_t stream);

}  // namespace pelton::backend::cuda
