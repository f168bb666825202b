// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/stem_conv.h"

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"
#include "backend/cuda/own/mma.cuh"

namespace pelton::backend::cuda {
namespace {

// A block yields kRows rows of kPixels places of a time; a warp half a row.
constexpr int kPixels = 64, kRows = 4, kThreads = 256, kWarps = kThreads / 32;

// Sizes in shared memory, the same for host and kernel.
struct Plan {
  int depth, depth_pitch, columns, rows, patch;
  __host__ __device__ explicit Plan(const StemConv& g) {
    depth = (g.r * g.s * g.c + 15) / 16 * 16;
    depth_pitch = depth + 8;
    // One more in front, so that pairs of columns start at even addresses.
    columns = ((kPixels - 1) * g.stride_w + (g.s - 1) * g.dilation_w + 2 + 1) / 2 * 2;
    rows = (kRows - 1) * g.stride_h + (g.r - 1) * g.dilation_h + 1;
    patch = (g.c * rows * columns + 7) / 8 * 8;
  }
  __host__ __device__ int bytes(int tile) const {
    return 2 * (tile * depth_pitch + patch) + 4 * depth + 4 * kWarps * 16 * (tile + 4);
  }
};

template <class T, int kTile>  // results of a place that a block yields
__global__ void __launch_bounds__(kThreads) kernel(const StemConv g) {
  extern __shared__ __align__(16) unsigned char shared[];
  const Plan plan(g);
  T* const weights = reinterpret_cast<T*>(shared);                     // [kTile, depth_pitch]
  T* const patch = weights + kTile * plan.depth_pitch;                 // [C, rows, columns]
  int* const offsets = reinterpret_cast<int*>(patch + plan.patch);     // [depth], in the patch
  float* const sums = reinterpret_cast<float*>(offsets + plan.depth);  // [kWarps, 16, kTile + 4]
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, first_k = blockIdx.y * kTile;
  const int used = g.r * g.s * g.c;
  const T zero = from_float<T>(0.0f);
  const T* const w = static_cast<const T*>(g.w);
  // Packed weights are constant; others may come from the kernel in front.
  if (!g.packed) inputs_ready();
  if (g.packed) {
    const auto* from =
        reinterpret_cast<const Pack<T, 8>*>(w + static_cast<int64_t>(first_k) * plan.depth_pitch);
#pragma unroll 4
    for (int i = thread; i < kTile * plan.depth_pitch / 8; i += kThreads)
      reinterpret_cast<Pack<T, 8>*>(weights)[i] = from[i];
  } else {
    for (int i = thread; i < kTile * plan.depth; i += kThreads) {
      const int k = i / plan.depth, d = i % plan.depth;
      weights[k * plan.depth_pitch + d] =
          d < used && first_k + k < g.k ? w[static_cast<int64_t>(first_k + k) * used + d] : zero;
    }
  }
  for (int d = thread; d < plan.depth; d += kThreads) {
    // Depth counts as the weights lie: c, r, s. Behind the end: none.
    const int c = d / (g.r * g.s), r = d / g.s % g.r, s = d % g.s;
    offsets[d] = d < used ? (c * plan.rows + r * g.dilation_h) * plan.columns + s * g.dilation_w : -1;
  }
  let_next_start();
  inputs_ready();
  const int tiles_across = (g.q + kPixels - 1) / kPixels, tiles_down = (g.p + kRows - 1) / kRows;
  const int tiles = g.n * tiles_down * tiles_across;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int first_q = tile % tiles_across * kPixels, first_p = tile / tiles_across % tiles_down * kRows,
              image = tile / tiles_across / tiles_down;
    const int top = first_p * g.stride_h - g.pad_h;
    int left = first_q * g.stride_w - g.pad_w;
    const int shift = left & 1;  // the patch starts at an even column
    left -= shift;
    const T* const x = static_cast<const T*>(g.x) + static_cast<int64_t>(image) * g.c * g.h * g.w_;
    __syncthreads();
    if (!g.channels_last && g.w_ % 2 == 0) {
      // Pairs of columns, eight loads of a thread on their way at a time.
      const unsigned across = plan.columns / 2, pairs = g.c * plan.rows * across;
      for (unsigned first = thread; first < pairs; first += 8 * kThreads) {
        uint32_t pair[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const unsigned at = first + i * kThreads, line = at / across;
          const int column = static_cast<int>(at - line * across) * 2;
          const int c = static_cast<int>(line / plan.rows),
                    at_h = top + static_cast<int>(line) - c * plan.rows;
          pair[i] = 0;
          if (at < pairs && static_cast<unsigned>(at_h) < static_cast<unsigned>(g.h) &&
              static_cast<unsigned>(left + column) < static_cast<unsigned>(g.w_))
            pair[i] = *reinterpret_cast<const uint32_t*>(x + (static_cast<int64_t>(c) * g.h + at_h) * g.w_ +
                                                         left + column);
        }
#pragma unroll
        for (int i = 0; i < 8; ++i)
          if (first + i * kThreads < pairs)
            reinterpret_cast<uint32_t*>(patch)[first + i * kThreads] = pair[i];
      }
    } else {
      const int64_t c_step = g.channels_last ? 1 : static_cast<int64_t>(g.h) * g.w_,
                    w_step = g.channels_last ? g.c : 1;
      for (int line = warp; line < g.c * plan.rows; line += kWarps) {
        const int c = line / plan.rows, at_h = top + line - c * plan.rows;
        const bool row_inside = static_cast<unsigned>(at_h) < static_cast<unsigned>(g.h);
        const T* const from = x + c * c_step + (static_cast<int64_t>(at_h) * g.w_ + left) * w_step;
#pragma unroll 4
        for (int column = lane; column < plan.columns; column += 32)
          patch[line * plan.columns + column] =
              row_inside && static_cast<unsigned>(left + column) < static_cast<unsigned>(g.w_)
                  ? from[column * w_step]
                  : zero;
      }
    }
    __syncthreads();
    // Two warps a row, each 32 places as two products of 16.
    const int row = warp / 2, first_pixel = warp % 2 * 32;
    const T* at_pixel[2][2];
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        at_pixel[m][half] = patch + row * g.stride_h * plan.columns + shift +
                            (first_pixel + m * 16 + half * 8 + lane / 4) * g.stride_w;
    float sum[2][kTile / 8][4] = {};
    for (int d = 0; d < plan.depth; d += 16) {
      const int2 at = *reinterpret_cast<const int2*>(offsets + d + lane % 4 * 2),
                 far = *reinterpret_cast<const int2*>(offsets + d + 8 + lane % 4 * 2);
      auto pair = [&](const T* from, int2 o) {
        const T first = o.x < 0 ? zero : from[o.x], second = o.y < 0 ? zero : from[o.y];
        return static_cast<uint32_t>(*reinterpret_cast<const uint16_t*>(&first)) |
               static_cast<uint32_t>(*reinterpret_cast<const uint16_t*>(&second)) << 16;
      };
      uint32_t a[2][4];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        a[m][0] = pair(at_pixel[m][0], at);
        a[m][1] = pair(at_pixel[m][1], at);
        a[m][2] = pair(at_pixel[m][0], far);
        a[m][3] = pair(at_pixel[m][1], far);
      }
#pragma unroll
      for (int j = 0; j < kTile / 16; ++j) {
        uint32_t b[4];
        load_matrices(
            b, weights + (j * 16 + lane / 16 * 8 + lane % 8) * plan.depth_pitch + d + lane / 8 % 2 * 8);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          multiply_add<T>(sum[m][2 * j], a[m], b[0], b[1]);
          multiply_add<T>(sum[m][2 * j + 1], a[m], b[2], b[3]);
        }
      }
    }
    float* const own = sums + warp * 16 * (kTile + 4);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      __syncwarp();
#pragma unroll
      for (int j = 0; j < kTile / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          own[(lane / 4 + e / 2 * 8) * (kTile + 4) + j * 8 + lane % 4 * 2 + e % 2] = sum[m][j][e];
      __syncwarp();
      for (int i = lane; i < 16 * kTile / 8; i += 32) {
        const int pixel = i / (kTile / 8), column = i % (kTile / 8) * 8;
        const int q = first_q + first_pixel + m * 16 + pixel, p = first_p + row, k = first_k + column;
        if (q >= g.q || p >= g.p || k >= g.k) continue;
        float v[8];
        load_v<8>(own + pixel * (kTile + 4) + column, v);
        const int64_t offset = ((static_cast<int64_t>(image) * g.p + p) * g.q + q) * g.k + k;
        apply_epilogue<8>(g.epilogue, v, offset, image, k, g.k);
        store_as<8>(g.y_type, g.y, offset, v);
      }
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
  const int64_t tiles =
      static_cast<int64_t>(g.n) * ((g.p + kRows - 1) / kRows) * ((g.q + kPixels - 1) / kPixels);
  int64_t blocks =
      static_cast<int64_t>(multiprocessors) * (bytes < 110 * 1024 ? 227 * 1024 / (bytes + 1024) : 1);
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

StemWeights stem_conv_weights(const StemConv& g) {
  const int tile = g.k <= 16 ? 16 : g.k <= 32 ? 32 : 64;
  return {(g.k + tile - 1) / tile * tile, Plan(g).depth_pitch};
}
bool stem_conv_takes(const StemConv& g) {
  // First what is far from fitting: the plan's sizes are ints.
  auto reach = [](int64_t last, int stride, int taps, int dilation) {
    return last * stride + static_cast<int64_t>(taps - 1) * dilation;
  };
  if (static_cast<int64_t>(g.r) * g.s > 65536 || reach(kRows, g.stride_h, g.r, g.dilation_h) > 65536 ||
      reach(kPixels, g.stride_w, g.s, g.dilation_w) > 65536 ||
      reach(kRows - 1, g.stride_h, g.r, g.dilation_h) * reach(kPixels - 1, g.stride_w, g.s, g.dilation_w) >
          65536)
    return false;
  return g.c <= 4 && g.k % 8 == 0 && g.type != Elem::f32 && Plan(g).bytes(64) <= 150 * 1024;
}
cudaError_t stem_conv(const StemConv& g, int multiprocessors, cudaStream_t stream) {
  return g.type == Elem::bf16 ? start_any<__nv_bfloat16>(g, multiprocessors, stream)
                              : start_any<__half>(g, multiprocessors, stream);
}

}  // namespace pelton::backend::cuda
