// SPDX-License-Identifier: Apache-2.0
// The kernel of recurrence.h. It includes nothing but its own headers: the .cu includes the device's
// primitives (device.cuh, launch.cuh, cluster.cuh, mma.cuh, together.cuh) before it, a test those of an
// emulation.
#pragma once

#include <type_traits>

#include "backend/cuda/own/recurrence.h"
#include "backend/cuda/own/tagged.h"

#ifdef __CUDACC__
#define PELTON_UNROLL _Pragma("unroll")
#else
#define PELTON_UNROLL
#endif

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

template <class Real>
__device__ __noinline__ inline Real cell_function(CellFunction f, Real x) {
  using F = CellFunction;
  switch (f.code) {
    case F::relu:
      return x < 0 ? Real(0) : x;
    case F::tanh:
      return tanh(x);
    case F::sigmoid:
      return Real(1) / (Real(1) + exp(-x));
    case F::affine:
      return f.alpha * x + f.beta;
    case F::leaky_relu:
      return x < 0 ? f.alpha * x : x;
    case F::thresholded_relu:
      return x > f.alpha ? x : Real(0);
    case F::scaled_tanh:
      return f.alpha * tanh(f.beta * x);
    case F::hard_sigmoid: {
      const Real v = f.alpha * x + f.beta;
      return v < 0 ? Real(0) : v > 1 ? Real(1) : v;
    }
    case F::elu:
      return x < 0 ? f.alpha * expm1(x) : x;
    case F::softsign:
      return x / (Real(1) + (x < 0 ? -x : x));
    case F::softplus:
      return x > 20 ? x : log1p(exp(x));
  }
  return x;
}

// One block: `s.units` units of one direction for the entries of one group.
template <class T, RecurrenceWay kWay>
class RecurrenceBlock {
  static constexpr bool kKept = keeps_rows(kWay), kTensor = on_tensor_cores(kWay);
  static constexpr int kEntries = entries_at_once(kWay);
  using State = std::conditional_t<kTensor, T, float>;
  // Gates of f32 in f64: few numbers, and what is left are the roundings of sums and states.
  using Real = std::conditional_t<sizeof(T) == 4 && !kTensor, double, float>;

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
    own = floats + at.own;
    each = static_cast<int64_t>(p.directions) * p.batch * h;
    exchanged = static_cast<Tagged*>(p.scratch);
    reset = exchanged + 2 * each;
    cells = reinterpret_cast<float*>(exchanged + (p.phases() + 1) * each);
    alone = entries <= s.tile;
  }

  __device__ void run() {
    start();
    if (alone && p.steps > 0) fetch(0, entries, 0);
    for (int k = 0; k < p.steps; ++k)
      for (int phase = 0; phase < p.phases(); ++phase) {
        // The reset gru: update and reset gates, then the candidate.
        const int first = phase * 2 * s.units, last = p.phases() == 2 && phase == 0 ? 2 * s.units : at.rows;
        for (int tile = 0; tile < entries; tile += s.tile) {
          const int count = entries - tile < s.tile ? entries - tile : s.tile;
          // What is added to the sums is on its way a step ahead, where nothing else needs its place.
          if (!alone) {
            fetch(tile, count, k);
            take_own(tile, count, k);
          } else if (phase == 0 && k + 1 < p.steps) {
            fetch(0, entries, k + 1);
          }
          take_states(phase == 0 ? state_before(k) : reset, tile, count, static_cast<uint32_t>(k));
          if (alone && phase == 0 && k + 1 < p.steps)
            wait_copies<1>();
          else
            wait_copies<0>();
          __syncthreads();
          if constexpr (kTensor)
            multiply_on_tensor_cores(first, last);
          else
            multiply(first, last);
          __syncthreads();
          for (int q = threadIdx.x; q < count * units; q += kRecurrenceThreads)
            update(tile, q / units, q % units, k, phase);
          __syncthreads();
        }
      }
    finish();
  }

 private:
  // Tagged with k.
  __device__ Tagged* state_before(int k) const { return exchanged + k % 2 * each; }
  __device__ int time_of(int k) const { return backwards ? p.steps - 1 - k : k; }
  __device__ int64_t place(int entry, int unit) const {  // in [D, N, H]
    return (static_cast<int64_t>(direction) * p.batch + first_entry + entry) * h + first_unit + unit;
  }
  static __device__ float element(const void* from, int64_t i) {
    return from ? to_float(static_cast<const T*>(from)[i]) : 0.0f;
  }
  __device__ int64_t length(int entry) const {
    const int n = first_entry + entry;
    return p.length_bytes == 8 ? static_cast<const int64_t*>(p.lengths)[n]
                               : static_cast<int64_t>(static_cast<const int32_t*>(p.lengths)[n]);
  }
  __device__ bool alive(int entry, int t) const { return !p.lengths || t < length(entry); }
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

  // What is added to the sums of step k for entries from `tile` on starts to be copied.
  __device__ void fetch(int tile, int count, int k) {
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

  // Cells and states of this block before step k, each written by the thread that takes it.
  __device__ void take_own(int tile, int count, int k) {
    for (int q = threadIdx.x; q < count * units; q += kRecurrenceThreads) {
      const int64_t i = place(tile + q / units, q % units);
      float* const to = own + q / units * 2 * s.units + q % units;
      to[0] = cells[i];
      to[s.units] = state_before(k)[i].value;
    }
  }

  static __device__ void round(float (&x)[4]) {
    if constexpr (kTensor && sizeof(T) == 4) {
      PELTON_UNROLL
      for (int e = 0; e < 4; ++e) x[e] = to_tf32(x[e]);
    }
  }

  // A warp takes whole entries, so many pieces of them at once.
  __device__ void take_states(const Tagged* from, int tile, int count, uint32_t tag) {
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
  // Elements 4v.. of a state of `h`; what is behind its end stays.
  __device__ bool take_piece(const Tagged* entry, int v, uint32_t tag, float (&out)[4]) const {
    if (4 * v >= h) return true;
    if (h % 4 == 0) return take_tagged_4(entry + 4 * v, tag, out);
    bool all = true;
    for (int e = 0; e < 4 && 4 * v + e < h; ++e) all &= take_tagged(entry + 4 * v + e, tag, out[e]);
    return all;
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

  // The same by products of 16 rows, 8 entries and 16 units, of TF32 8; a warp has up to 4 times 8 entries,
  // and where warps are left over, a part of the units.
  __device__ void multiply_on_tensor_cores(int first, int last) {
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

  __device__ Real call(int i, Real x) const {
    const Real clipped = p.clip > 0 ? (x < -p.clip ? -p.clip : x > p.clip ? p.clip : x) : x;
    return cell_function(p.functions[direction][i], clipped);
  }

  __device__ void update(int tile, int n, int unit, int k, int phase) {
    const int t = time_of(k);
    const int64_t i = place(tile + n, unit);
    const float* const in = ready + (static_cast<int64_t>(k % 2) * s.tile + n) * at.rows + unit;
    float &own_cell = own[n * 2 * s.units + unit], &own_state = own[(n * 2 + 1) * s.units + unit];
    const bool handed = p.phases() == 2 && phase == 1;  // what was multiplied is the reset state
    auto from_input = [&](int g) { return Real(in[g * s.units]) + input_bias[g * s.units + unit]; };
    auto from_state = [&](int g) {
      Real sum = state_bias[g * s.units + unit];
      for (int split = 0; split < s.splits; ++split)
        sum += sums[(split * s.tile + n) * at.all_rows + g * s.units + unit];
      return sum;
    };
    auto gate = [&](int g) { return from_input(g) + from_state(g); };
    const float old = own_state;
    Real cell = own_cell, state;
    if (p.cell == Recurrence::rnn) {
      state = call(0, gate(0));
    } else if (p.cell == Recurrence::gru) {
      const Real z = handed ? cell : call(0, gate(0));
      if (p.phases() == 2 && phase == 0) {
        own_cell = cells[i] = static_cast<float>(z);
        publish(reset + i, static_cast<float>(call(0, gate(1)) * old), static_cast<uint32_t>(k));
        return;
      }
      const Real candidate = handed ? gate(2) : from_input(2) + call(0, gate(1)) * from_state(2);
      state = (1 - z) * call(1, candidate) + z * old;
    } else {
      auto peephole = [&](int g, Real c) {
        return p.peepholes ? peepholes[g * s.units + unit] * c : Real(0);
      };
      const Real input = call(0, gate(0) + peephole(0, cell));
      const Real forget = p.input_forget ? 1 - input : call(0, gate(2) + peephole(2, cell));
      cell = forget * cell + input * call(1, gate(3));
      const Real output = call(0, gate(1) + peephole(1, cell));
      state = output * cell_function(p.functions[direction][2], cell);
    }
    const bool goes_on = alive(tile + n, t);
    const auto next = static_cast<float>(state);
    publish(state_before(k + 1) + i, goes_on ? next : old, static_cast<uint32_t>(k + 1));
    if (goes_on) {
      own_cell = cells[i] = static_cast<float>(cell);
      own_state = next;
    }
    if (!p.y) return;
    const int64_t line = (static_cast<int64_t>(t) * p.directions + direction) * p.batch;
    static_cast<T*>(p.y)[(line + first_entry + tile + n) * h + first_unit + unit] =
        from_float<T>(goes_on ? next : 0.0f);
  }

  __device__ void finish() {
    for (int tile = 0; tile < entries; tile += s.tile) {
      const int count = entries - tile < s.tile ? entries - tile : s.tile;
      for (int q = threadIdx.x; q < count * units; q += kRecurrenceThreads) {
        const int64_t i = place(tile + q / units, q % units);
        if (p.last_h) static_cast<T*>(p.last_h)[i] = from_float<T>(state_before(p.steps)[i].value);
        if (p.last_c) static_cast<T*>(p.last_c)[i] = from_float<T>(cells[i]);
      }
    }
  }

  const Recurrence& p;
  const RecurrenceShares& s;
  const RecurrenceLayout at;
  const int gates, h;
  int direction, first_entry, entries, first_unit, units;
  bool backwards, alone;  // all entries are one tile
  void* states;
  float *sums, *ready, *own, *input_bias, *state_bias, *peepholes;
  T* weights;
  // In scratch, [D, N, H] each: states before and after a step, reset states; cells, of gru update gates.
  Tagged *exchanged, *reset;
  float* cells;
  int64_t each;
};

// Blocks [direction and group, units]. Tagged scratch has no tag at the start.
template <class T, RecurrenceWay kWay>
__global__ void __launch_bounds__(kRecurrenceThreads)
    recurrence_kernel(const __grid_constant__ Recurrence p, const __grid_constant__ RecurrenceShares s) {
  inputs_ready();
  RecurrenceBlock<T, kWay> block(p, s, launched_shared());
  block.run();
}

}  // namespace pelton::backend::cuda

#undef PELTON_UNROLL
