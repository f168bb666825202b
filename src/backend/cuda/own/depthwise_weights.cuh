// SPDX-License-Identifier: Apache-2.0
// The gradient of depthwise weights from shared memory. It includes nothing but its own header: the .cu
// includes the device's primitives before it, a test those of an emulation.
#pragma once

#include "backend/cuda/own/depthwise_weights.h"

namespace pelton::backend::cuda {

// Two buffers of a stage lie in shared memory: rows of x with the columns that the windows see, zeros where
// there are none, and rows of g. A warp's or half a warp's threads have one word of each place: V channels.
struct DepthwiseTile {
  int bytes, columns, x_rows;  // of a place; of a row of x; rows of x of one image
  int x_bytes, g_bytes, stage_bytes, sums_bytes;
  __host__ __device__ DepthwiseTile(const DepthwiseBackward& d, const DepthwiseShares& s) {
    bytes = s.lanes * 4;
    columns = (d.q - 1) * d.stride_w + d.s;
    x_rows = (s.band - 1) * d.stride_h + d.r;
    x_bytes = s.images * x_rows * columns * bytes;
    g_bytes = s.images * s.band * d.q * bytes;
    stage_bytes = x_bytes + g_bytes;
    // Of each team, and of the block.
    sums_bytes = (kDepthwiseThreads / s.lanes + 1) * d.r * d.s * bytes * (d.type == Elem::f32 ? 1 : 2);
  }
  __host__ __device__ int shared_bytes() const {
    return 2 * stage_bytes > sums_bytes ? 2 * stage_bytes : sums_bytes;
  }
};

// Blocks [of a tile of channels, of stages]. In a cluster they add up their sums, else each writes them to
// partial[block][tap][C].
template <class T, int V, int kWindow, int kStride, bool kCluster>
__global__ void __launch_bounds__(kDepthwiseThreads)
    depthwise_weights_kernel(const DepthwiseBackward d, const DepthwiseShares s, float* partial) {
  constexpr int kThreads = kDepthwiseThreads, kTaps = kWindow * kWindow, kChunk = 16 / sizeof(T);
  const DepthwiseTile tile(d, s);
  const int thread = threadIdx.x, lane = thread % s.lanes, team = thread / s.lanes,
            teams = kThreads / s.lanes;
  const int width = s.lanes * V, first_channel = blockIdx.x * width;
  unsigned char* const memory = launched_shared();
  // Columns that are not there are zeros, in both buffers, for good.
  for (int i = thread * 16; i < 2 * tile.stage_bytes; i += kThreads * 16) {
    const int in_stage = i % tile.stage_bytes, column = in_stage / tile.bytes % tile.columns - d.pad_w;
    if (in_stage < tile.x_bytes && static_cast<unsigned>(column) >= static_cast<unsigned>(d.w))
      *reinterpret_cast<Pack<float, 4>*>(memory + i) = Pack<float, 4>{{0, 0, 0, 0}};
  }
  let_next_start();
  inputs_ready();
  const int chunks = tile.bytes / 16, chunk = thread % chunks, start = thread / chunks,
            step = kThreads / chunks;
  const bool there = first_channel + chunk * kChunk < d.c;  // all chunks are whole
  const T* const x = static_cast<const T*>(d.other) + first_channel + chunk * kChunk;
  const T* const g = static_cast<const T*>(d.g) + first_channel + chunk * kChunk;
  // A stage: `images` images, `band` rows of g of each.
  auto load = [&](int stage, int buffer) {
    if (stage < s.stages) {
      unsigned char* const xs = memory + buffer * tile.stage_bytes + chunk * 16;
      unsigned char* const gs = xs + tile.x_bytes;
      const int first_image = stage / s.bands * s.images, first_p = stage % s.bands * s.band;
      const int first_row = first_p * kStride - d.pad_h;
      for (int i = start; i < s.images * tile.x_rows * d.w; i += step) {
        const int line = i / d.w, column = i - line * d.w, image = line / tile.x_rows;
        const int row = first_row + line - image * tile.x_rows;
        const bool inside = there && first_image + image < d.n &&
                            static_cast<unsigned>(row) < static_cast<unsigned>(d.h) &&
                            column + d.pad_w < tile.columns;
        const int64_t from = ((static_cast<int64_t>(first_image + image) * d.h + row) * d.w + column) * d.c;
        if (column + d.pad_w < tile.columns)
          copy_16(xs + (line * tile.columns + column + d.pad_w) * tile.bytes, inside ? x + from : d.other,
                  inside);
      }
      for (int i = start; i < s.images * s.band * d.q; i += step) {
        const int line = i / d.q, column = i - line * d.q, image = line / s.band;
        const int p = first_p + line - image * s.band;
        const bool inside = there && first_image + image < d.n && p < d.p;
        const int64_t from = ((static_cast<int64_t>(first_image + image) * d.p + p) * d.q + column) * d.c;
        copy_16(gs + i * tile.bytes, inside ? g + from : d.g, inside);
      }
    }
    commit_copies();
  };
  float sums[kTaps][V] = {};
  const int segments = (d.q + s.segment - 1) / s.segment, units = s.images * s.band * segments;
  load(blockIdx.y, 0);
  int buffer = 0;
  for (int stage = blockIdx.y; stage < s.stages; stage += s.blocks, buffer ^= 1) {
    load(stage + s.blocks, buffer ^ 1);
    wait_copies<1>();
    __syncthreads();
    const unsigned char* const xs = memory + buffer * tile.stage_bytes + lane * 4;
    const unsigned char* const gs = xs + tile.x_bytes;
    for (int unit = team; unit < units; unit += teams) {
      const int line = unit / segments, first = (unit - line * segments) * s.segment;
      const int last = first + s.segment < d.q ? first + s.segment : d.q;
      const int image = line / s.band, p = line - image * s.band;
      const unsigned char* const rows = xs + (image * tile.x_rows + p * kStride) * tile.columns * tile.bytes;
      const unsigned char* const gradient = gs + line * d.q * tile.bytes;
      float window[kWindow][kWindow][V];  // [row][column modulo kWindow]
      auto column = [&](int slot, int at) {
#pragma unroll
        for (int r = 0; r < kWindow; ++r)
          load_v<V>(reinterpret_cast<const T*>(rows + (r * tile.columns + at) * tile.bytes), window[r][slot]);
      };
      if (kStride == 1) {
#pragma unroll
        for (int c = 0; c + 1 < kWindow; ++c) column(c, first + c);
      }
      for (int q0 = first; q0 < last; q0 += kWindow) {
#pragma unroll
        for (int j = 0; j < kWindow; ++j) {
          const int q = q0 + j;
          if (q < last) {
            if (kStride == 1) {
              column((j + kWindow - 1) % kWindow, q + kWindow - 1);
            } else {
#pragma unroll
              for (int c = 0; c < kWindow; ++c) column((j + c) % kWindow, q * kStride + c);
            }
            float v[V];
            load_v<V>(reinterpret_cast<const T*>(gradient + q * tile.bytes), v);
#pragma unroll
            for (int r = 0; r < kWindow; ++r)
#pragma unroll
              for (int c = 0; c < kWindow; ++c)
#pragma unroll
                for (int e = 0; e < V; ++e)
                  sums[r * kWindow + c][e] =
                      fmaf(v[e], window[r][(j + c) % kWindow][e], sums[r * kWindow + c][e]);
          }
        }
      }
    }
    __syncthreads();  // the buffer is filled again by the next turn's load
  }
  wait_copies<0>();  // of stages that are not there: nothing
  // The teams of the block, in order: [team][tap][width], behind them [tap][width] of the block.
  float* const of_teams = reinterpret_cast<float*>(memory);
  float* const of_block = of_teams + teams * kTaps * width;
#pragma unroll
  for (int t = 0; t < kTaps; ++t) store_v<V>(of_teams + (team * kTaps + t) * width + lane * V, sums[t]);
  __syncthreads();
  for (int i = thread; i < kTaps * width; i += kThreads) {
    float sum = 0;
    for (int t = 0; t < teams; ++t) sum += of_teams[t * kTaps * width + i];
    const int c = first_channel + i % width;
    if (kCluster)
      of_block[i] = sum;
    else if (c < d.c)
      partial[(static_cast<int64_t>(blockIdx.y) * kTaps + i / width) * d.c + c] = sum;
  }
  if (!kCluster) return;
  cluster_arrive();
  cluster_wait();
  for (int i = cluster_rank() * kThreads + thread; i < kTaps * width; i += s.blocks * kThreads) {
    float sum[1] = {0};
#pragma unroll 8
    for (int b = 0; b < s.blocks; ++b) sum[0] += in_block(of_block, b)[i];
    const int c = first_channel + i % width;
    if (c < d.c) store_as<1>(d.result_type, d.result, static_cast<int64_t>(c) * kTaps + i / width, sum);
  }
  cluster_arrive();  // no block ends while another reads its sums
  cluster_wait();
}

}  // namespace pelton::backend::cuda
