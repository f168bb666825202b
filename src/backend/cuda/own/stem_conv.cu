// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/stem_conv.h"

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"
#include "backend/cuda/own/mma.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kPixels = 64, kThreads = 128;  // of a row of results; a warp takes 16

// Sizes in shared memory, the same for host and kernel.
struct Plan {
  int depth, depth_pitch, columns, patch;
  __host__ __device__ explicit Plan(const StemConv& g) {
    depth = (g.r * g.s * g.c + 15) / 16 * 16;
    depth_pitch = depth + 8;
    columns = (kPixels - 1) * g.stride_w + (g.s - 1) * g.dilation_w + 1;
    patch = (g.c * g.r * columns + 1 + 7) / 8 * 8;  // the last element stays 0
  }
  __host__ __device__ int bytes(int tile) const {
    return 2 * (tile * depth_pitch + patch) + 4 * depth + 4 * kPixels * (tile + 4);
  }
};

template <class T, int kTile>  // results of a place that a block yields
__global__ void __launch_bounds__(kThreads) kernel(const StemConv g) {
  extern __shared__ __align__(16) unsigned char shared[];
  const Plan plan(g);
  T* const weights = reinterpret_cast<T*>(shared);                     // [kTile, depth_pitch]
  T* const patch = weights + kTile * plan.depth_pitch;                 // [C, R, columns], a zero behind
  int* const offsets = reinterpret_cast<int*>(patch + plan.patch);     // [depth], in the patch
  float* const sums = reinterpret_cast<float*>(offsets + plan.depth);  // [kPixels, kTile + 4]
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, first_k = blockIdx.y * kTile;
  const int used = g.r * g.s * g.c;
  const T zero = from_float<T>(0.0f);
  const T* const w = static_cast<const T*>(g.w);
  for (int i = thread; i < kTile * plan.depth; i += kThreads) {
    const int k = i / plan.depth, d = i % plan.depth;
    weights[k * plan.depth_pitch + d] =
        d < used && first_k + k < g.k ? w[static_cast<int64_t>(first_k + k) * used + d] : zero;
  }
  for (int d = thread; d < plan.depth; d += kThreads) {
    // Depth counts as the weights lie: c, r, s.
    const int c = d / (g.r * g.s), r = d / g.s % g.r, s = d % g.s;
    offsets[d] = d < used ? (c * g.r + r) * plan.columns + s * g.dilation_w : plan.patch - 1;
  }
  if (thread == 0) patch[plan.patch - 1] = zero;
  let_next_start();
  inputs_ready();
  const int tiles_across = (g.q + kPixels - 1) / kPixels;
  const int64_t tiles = static_cast<int64_t>(g.n) * g.p * tiles_across;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int first_q = static_cast<int>(tile % tiles_across) * kPixels;
    const int64_t row = tile / tiles_across;
    const int p = static_cast<int>(row % g.p), image = static_cast<int>(row / g.p);
    const int top = p * g.stride_h - g.pad_h, left = first_q * g.stride_w - g.pad_w;
    const T* const x = static_cast<const T*>(g.x) + static_cast<int64_t>(image) * g.c * g.h * g.w_;
    __syncthreads();
    for (int i = thread; i < g.c * g.r * plan.columns; i += kThreads) {
      int c, r, column;
      if (g.channels_last) {
        c = i % g.c;
        column = i / g.c % plan.columns;
        r = i / g.c / plan.columns;
      } else {
        column = i % plan.columns;
        r = i / plan.columns % g.r;
        c = i / plan.columns / g.r;
      }
      const int at_h = top + r * g.dilation_h, at_w = left + column;
      const bool inside = static_cast<unsigned>(at_h) < static_cast<unsigned>(g.h) &&
                          static_cast<unsigned>(at_w) < static_cast<unsigned>(g.w_);
      const int64_t at = g.channels_last ? (static_cast<int64_t>(at_h) * g.w_ + at_w) * g.c + c
                                         : (static_cast<int64_t>(c) * g.h + at_h) * g.w_ + at_w;
      patch[(c * g.r + r) * plan.columns + column] = inside ? x[at] : zero;
    }
    __syncthreads();
    float sum[kTile / 8][4] = {};
    const T* const low = patch + (warp * 16 + lane / 4) * g.stride_w;
    const T* const high = low + 8 * g.stride_w;
    for (int d = 0; d < plan.depth; d += 16) {
      const int2 at = *reinterpret_cast<const int2*>(offsets + d + lane % 4 * 2),
                 far = *reinterpret_cast<const int2*>(offsets + d + 8 + lane % 4 * 2);
      // The zero behind the patch must not move with the pixel.
      auto pair = [&](const T* from, int2 o) {
        const T first = o.x == plan.patch - 1 ? zero : from[o.x],
                second = o.y == plan.patch - 1 ? zero : from[o.y];
        return static_cast<uint32_t>(*reinterpret_cast<const uint16_t*>(&first)) |
               static_cast<uint32_t>(*reinterpret_cast<const uint16_t*>(&second)) << 16;
      };
      const uint32_t a[4] = {pair(low, at), pair(high, at), pair(low, far), pair(high, far)};
#pragma unroll
      for (int j = 0; j < kTile / 16; ++j) {
        uint32_t b[4];
        load_matrices(
            b, weights + (j * 16 + lane / 16 * 8 + lane % 8) * plan.depth_pitch + d + lane / 8 % 2 * 8);
        multiply_add<T>(sum[2 * j], a, b[0], b[1]);
        multiply_add<T>(sum[2 * j + 1], a, b[2], b[3]);
      }
    }
#pragma unroll
    for (int j = 0; j < kTile / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sums[(warp * 16 + lane / 4 + e / 2 * 8) * (kTile + 4) + j * 8 + lane % 4 * 2 + e % 2] = sum[j][e];
    __syncwarp();
    // The warp's own 16 rows.
    for (int i = lane; i < 16 * kTile / 8; i += 32) {
      const int pixel = warp * 16 + i / (kTile / 8), column = i % (kTile / 8) * 8;
      const int q = first_q + pixel, k = first_k + column;
      if (q >= g.q || k >= g.k) continue;
      float v[8];
      load_v<8>(sums + pixel * (kTile + 4) + column, v);
      const int64_t offset = (row * g.q + q) * g.k + k;
      apply_epilogue<8>(g.epilogue, v, offset, image, k, g.k);
      store_as<8>(g.y_type, g.y, offset, v);
    }
  }
}

template <class T, int kTile>
cudaError_t start(const StemConv& g, int multiprocessors, cudaStream_t stream) {
  auto* k = &kernel<T, kTile>;
  const int bytes = Plan(g).bytes(kTile);
  const cudaError_t allowed =
      cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 160 * 1024);
  if (allowed != cudaSuccess) return allowed;
  const int64_t tiles = static_cast<int64_t>(g.n) * g.p * ((g.q + kPixels - 1) / kPixels);
  int64_t blocks = static_cast<int64_t>(multiprocessors) * 6;
  if (blocks > tiles) blocks = tiles;
  return launch(k, dim3(static_cast<unsigned>(blocks), (g.k + kTile - 1) / kTile), dim3(kThreads), bytes,
                stream, g);
}
template <class T>
cudaError_t start_any(const StemConv& g, int multiprocessors, cudaStream_t stream) {
  if (g.k <= 16) return start<T, 16>(g, multiprocessors, stream);
  if (g.k <= 32) return start<T, 32>(g, multiprocessors, stream);
  return start<T, 64>(g, multiprocessors, stream);
}

}  // namespace

bool stem_conv_takes(const StemConv& g) {
  return g.c <= 4 && g.k % 8 == 0 && g.type != Elem::f32 && Plan(g).bytes(64) <= 150 * 1024;
}
cudaError_t stem_conv(const StemConv& g, int multiprocessors, cudaStream_t stream) {
  return g.type == Elem::bf16 ? start_any<__nv_bfloat16>(g, multiprocessors, stream)
                              : start_any<__half>(g, multiprocessors, stream);
}

}  // namespace pelton::backend::cuda
