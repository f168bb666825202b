// SPDX-License-Identifier: Apache-2.0
// The kernel of recurrence.h. It includes nothing but its own headers: the .cu includes the device's
// primitives (device.cuh, launch.cuh, cluster.cuh, mma.cuh, together.cuh) before it, a test those of an
// emulation.
#pragma once

#include "backend/cuda/own/recurrence_products.cuh"
#include "backend/cuda/own/recurrence_states.cuh"

namespace pelton::backend::cuda {

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

template <class T, RecurrenceWay kWay>
__device__ inline auto RecurrenceBlock<T, kWay>::call(int i, Real x) const -> Real {
  const Real clipped = p.clip > 0 ? (x < -p.clip ? -p.clip : x > p.clip ? p.clip : x) : x;
  return cell_function(p.functions[direction][i], clipped);
}

template <class T, RecurrenceWay kWay>
__device__ inline void RecurrenceBlock<T, kWay>::update(int tile, int n, int unit, int k, int phase) {
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
    auto peephole = [&](int g, Real c) { return p.peepholes ? peepholes[g * s.units + unit] * c : Real(0); };
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

template <class T, RecurrenceWay kWay>
__device__ inline void RecurrenceBlock<T, kWay>::run() {
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
