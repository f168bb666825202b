// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/resample.h"

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads) kernel(const Resample g) {
  let_next_start();
  inputs_ready();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= g.count) return;
  // From the last dim to the first: behind, axis 2, between, axis 1, between, axis 0, in front.
  int64_t rest = i, base = 0;
  int position[3];
  base += rest % g.between[3] * g.x_between[3];
  rest /= g.between[3];
#pragma unroll
  for (int a = 2; a >= 0; --a) {
    position[a] = static_cast<int>(rest % g.out[a]);
    rest /= g.out[a];
    base += rest % g.between[a] * g.x_between[a];
    rest /= g.between[a];
  }
  const T* const x = static_cast<const T*>(g.x) + base;
  float sum = 0;
  for (int a = 0; a < g.width[0]; ++a) {
    const ResampleTap ta = g.taps[0][position[0] * g.width[0] + a];
    float across = 0;
    for (int b = 0; b < g.width[1]; ++b) {
      const ResampleTap tb = g.taps[1][position[1] * g.width[1] + b];
      float along = 0;
      for (int c = 0; c < g.width[2]; ++c) {
        const ResampleTap tc = g.taps[2][position[2] * g.width[2] + c];
        // A weight of 0 must not bring in a NaN.
        if (tc.weight != 0 && tb.weight != 0 && ta.weight != 0)
          along +=
              tc.weight *
              to_float(x[ta.index * g.x_stride[0] + tb.index * g.x_stride[1] + tc.index * g.x_stride[2]]);
      }
      across += tb.weight * along;
    }
    sum += ta.weight * across;
  }
  static_cast<T*>(g.y)[i] = from_float<T>(sum);
}

}  // namespace

cudaError_t resample(const Resample& g, cudaStream_t stream) {
  if (g.count == 0) return cudaSuccess;
  const dim3 blocks(static_cast<unsigned>((g.count + kThreads - 1) / kThreads));
  if (g.type == Elem::f16) return launch(&kernel<__half>, blocks, dim3(kThreads), 0, stream, g);
  if (g.type == Elem::bf16) return launch(&kernel<__nv_bfloat16>, blocks, dim3(kThreads), 0, stream, g);
  return launch(&kernel<float>, blocks, dim3(kThreads), 0, stream, g);
}

}  // namespace pelton::backend::cuda
