// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/direct_conv.h"

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kThreads = 128;

template <class T>
__global__ void __launch_bounds__(kThreads) kernel(const DirectConv g) {
  let_next_start();
  inputs_ready();
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t places = static_cast<int64_t>(g.out[0]) * g.out[1] * g.out[2];
  if (index >= g.n * g.k * places) return;
  int k;
  int64_t place, image;
  if (g.y_channels_last) {
    k = static_cast<int>(index % g.k);
    place = index / g.k % places;
    image = index / g.k / places;
  } else {
    place = index % places;
    k = static_cast<int>(index / places % g.k);
    image = index / places / g.k;
  }
  const int o[3] = {static_cast<int>(place / g.out[2] / g.out[1]),
                    static_cast<int>(place / g.out[2] % g.out[1]), static_cast<int>(place % g.out[2])};
  const int c_each = g.c / g.groups, k_each = g.k / g.groups, group = k / k_each, first_c = group * c_each;
  const int64_t area = static_cast<int64_t>(g.in[0]) * g.in[1] * g.in[2];
  const int64_t c_step = g.x_channels_last ? 1 : area, place_step = g.x_channels_last ? g.c : 1;
  const int taps = g.kernel[0] * g.kernel[1] * g.kernel[2];
  const T* const x = static_cast<const T*>(g.x) + image * g.c * area + first_c * c_step;
  // Between the weights of neighbouring input channels.
  const int64_t w_step = g.transposed ? static_cast<int64_t>(k_each) * taps : taps;
  const T* const w = static_cast<const T*>(g.w) +
                     (g.transposed ? (static_cast<int64_t>(first_c) * k_each + k % k_each) * taps
                                   : static_cast<int64_t>(k) * c_each * taps);
  float sum[1] = {0};
  for (int tap = 0; tap < taps; ++tap) {
    const int t[3] = {tap / (g.kernel[1] * g.kernel[2]), tap / g.kernel[2] % g.kernel[1], tap % g.kernel[2]};
    int64_t at = 0;
    bool inside = true;
#pragma unroll
    for (int d = 0; d < 3; ++d) {
      int i;
      if (g.transposed) {
        const int from = o[d] + g.low[d] - t[d] * g.dilation[d];
        inside &= from >= 0 && from % g.stride[d] == 0;
        i = from / g.stride[d];
      } else {
        i = o[d] * g.stride[d] - g.low[d] + t[d] * g.dilation[d];
      }
      inside &= i >= 0 && i < g.in[d];
      at = at * g.in[d] + i;
    }
    if (!inside) continue;
    const T* from = x + at * place_step;
    for (int c = 0; c < c_each; ++c)
      sum[0] = fmaf(to_float(from[c * c_step]), to_float(w[c * w_step + tap]), sum[0]);
  }
  apply_epilogue<1>(g.epilogue, sum, index, static_cast<int>(image), k, g.k);
  store_as<1>(g.y_type, g.y, index, sum);
}

template <class T>
cudaError_t start(const DirectConv& g, cudaStream_t stream) {
  const int64_t count = static_cast<int64_t>(g.n) * g.k * g.out[0] * g.out[1] * g.out[2];
  return launch(&kernel<T>, dim3(static_cast<unsigned>((count + kThreads - 1) / kThreads)), dim3(kThreads), 0,
                stream, g);
}

}  // namespace

cudaError_t direct_conv(const DirectConv& g, cudaStream_t stream) {
  if (g.type == Elem::f16) return start<__half>(g, stream);
  if (g.type == Elem::bf16) return start<__nv_bfloat16>(g, stream);
  return start<float>(g, stream);
}

}  // namespace pelton::backend::cuda
