// SPDX-License-Identifier: Apache-2.0
// Rows of R by the states, by lanes of a warp or on tensor cores.
#pragma once

#include "backend/cuda/own/recurrence_block.cuh"

namespace pelton::backend::cuda {

template <class T, RecurrenceWay kWay>
__device__ inline void RecurrenceBlock<T, kWay>::multiply(int first, int last) {
  constexpr int kRows = kRecurrenceRows, kSums = kRows * kEntries;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, tiles = s.tile / kEntries;
  const int tasks = (last - first + kRows - 1) / kRows * tiles;
  for (int task = warp; task < tasks; task += kRecurrenceWarps) {
    const int row = first + task / tiles * kRows, entry = task % tiles * kEntries;
    float sum[kSums] = {};
    for (int v = lane; v < at.pitch / 4; v += 32) {
      float w[kRows][4];
      PELTON_UNROLL
      for (int i = 0; i < kRows; ++i) {
        if (kKept)
          load_v<4>(weights + static_cast<int64_t>(row + i) * at.pitch + 4 * v, w[i]);
        else
          row_of_r(row + i, v, w[i]);
      }
      PELTON_UNROLL
      for (int n = 0; n < kEntries; ++n) {
        float x[4];
        load_v<4>(static_cast<const State*>(states) + static_cast<int64_t>(entry + n) * at.pitch + 4 * v, x);
        PELTON_UNROLL
        for (int i = 0; i < kRows; ++i) {
          PELTON_UNROLL
          for (int e = 0; e < 4; ++e) sum[i * kEntries + n] += w[i][e] * x[e];
        }
      }
    }
    // Lanes halve what each of them sums up until it is one sum, then add up what is left.
    int left = kSums;
    PELTON_UNROLL
    for (int far = 16; far > 0; far /= 2) {
      const bool upper = lane & far;
      if (left > 1) {
        left /= 2;
        PELTON_UNROLL
        for (int i = 0; i < kSums / 2; ++i) {
          if (i >= left) break;
          const float mine = upper ? sum[i + left] : sum[i], other = upper ? sum[i] : sum[i + left];
          sum[i] = mine + from_lane(other, far);
        }
      } else {
        sum[0] += from_lane(sum[0], far);
      }
    }
    const int index = lane / (32 / kSums), at_row = row + index / kEntries;
    if (lane % (32 / kSums) == 0 && at_row < last)
      sums[(entry + index % kEntries) * at.all_rows + at_row] = sum[0];
  }
}

template <class T, RecurrenceWay kWay>
__device__ inline void RecurrenceBlock<T, kWay>::multiply_on_tensor_cores(int first, int last) {
  constexpr int kGroup = 4, kWord = 4 / sizeof(T), kDepth = 8 * kWord;
  const int warp = threadIdx.x / 32, r = threadIdx.x % 32 / 4, c = threadIdx.x % 4 * kWord;
  const int row_tiles = (last - first + 15) / 16, entry_tiles = s.tile / 8;
  const int groups = (entry_tiles + kGroup - 1) / kGroup, steps = at.pitch / kDepth;
  const T* const x = static_cast<const T*>(states);
  auto word = [](const T* from) { return *reinterpret_cast<const uint32_t*>(from); };
  for (int task = warp; task < row_tiles * groups * s.splits; task += kRecurrenceWarps) {
    const int row = first + task % row_tiles * 16, tile = task / row_tiles % groups * kGroup;
    const int split = task / (row_tiles * groups);
    float sum[kGroup][4] = {};
    for (int k = split * steps / s.splits; k < (split + 1) * steps / s.splits; ++k) {
      const T* const w = weights + static_cast<int64_t>(row + r) * at.pitch + kDepth * k + c;
      const T* const below = w + 8 * at.pitch;
      const uint32_t a[4] = {word(w), word(below), word(w + kDepth / 2), word(below + kDepth / 2)};
      PELTON_UNROLL
      for (int j = 0; j < kGroup; ++j) {
        if (tile + j >= entry_tiles) break;
        const T* const b = x + static_cast<int64_t>((tile + j) * 8 + r) * at.pitch + kDepth * k + c;
        multiply_add<T>(sum[j], a, word(b), word(b + kDepth / 2));
      }
    }
    PELTON_UNROLL
    for (int j = 0; j < kGroup; ++j) {
      if (tile + j >= entry_tiles) break;
      PELTON_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int at_row = row + r + e / 2 * 8, entry = (tile + j) * 8 + threadIdx.x % 4 * 2 + e % 2;
        if (at_row < last) sums[(split * s.tile + entry) * at.all_rows + at_row] = sum[j][e];
      }
    }
  }
}

}  // namespace pelton::backend::cuda
