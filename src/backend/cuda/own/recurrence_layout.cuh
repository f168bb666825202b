// SPDX-License-Identifier: Apache-2.0
// How the kernel of recurrence.h lays out a block's shared memory, for each way to compute.
#pragma once

#include "backend/cuda/own/recurrence.h"

namespace pelton::backend::cuda {

constexpr int kRecurrenceThreads = 512, kRecurrenceWarps = kRecurrenceThreads / 32;
constexpr int kRecurrenceRows = 4;  // rows of R that a warp sums up at a time, but on tensor cores

__host__ __device__ constexpr bool on_tensor_cores(RecurrenceWay w) {
  return w == RecurrenceWay::tensor;
}
__host__ __device__ constexpr bool keeps_rows(RecurrenceWay w) {
  return w == RecurrenceWay::one_kept || w == RecurrenceWay::eight_kept || w == RecurrenceWay::tensor;
}
__host__ __device__ constexpr int entries_at_once(RecurrenceWay w) {
  return w == RecurrenceWay::one_kept || w == RecurrenceWay::one_read ? 1 : 8;
}

// Shared memory of a block. Offsets are in floats; states [tile, pitch] come first, of f32 or, on tensor
// cores, of the rows' type.
struct RecurrenceLayout {
  int rows, all_rows;  // gates * units; with those that are read behind them
  int pitch;           // elements from state to state and from row to row, a multiple of 4
  int64_t sums, ready, own, constants, weights;
  int64_t bytes;
  __host__ __device__ RecurrenceLayout(const Recurrence& p, const RecurrenceShares& s) {
    const bool tensor = on_tensor_cores(s.way), wide = p.type == Elem::f32;
    const int step = tensor ? 16 : kRecurrenceRows, depth = wide ? 8 : 16;
    rows = p.gates() * s.units;
    // The second phase starts at any row.
    all_rows = (rows + step - 1) / step * step + (p.phases() == 2 ? step : 0);
    // Eight rows of a tensor core's operand lie in different banks.
    pitch = tensor ? (p.hidden + depth - 1) / depth * depth + depth / 2 : (p.hidden + 3) / 4 * 4;
    sums = static_cast<int64_t>(s.tile) * pitch / (tensor && !wide ? 2 : 1);
    ready = sums + static_cast<int64_t>(s.splits) * s.tile * all_rows;  // two of [tile, rows]
    own = ready + int64_t{2} * s.tile * rows;                           // [tile, cell or state, units]
    constants = own + int64_t{2} * s.tile * s.units;
    weights = (constants + 2 * rows + 3 * s.units + 3) / 4 * 4;
    const int64_t row_bytes = static_cast<int64_t>(pitch) * (wide ? 4 : 2);
    bytes = weights * 4 + (keeps_rows(s.way) ? all_rows * row_bytes : 0);
  }
};

}  // namespace pelton::backend::cuda
