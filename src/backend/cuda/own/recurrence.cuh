// SPDX-License-Identifier: Apache-2.0
// The kernel of recurrence.h. It includes nothing but its own headers: the .cu includes the device's
// primitives (device.cuh, launch.cuh, cluster.cuh, mma.cuh, together.cuh) before it, a test those of an
// emulation.
#pragma once

#include <type_traits>

#include "backend/cuda/own/recurrence.h"

#ifdef __CUDACC__
#define PELTON_UNROLL _Pragma("unroll")
#else
#define PELTON_UNROLL
#endif

namespace pelton::backend::cuda {

constexpr int kRecurrenceThreads = 256, kRecurrenceWarps = kRecurrenceThreads / 32;
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
  int ready_pitch;     // of an entry: what is added to its sums, then its cells and states
  int64_t sums, ready, constants, weights;
  int64_t bytes;
  __host__ __device__ RecurrenceLayout(const Recurrence& p, const RecurrenceShares& s) {
    const bool tensor = on_tensor_cores(s.way);
    const int step = tensor ? 16 : kRecurrenceRows;
    rows = p.gates() * s.units;
    // The second phase starts at any row.
    all_rows = (rows + step - 1) / step * step + (p.phases() == 2 ? step : 0);
    // Eight rows of a tensor core's operand lie in different banks.
    pitch = tensor ? (p.hidden + 15) / 16 * 16 + 8 : (p.hidden + 3) / 4 * 4;
    ready_pitch = rows + 2 * s.units;
    sums = static_cast<int64_t>(s.tile) * pitch / (tensor ? 2 : 1);
    ready = sums + static_cast<int64_t>(s.splits) * s.tile * all_rows;
    constants = ready + static_cast<int64_t>(s.tile) * ready_pitch;
    weights = (constants + 2 * rows + 3 * s.units + 3) / 4 * 4;
    const int64_t row_bytes = static_cast<int64_t>(pitch) * (p.type == Elem::f32 ? 4 : 2);
    bytes = weights * 4 + (keeps_rows(s.way) ? all_rows * row_bytes : 0);
  }
};

// Scratch after the counters, in floats: states before and after a step, cells (of gru: update gates) and
// reset states, [D, N, H] each.
constexpr int kRecurrenceCounters = 1024;

__device__ __noinline__ inline float cell_function(const CellFunction& f, float x) {
  using F = CellFunction;
  switch (f.code) {
    case F::relu:
      return x < 0 ? 0.0f : x;
    case F::tanh:
      return tanhf(x);
    case F::sigmoid:
      return 1.0f / (1.0f + expf(-x));
    case F::affine:
      return f.alpha * x + f.beta;
    case F::leaky_relu:
      return x < 0 ? f.alpha * x : x;
    case F::thresholded_relu:
      return x > f.alpha ? x : 0.0f;
    case F::scaled_tanh:
      return f.alpha * tanhf(f.beta * x);
    case F::hard_sigmoid: {
      const float v = f.alpha * x + f.beta;
      return v < 0 ? 0.0f : v > 1 ? 1.0f : v;
    }
    case F::elu:
      return x < 0 ? f.alpha * expm1f(x) : x;
    case F::softsign:
      return x / (1.0f + fabsf(x));
    case F::softplus:
      return x > 20 ? x : log1pf(expf(x));
  }
  return x;
}

// One block: `s.units` units of one direction for the entries of one group.
template <class T, RecurrenceWay kWay>
class RecurrenceBlock {
  static constexpr bool kKept = keeps_rows(kWay), kTensor = on_tensor_cores(kWay);
  static constexpr int kEntries = entries_at_once(kWay);
  using State = std::conditional_t<kTensor, T, float>;

 public:
  __device__ RecurrenceBlock(const Recurrence& problem, const RecurrenceShares& shares, unsigned char* memory)
      : p(problem), s(shares), at(problem, shares), gates(problem.gates()), h(problem.hidden) {
    direction = blockIdx.x / s.groups;
    first_entry = blockIdx.x % s.groups * s.entries;
    entries = p.batch - first_entry < s.entries ? p.batch - first_entry : s.entries;
    first_unit = blockIdx.y * s.units;
    units = h - first_unit < s.units ? h - first_unit : s.units;
    backwards = direction == 1 || p.reverse;
    states = memory;
    float* const floats = reinterpret_cast<float*>(memory);
    sums = floats + at.sums;
    ready = floats + at.ready;
    input_bias = floats + at.constants;
    state_bias = input_bias + at.rows;
    peepholes = state_bias + at.rows;
    weights = reinterpret_cast<T*>(floats + at.weights);
    each = static_cast<int64_t>(p.directions) * p.batch * h;
    exchanged = reinterpret_cast<float*>(static_cast<unsigned*>(p.scratch) + kRecurrenceCounters);
    cells = exchanged + 2 * each;
    reset = exchanged + 3 * each;
  }

  __device__ void run(BlocksBarrier barrier) {
    start();
    __syncthreads();
    barrier.arrive();
    for (int k = 0; k < p.steps; ++k) {
      const int t = backwards ? p.steps - 1 - k : k;
      for (int phase = 0; phase < p.phases(); ++phase) {
        // The reset gru: update and reset gates, then the candidate.
        const int first = phase * 2 * s.units, last = p.phases() == 2 && phase == 0 ? 2 * s.units : at.rows;
        for (int tile = 0; tile < entries; tile += s.tile) {
          const int count = entries - tile < s.tile ? entries - tile : s.tile;
          make_ready(tile, count, t, state_before(k));
          if (tile == 0) barrier.wait();
          take_states(phase == 0 ? state_before(k) : reset, tile, count);
          __syncthreads();
          if constexpr (kTensor)
            multiply_on_tensor_cores(first, last);
          else
            multiply(first, last);
          __syncthreads();
          for (int q = threadIdx.x; q < count * units; q += kRecurrenceThreads)
            update(tile, q / units, q % units, t, phase, state_before(k + 1));
          __syncthreads();
        }
        barrier.arrive();
      }
    }
    finish(state_before(p.steps));
  }

 private:
  __device__ float* state_before(int k) const { return exchanged + k % 2 * each; }
  __device__ int64_t place(int entry, int unit) const {  // in [D, N, H]
    return (static_cast<int64_t>(direction) * p.batch + first_entry + entry) * h + first_unit + unit;
  }
  static __device__ float element(const void* from, int64_t i) {
    return from ? to_float(static_cast<const T*>(from)[i]) : 0.0f;
  }
  __device__ bool alive(int entry, int t) const {
    if (!p.lengths) return true;
    const int n = first_entry + entry;
    return t < (p.length_bytes == 8 ? static_cast<const int64_t*>(p.lengths)[n]
                                    : static_cast<int64_t>(static_cast<const int32_t*>(p.lengths)[n]));
  }
  // Elements 4v.. of the row of R that is `row` here; 0 behind its end.
  __device__ void row_of_r(int row, int v, float (&out)[4]) const {
    const int unit = row % s.units;
    const bool inside = row < at.rows && unit < units;
    const int64_t of = (static_cast<int64_t>(direction) * gates + row / s.units) * h + first_unit + unit;
    const T* const from = static_cast<const T*>(p.r) + (inside ? of : 0) * h + 4 * v;
    if (inside && h % 4 == 0 && 4 * v < h) return load_v<4>(from, out);
    PELTON_UNROLL
    for (int i = 0; i < 4; ++i) out[i] = inside && 4 * v + i < h ? to_float(from[i]) : 0.0f;
  }

  __device__ void start() {
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
        store_v<4>(weights + static_cast<int64_t>(i) * 4, four);
      }
    // Each thread those units that it updates.
    for (int tile = 0; tile < entries; tile += s.tile) {
      const int count = entries - tile < s.tile ? entries - tile : s.tile;
      for (int q = threadIdx.x; q < count * units; q += kRecurrenceThreads) {
        const int64_t i = place(tile + q / units, q % units);
        state_before(0)[i] = element(p.h0, i);
        cells[i] = element(p.c0, i);
      }
    }
  }

  // What is added to the sums of step t, cells and states of this block: before others have arrived.
  __device__ void make_ready(int tile, int count, int t, const float* before) {
    const int64_t columns = static_cast<int64_t>(p.directions) * gates * h;
    for (int i = threadIdx.x; i < count * at.rows; i += kRecurrenceThreads) {
      const int n = i / at.rows, row = i % at.rows, unit = row % s.units;
      const int64_t line = static_cast<int64_t>(t) * p.batch + first_entry + tile + n;
      const int64_t column =
          (static_cast<int64_t>(direction) * gates + row / s.units) * h + first_unit + unit;
      ready[n * at.ready_pitch + row] =
          unit < units ? p.projected[line * columns + column] + input_bias[row] : 0.0f;
    }
    // Written by this very thread.
    for (int q = threadIdx.x; q < count * units; q += kRecurrenceThreads) {
      const int64_t i = place(tile + q / units, q % units);
      float* const own = ready + q / units * at.ready_pitch + at.rows + q % units;
      own[0] = cells[i];
      own[s.units] = before[i];
    }
  }

  __device__ void take_states(const float* from, int tile, int count) {
    const int64_t first = (static_cast<int64_t>(direction) * p.batch + first_entry + tile) * h;
    for (int i = threadIdx.x; i < s.tile * (at.pitch / 4); i += kRecurrenceThreads) {
      const int n = i / (at.pitch / 4), v = i % (at.pitch / 4);
      float four[4] = {};
      if (n < count && h % 4 == 0 && 4 * v < h)
        load_fresh_4(from + first + static_cast<int64_t>(n) * h + 4 * v, four);
      else if (n < count)
        for (int e = 0; e < 4 && 4 * v + e < h; ++e)
          four[e] = load_fresh(from + first + static_cast<int64_t>(n) * h + 4 * v + e);
      store_v<4>(static_cast<State*>(states) + static_cast<int64_t>(i) * 4, four);
    }
  }

  // Rows `first` up to `last` of R by the states. A warp has some rows and entries at a time, its lanes share
  // out the sum.
  __device__ void multiply(int first, int last) {
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
          load_v<4>(static_cast<const State*>(states) + static_cast<int64_t>(entry + n) * at.pitch + 4 * v,
                    x);
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

  // The same by products of 16 rows, 8 entries and 16 units; a warp has up to 4 times 8 entries, and where
  // warps are left over, a part of the units.
  __device__ void multiply_on_tensor_cores(int first, int last) {
    constexpr int kGroup = 4;
    const int warp = threadIdx.x / 32, r = threadIdx.x % 32 / 4, c = threadIdx.x % 4 * 2;
    const int row_tiles = (last - first + 15) / 16, entry_tiles = s.tile / 8;
    const int groups = (entry_tiles + kGroup - 1) / kGroup, steps = at.pitch / 16;
    const T* const x = static_cast<const T*>(states);
    auto pair = [](const T* from) { return *reinterpret_cast<const uint32_t*>(from); };
    for (int task = warp; task < row_tiles * groups * s.splits; task += kRecurrenceWarps) {
      const int row = first + task % row_tiles * 16, tile = task / row_tiles % groups * kGroup;
      const int split = task / (row_tiles * groups);
      float sum[kGroup][4] = {};
      for (int k = split * steps / s.splits; k < (split + 1) * steps / s.splits; ++k) {
        const T* const w = weights + static_cast<int64_t>(row + r) * at.pitch + 16 * k + c;
        const uint32_t a[4] = {pair(w), pair(w + 8 * at.pitch), pair(w + 8), pair(w + 8 * at.pitch + 8)};
        PELTON_UNROLL
        for (int j = 0; j < kGroup; ++j) {
          if (tile + j >= entry_tiles) break;
          const T* const b = x + static_cast<int64_t>((tile + j) * 8 + r) * at.pitch + 16 * k + c;
          multiply_add<T>(sum[j], a, pair(b), pair(b + 8));
        }
      }
      PELTON_UNROLL
      for (int j = 0; j < kGroup; ++j) {
        if (tile + j >= entry_tiles) break;
        PELTON_UNROLL
        for (int e = 0; e < 4; ++e) {
          const int at_row = row + r + e / 2 * 8, entry = (tile + j) * 8 + c + e % 2;
          if (at_row < last) sums[(split * s.tile + entry) * at.all_rows + at_row] = sum[j][e];
        }
      }
    }
  }

  __device__ float call(int i, float x) const {
    const float clipped = p.clip > 0 ? (x < -p.clip ? -p.clip : x > p.clip ? p.clip : x) : x;
    return cell_function(p.functions[direction][i], clipped);
  }

  __device__ void update(int tile, int n, int unit, int t, int phase, float* after) {
    const int64_t i = place(tile + n, unit);
    const float* const in = ready + n * at.ready_pitch + unit;
    const bool handed = p.phases() == 2 && phase == 1;  // what was multiplied is the reset state
    auto from_state = [&](int g) {
      float sum = state_bias[g * s.units + unit];
      for (int split = 0; split < s.splits; ++split)
        sum += sums[(split * s.tile + n) * at.all_rows + g * s.units + unit];
      return sum;
    };
    auto gate = [&](int g) { return in[g * s.units] + from_state(g); };
    const float old = in[at.rows + s.units];
    float cell = in[at.rows], state;
    if (p.cell == Recurrence::rnn) {
      state = call(0, gate(0));
    } else if (p.cell == Recurrence::gru) {
      float z = cell, candidate;
      if (!handed) z = call(0, gate(0));
      if (p.phases() == 2 && phase == 0) {
        cells[i] = z;
        reset[i] = call(0, gate(1)) * old;
        return;
      }
      if (handed)
        candidate = gate(2);
      else
        candidate = in[2 * s.units] + call(0, gate(1)) * from_state(2);
      state = (1.0f - z) * call(1, candidate) + z * old;
    } else {
      auto peephole = [&](int g) { return peepholes[g * s.units + unit]; };
      const float input = call(0, gate(0) + peephole(0) * cell);
      const float forget = p.input_forget ? 1.0f - input : call(0, gate(2) + peephole(2) * cell);
      const float next = forget * cell + input * call(1, gate(3));
      const float output = call(0, gate(1) + peephole(1) * next);
      state = output * cell_function(p.functions[direction][2], next);
      if (alive(tile + n, t)) cells[i] = next;
    }
    const bool goes_on = alive(tile + n, t);
    after[i] = goes_on ? state : old;
    if (!p.y) return;
    const int64_t line = (static_cast<int64_t>(t) * p.directions + direction) * p.batch;
    static_cast<T*>(p.y)[(line + first_entry + tile + n) * h + first_unit + unit] =
        from_float<T>(goes_on ? state : 0.0f);
  }

  __device__ void finish(const float* from) {
    for (int tile = 0; tile < entries; tile += s.tile) {
      const int count = entries - tile < s.tile ? entries - tile : s.tile;
      for (int q = threadIdx.x; q < count * units; q += kRecurrenceThreads) {
        const int64_t i = place(tile + q / units, q % units);
        if (p.last_h) static_cast<T*>(p.last_h)[i] = from_float<T>(from[i]);
        if (p.last_c) static_cast<T*>(p.last_c)[i] = from_float<T>(cells[i]);
      }
    }
  }

  const Recurrence& p;
  const RecurrenceShares& s;
  const RecurrenceLayout at;
  const int gates, h;
  int direction, first_entry, entries, first_unit, units;
  bool backwards;
  void* states;
  float *sums, *ready, *input_bias, *state_bias, *peepholes;
  T* weights;
  float *exchanged, *cells, *reset;  // in scratch
  int64_t each;                      // of them, elements
};

// Blocks [direction and group, units].
template <class T, RecurrenceWay kWay>
__global__ void __launch_bounds__(kRecurrenceThreads)
    recurrence_kernel(const __grid_constant__ Recurrence p, const __grid_constant__ RecurrenceShares s) {
  inputs_ready();
  RecurrenceBlock<T, kWay> block(p, s, launched_shared());
  block.run(BlocksBarrier(static_cast<unsigned*>(p.scratch) + blockIdx.x, static_cast<unsigned>(s.blocks)));
}

}  // namespace pelton::backend::cuda

#undef PELTON_UNROLL
