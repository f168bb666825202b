// SPDX-License-Identifier: Apache-2.0
// Inner loops of batch norm and of the backward passes of norms, in f32. A `plane` is one channel's run of n
// elements; `rows` are pixels of C neighbouring channels. With m the mean:
//   sums of a forward pass: x - shift and its square;   of a backward pass: g and g (x - m)
//   forward: y = (x - m) a + b;   backward: dx = (g - u - (x - m) v) a
#pragma once

#include <cstdint>

#include "device/target.h"

namespace pelton::backend::cpu {

struct NormSteps {
  // Add to sums[0], sums[1]; planes in blocks whose partial sums are f32.
  void (*plane_sums)(const float* x, float shift, int64_t n, double* sums);
  void (*plane_forward)(const float* x, float* y, int64_t n, float m, float a, float b);
  void (*plane_backward_sums)(const float* g, const float* x, float m, int64_t n, double* sums);
  void (*plane_backward)(const float* g, const float* x, float* dx, int64_t n, float m, float u, float v,
                         float a);
  // Add to first[C], second[C].
  void (*row_sums)(const float* x, int64_t rows, int64_t c, const float* shift, float* first, float* second);
  void (*row_forward)(const float* x, float* y, int64_t rows, int64_t c, const float* m, const float* a,
                      const float* b);
  void (*row_backward_sums)(const float* g, const float* x, int64_t rows, int64_t c, const float* m,
                            float* first, float* second);
  void (*row_backward)(const float* g, const float* x, float* dx, int64_t rows, int64_t c, const float* m,
                       const float* u, const float* v, const float* a);
  // One normalised run of layer_norm or rms_norm: sums of s = g scale and s (x - m); scale null: 1.
  void (*tail_sums)(const float* g, const float* x, const float* scale, float m, int64_t n, float* sums);
  // dx = (s - u - (x - m) v) a; where given, dscale += g (x - m) a and dbias += g.
  void (*tail_backward)(const float* g, const float* x, const float* scale, float* dx, int64_t n, float m,
                        float u, float v, float a, float* dscale, float* dbias);
};
const NormSteps& norm_steps(device::CpuIsa isa);

}  // namespace pelton::backend::cpu
