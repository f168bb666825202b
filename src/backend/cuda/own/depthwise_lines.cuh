// SPDX-License-Identifier: Apache-2.0
// The kernel of depthwise_lines.h. It includes nothing but that: the .cu includes the device's primitives
// before it, a test those of an emulation.
#pragma once

#include <type_traits>

#include "backend/cuda/own/depthwise_lines.h"

namespace pelton::backend::cuda {

constexpr int kLineTaps = 9;
inline int depthwise_lines_shared_bytes(const DepthwiseLines& s) {
  return kLineThreads / s.lanes * kLineTaps * s.lanes * kLineChannels * 4;
}

// The channels of a thread as they are read, zeros where they are not.
template <class T>
struct alignas(sizeof(T) * kLineChannels) LineWord {
  uint32_t bits[sizeof(T) * kLineChannels / 4] = {};
  __device__ __forceinline__ void get(float (&to)[kLineChannels]) const {
    if constexpr (sizeof(T) == 4) {
      to[0] = __uint_as_float(bits[0]);
      to[1] = __uint_as_float(bits[1]);
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      to[0] = __uint_as_float(bits[0] << 16);
      to[1] = __uint_as_float(bits[0] & 0xffff0000u);
    } else {
      const auto pair = *reinterpret_cast<const Pack<T, 2>*>(bits);
      to[0] = to_float(pair.v[0]);
      to[1] = to_float(pair.v[1]);
    }
  }
};

// Writes each block's sums to partial[block][tap][C].
template <class T, int kStride, int kRows>
__global__ void __launch_bounds__(kLineThreads, 2)
    depthwise_lines_kernel(const DepthwiseBackward d, const DepthwiseLines s, float* partial) {
  constexpr int V = kLineChannels, kWindow = 3;
  constexpr int kPlaces = kStride == 1 ? 4 : 2;  // of a row, whose reads are on their way together
  constexpr int kCarried = kWindow - kStride, kNew = kPlaces * kStride;  // columns of x
  constexpr int kXRows = (kRows - 1) * kStride + kWindow;
  const int thread = threadIdx.x, lane = thread % s.lanes, team = thread / s.lanes,
            teams = kLineThreads / s.lanes, width = s.lanes * V;
  const int channel = blockIdx.x * width + lane * V;
  const bool idle = team >= teams || channel >= d.c;
  const int step = d.c * static_cast<int>(sizeof(T));  // bytes from a place to the next
  let_next_start();
  inputs_ready();
  float sums[kLineTaps][V] = {};
  const auto* const xs = reinterpret_cast<const unsigned char*>(static_cast<const T*>(d.other) + channel);
  const auto* const gs = reinterpret_cast<const unsigned char*>(static_cast<const T*>(d.g) + channel);
  const int groups = (d.p + kRows - 1) / kRows;  // of rows of an image
  const int64_t all_groups = static_cast<int64_t>(d.n) * groups;
  for (int64_t item = blockIdx.y; !idle && item < s.items; item += s.blocks) {
    const int64_t group = item / s.segments * teams + team;
    if (group >= all_groups) continue;
    // Alike in all threads of the block.
    const int first = static_cast<int>(item % s.segments) * s.segment;
    const int last = first + s.segment < d.q ? first + s.segment : d.q;
    const int64_t image = group / groups;
    const int p = static_cast<int>(group % groups) * kRows, top = p * kStride - d.pad_h;
    const unsigned char *x[kXRows], *g[kRows];  // where rows begin
    bool x_there[kXRows], g_there[kRows];
#pragma unroll
    for (int r = 0; r < kXRows; ++r) {
      x[r] = xs + (image * d.h + top + r) * d.w * step;
      x_there[r] = static_cast<unsigned>(top + r) < static_cast<unsigned>(d.h);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      g[r] = gs + (image * d.p + p + r) * d.q * step;
      g_there[r] = r == 0 || p + r < d.p;
    }
    float window[kXRows][kCarried + kNew][V];
    auto carry = [&](int r, int c, int column) {
      LineWord<T> word;
      if (x_there[r] && static_cast<unsigned>(column) < static_cast<unsigned>(d.w))
        word = *reinterpret_cast<const LineWord<T>*>(x[r] + column * step);
      word.get(window[r][c]);
    };
#pragma unroll
    for (int r = 0; r < kXRows; ++r)
#pragma unroll
      for (int c = 0; c < kCarried; ++c) carry(r, c, first * kStride - d.pad_w + c);
    // The places from q on. inner: all of them are there, and all columns that they see.
    auto places = [&](int q, auto inner) {
      constexpr bool kInner = decltype(inner)::value;
      const int at = q * kStride - d.pad_w + kCarried;
      LineWord<T> next[kXRows][kNew], gradient[kRows][kPlaces];
#pragma unroll
      for (int j = 0; j < kPlaces; ++j) {
        const int offset = (q + j) * step;
#pragma unroll
        for (int r = 0; r < kRows; ++r)
          if (g_there[r] && (kInner || q + j < last))
            gradient[r][j] = *reinterpret_cast<const LineWord<T>*>(g[r] + offset);
      }
#pragma unroll
      for (int c = 0; c < kNew; ++c) {
        const int offset = (at + c) * step;
        const bool there = kInner || static_cast<unsigned>(at + c) < static_cast<unsigned>(d.w);
#pragma unroll
        for (int r = 0; r < kXRows; ++r)
          if (x_there[r] && there) next[r][c] = *reinterpret_cast<const LineWord<T>*>(x[r] + offset);
      }
#pragma unroll
      for (int r = 0; r < kXRows; ++r)
#pragma unroll
        for (int c = 0; c < kNew; ++c) next[r][c].get(window[r][kCarried + c]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (!g_there[r]) continue;
#pragma unroll
        for (int j = 0; j < kPlaces; ++j) {
          if (!kInner && q + j >= last) continue;
          float v[V];
          gradient[r][j].get(v);
#pragma unroll
          for (int t = 0; t < kLineTaps; ++t)
#pragma unroll
            for (int e = 0; e < V; ++e)
              sums[t][e] =
                  fmaf(v[e], window[r * kStride + t / kWindow][j * kStride + t % kWindow][e], sums[t][e]);
        }
      }
#pragma unroll
      for (int r = 0; r < kXRows; ++r)
#pragma unroll
        for (int c = 0; c < kCarried; ++c)
#pragma unroll
          for (int e = 0; e < V; ++e) window[r][c][e] = window[r][kNew + c][e];
    };
#pragma unroll 1
    for (int q = first; q < last; q += kPlaces) {
      const int at = q * kStride - d.pad_w + kCarried;
      if (q + kPlaces <= last && at >= 0 && at + kNew <= d.w)
        places(q, std::true_type());
      else
        places(q, std::false_type());
    }
  }
  // The teams of the block, in order: [team][tap][width].
  float* const of_teams = reinterpret_cast<float*>(launched_shared());
  if (team < teams)
#pragma unroll
    for (int t = 0; t < kLineTaps; ++t)
      store_v<V>(of_teams + (team * kLineTaps + t) * width + lane * V, sums[t]);
  __syncthreads();
  for (int i = thread; i < kLineTaps * width; i += kLineThreads) {
    float sum = 0;
    for (int t = 0; t < teams; ++t) sum += of_teams[t * kLineTaps * width + i];
    const int c = blockIdx.x * width + i % width;
    if (c < d.c) partial[(static_cast<int64_t>(blockIdx.y) * kLineTaps + i / width) * d.c + c] = sum;
  }
}

}  // namespace pelton::backend::cuda
