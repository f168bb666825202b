// SPDX-License-Identifier: Apache-2.0
// Into a block and out of it: what stays over the steps, states of other blocks, what is added to the sums.
#pragma once

#include "backend/cuda/own/recurrence_block.cuh"

namespace pelton::backend::cuda {

template <class T, RecurrenceWay kWay>
__device__ inline void RecurrenceBlock<T, kWay>::row_of_r(int row, int v, float (&out)[4]) const {
  const int unit = row % s.units;
  const bool inside = row < at.rows && unit < units;
  const int64_t of = (static_cast<int64_t>(direction) * gates + row / s.units) * h + first_unit + unit;
  const T* const from = static_cast<const T*>(p.r) + (inside ? of : 0) * h + 4 * v;
  if (inside && h % 4 == 0 && 4 * v < h) return load_v<4>(from, out);
  PELTON_UNROLL
  for (int i = 0; i < 4; ++i) out[i] = inside && 4 * v + i < h ? to_float(from[i]) : 0.0f;
}

template <class T, RecurrenceWay kWay>
__device__ inline void RecurrenceBlock<T, kWay>::start() {
  if (p.lengths && p.fault && blockIdx.y == 0)
    for (int n = threadIdx.x; n < entries; n += kRecurrenceThreads)
      if (const int64_t l = length(n); l < 0 || l > p.steps) *static_cast<volatile uint32_t*>(p.fault) = 1;
  for (int row = threadIdx.x; row < at.rows; row += kRecurrenceThreads) {
    const int gate = row / s.units, unit = row % s.units;
    const int64_t of = (static_cast<int64_t>(direction) * 2 * gates + gate) * h + first_unit + unit;
    const bool inside = p.b && unit < units;
    input_bias[row] = inside ? element(p.b, of) : 0.0f;
    state_bias[row] = inside ? element(p.b, of + static_cast<int64_t>(gates) * h) : 0.0f;
  }
  for (int i = threadIdx.x; i < 3 * s.units; i += kRecurrenceThreads) {
    const int unit = i % s.units;
    const int64_t of = (static_cast<int64_t>(direction) * 3 + i / s.units) * h + first_unit + unit;
    peepholes[i] = unit < units ? element(p.peepholes, of) : 0.0f;
  }
  if (kKept)
    for (int i = threadIdx.x; i < at.all_rows * (at.pitch / 4); i += kRecurrenceThreads) {
      float four[4];
      row_of_r(i / (at.pitch / 4), i % (at.pitch / 4), four);
      round(four);
      store_v<4>(weights + static_cast<int64_t>(i) * 4, four);
    }
  // Each thread those units that it updates.
  for (int tile = 0; tile < entries; tile += s.tile) {
    const int count = entries - tile < s.tile ? entries - tile : s.tile;
    for (int q = threadIdx.x; q < count * units; q += kRecurrenceThreads) {
      const int64_t i = place(tile + q / units, q % units);
      cells[i] = element(p.c0, i);
      publish(state_before(0) + i, element(p.h0, i), 0);
    }
  }
  if (alone) take_own(0, entries, 0);
}

template <class T, RecurrenceWay kWay>
__device__ inline void RecurrenceBlock<T, kWay>::fetch(int tile, int count, int k) {
  const int64_t columns = static_cast<int64_t>(p.directions) * gates * h;
  float* const to = ready + static_cast<int64_t>(k % 2) * s.tile * at.rows;
  for (int n = threadIdx.x / 32; n < count; n += kRecurrenceWarps) {
    const int64_t line = static_cast<int64_t>(time_of(k)) * p.batch + first_entry + tile + n;
    const float* from =
        p.projected + line * columns + static_cast<int64_t>(direction) * gates * h + first_unit;
    for (int g = 0; g < gates; ++g, from += h)
      for (int unit = threadIdx.x % 32; unit < units; unit += 32)
        copy_4(to + n * at.rows + g * s.units + unit, from + unit);
  }
  commit_copies();
}

template <class T, RecurrenceWay kWay>
__device__ inline void RecurrenceBlock<T, kWay>::take_own(int tile, int count, int k) {
  for (int q = threadIdx.x; q < count * units; q += kRecurrenceThreads) {
    const int64_t i = place(tile + q / units, q % units);
    float* const to = own + q / units * 2 * s.units + q % units;
    to[0] = cells[i];
    to[s.units] = state_before(k)[i].value;
  }
}

template <class T, RecurrenceWay kWay>
__device__ inline void RecurrenceBlock<T, kWay>::take_states(const Tagged* from, int tile, int count,
                                                             uint32_t tag) {
  constexpr int kPieces = 4;
  const int lane = threadIdx.x % 32;
  for (int n = threadIdx.x / 32; n < s.tile; n += kRecurrenceWarps) {
    const Tagged* const entry =
        from + (static_cast<int64_t>(direction) * p.batch + first_entry + tile + n) * h;
    for (int v = lane; v < at.pitch / 4; v += 32 * kPieces) {
      float four[kPieces][4] = {};
      for (bool all = n >= count; !all;) {
        all = true;
        PELTON_UNROLL
        for (int i = 0; i < kPieces; ++i) all &= take_piece(entry, v + 32 * i, tag, four[i]);
        if (!all) look_again();
      }
      PELTON_UNROLL
      for (int i = 0; i < kPieces; ++i) {
        if (v + 32 * i >= at.pitch / 4) break;
        round(four[i]);
        store_v<4>(static_cast<State*>(states) + static_cast<int64_t>(n) * at.pitch + 4 * (v + 32 * i),
                   four[i]);
      }
    }
  }
}

template <class T, RecurrenceWay kWay>
__device__ inline bool RecurrenceBlock<T, kWay>::take_piece(const Tagged* entry, int v, uint32_t tag,
                                                            float (&out)[4]) const {
  if (4 * v >= h) return true;
  if (h % 4 == 0) return take_tagged_4(entry + 4 * v, tag, out);
  bool all = true;
  for (int e = 0; e < 4 && 4 * v + e < h; ++e) all &= take_tagged(entry + 4 * v + e, tag, out[e]);
  return all;
}

template <class T, RecurrenceWay kWay>
__device__ inline void RecurrenceBlock<T, kWay>::finish() {
  for (int tile = 0; tile < entries; tile += s.tile) {
    const int count = entries - tile < s.tile ? entries - tile : s.tile;
    for (int q = threadIdx.x; q < count * units; q += kRecurrenceThreads) {
      const int64_t i = place(tile + q / units, q % units);
      if (p.last_h) static_cast<T*>(p.last_h)[i] = from_float<T>(state_before(p.steps)[i].value);
      if (p.last_c) static_cast<T*>(p.last_c)[i] = from_float<T>(cells[i]);
    }
  }
}

}  // namespace pelton::backend::cuda
