// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/picture_sample.h"

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kThreads = 256;

// The sum over the taps around one result; a tap outside the picture has weight 0 and is not read.
template <int C>
__device__ __forceinline__ void resample(const SamplePicture& p, int x, int y, float (&sum)[C]) {
  const float* const wx = p.x.weights + static_cast<int64_t>(x) * p.x.taps;
  const float* const wy = p.y.weights + static_cast<int64_t>(y) * p.y.taps;
  const int x0 = p.x.first[x], y0 = p.y.first[y];
  const int columns = min(p.x.taps, p.width - x0), rows = min(p.y.taps, p.height - y0);
#pragma unroll
  for (int c = 0; c < C; ++c) sum[c] = 0;
  for (int j = 0; j < rows; ++j) {
    const float down = wy[j];
    if (down == 0) continue;
    const uint8_t* in = p.pixels + (static_cast<int64_t>(y0 + j) * p.width + x0) * C;
    float line[C] = {};
    for (int i = 0; i < columns; ++i, in += C) {
      const float across = wx[i];
#pragma unroll
      for (int c = 0; c < C; ++c) line[c] += across * static_cast<float>(in[c]);
    }
#pragma unroll
    for (int c = 0; c < C; ++c) sum[c] += down * line[c];
  }
}

template <class T>
__device__ __forceinline__ T finished(float v, float mean, float scale) {
  v = fminf(fmaxf(v, 0.f), 255.f);
  if constexpr (sizeof(T) == 1)
    return static_cast<T>(v + 0.5f);
  else
    return from_float<T>((v - mean) * scale);
}

// One result pixel a thread; blockIdx.y is the picture.
template <class T, int C>
__global__ void __launch_bounds__(kThreads) kernel(const SamplePicture* pictures, const SampleForm form) {
  let_next_start();
  inputs_ready();
  const int at = static_cast<int>(blockIdx.x) * kThreads + threadIdx.x, pixels = form.width * form.height;
  if (at >= pixels) return;
  const SamplePicture& p = pictures[blockIdx.y];
  const int across = at % form.width - p.left, down = at / form.width - p.top;
  const int x = p.swap ? down : across, y = p.swap ? across : down;
  float v[C];
  if (x >= 0 && x < p.x.n && y >= 0 && y < p.y.n) {
    resample<C>(p, x, y, v);
    if (p.recolour) {
      const float* const m = p.matrix;
      if constexpr (C == 3) {
        const float r = v[0], g = v[1], b = v[2];
#pragma unroll
        for (int c = 0; c < 3; ++c)
          v[c] = m[4 * c] * r + m[4 * c + 1] * g + (m[4 * c + 2] * b + m[4 * c + 3]);
      } else {
        v[0] = (m[0] + m[1] + m[2]) * v[0] + m[3];
      }
    }
  } else {
#pragma unroll
    for (int c = 0; c < C; ++c) v[c] = p.fill[c];
  }
  T* const out = static_cast<T*>(p.out);
#pragma unroll
  for (int c = 0; c < C; ++c)
    out[form.channels_first ? c * pixels + at : at * C + c] = finished<T>(v[c], form.mean[c], form.scale[c]);
}

template <class T>
cudaError_t start(const SamplePicture* pictures, int count, const SampleForm& form, cudaStream_t stream) {
  const dim3 blocks(static_cast<unsigned>((form.width * form.height + kThreads - 1) / kThreads),
                    static_cast<unsigned>(count));
  if (form.channels == 1) return launch(&kernel<T, 1>, blocks, dim3(kThreads), 0, stream, pictures, form);
  return launch(&kernel<T, 3>, blocks, dim3(kThreads), 0, stream, pictures, form);
}

}  // namespace

cudaError_t sample_pictures(const SamplePicture* pictures, int count, const SampleForm& form,
                            cudaStream_t stream) {
  if (count == 0 || form.width * form.height == 0) return cudaSuccess;
  if (form.type == SampleType::f16) return start<__half>(pictures, count, form, stream);
  if (form.type == SampleType::u8) return start<uint8_t>(pictures, count, form, stream);
  return start<float>(pictures, count, form, stream);
}

}  // namespace pelton::backend::cuda
