// SPDX-License-Identifier: Apache-2.0
// Random numbers as base/philox.h defines them, bit for bit, and dropout drawn from them. Element i of a
// result uses word i % 4 of block i / 4.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

struct RandomSource {
  const uint64_t* key = nullptr;  // seed and step of the run, in device memory; null: the next two
  uint64_t seed = 0, step = 0;
  uint64_t mix = 0;  // seed of the node, to be combined with that of the run by exclusive or
  uint64_t node = 0;
};

// y[count] = x / (1 - ratio) where a number is at least `ratio` (one element), else 0; mask (may be null): 1
// where it is.
struct Dropout {
  RandomSource random;
  const void *x = nullptr, *ratio = nullptr;
  void* y = nullptr;
  uint8_t* mask = nullptr;
  Elem type = Elem::f32, ratio_type = Elem::f32;
  int64_t count = 0;
};
cudaError_t dropout(const Dropout& problem, cudaStream_t stream);

struct RandomFill {
  RandomSource random;
  enum Kind : uint8_t { uniform, normal } kind = uniform;
  void* y = nullptr;
  Elem type = Elem::f32;
  int64_t count = 0;
  double a = 0, b = 1;  // uniform: in [a, b); normal: mean and scale
};
cudaError_t random_fill(const RandomFill& problem, cudaStream_t stream);

}  // namespace pelton::backend::cuda
