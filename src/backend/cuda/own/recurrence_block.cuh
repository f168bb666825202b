// SPDX-License-Identifier: Apache-2.0
// What a block of the kernel of recurrence.h has and does; the other recurrence_*.cuh say how.
#pragma once

#include <type_traits>

#include "backend/cuda/own/recurrence_layout.cuh"
#include "backend/cuda/own/tagged.h"

#ifdef __CUDACC__
#define PELTON_UNROLL _Pragma("unroll")
#else
#define PELTON_UNROLL
#endif

namespace pelton::backend::cuda {

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

  __device__ void run();

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
  __device__ void row_of_r(int row, int v, float (&out)[4]) const;
  __device__ void start();
  // What is added to the sums of step k for entries from `tile` on starts to be copied.
  __device__ void fetch(int tile, int count, int k);
  // Cells and states of this block before step k, each written by the thread that takes it.
  __device__ void take_own(int tile, int count, int k);

  static __device__ void round(float (&x)[4]) {
    if constexpr (kTensor && sizeof(T) == 4) {
      PELTON_UNROLL
      for (int e = 0; e < 4; ++e) x[e] = to_tf32(x[e]);
    }
  }

  // A warp takes whole entries, so many pieces of them at once.
  __device__ void take_states(const Tagged* from, int tile, int count, uint32_t tag);
  // Elements 4v.. of a state of `h`; what is behind its end stays.
  __device__ bool take_piece(const Tagged* entry, int v, uint32_t tag, float (&out)[4]) const;
  // Rows `first` up to `last` of R by the states. A warp has some rows and entries at a time, its lanes share
  // out the sum.
  __device__ void multiply(int first, int last);
  // The same by products of 16 rows, 8 entries and 16 units, of TF32 8; a warp has up to 4 times 8 entries,
  // and where warps are left over, a part of the units.
  __device__ void multiply_on_tensor_cores(int first, int last);
  __device__ Real call(int i, Real x) const;
  __device__ void update(int tile, int n, int unit, int k, int phase);
  __device__ void finish();

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

}  // namespace pelton::backend::cuda
