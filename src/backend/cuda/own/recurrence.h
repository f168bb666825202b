// SPDX-License-Identifier: Apache-2.0
// The steps of a recurrent layer as one launch: L steps, N batch, H hidden, D directions, G gates (letters
// and layouts of ir/ops/rnn.h). The products of the inputs are given; a block keeps the rows of R of some
// hidden units, in shared memory where they fit, for some entries of the batch, and the blocks of a direction
// and of those entries hand the state to each other after each step. Sums and states are f32.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

struct CellFunction {
  enum Code : uint8_t {
    relu,
    tanh,
    sigmoid,
    affine,
    leaky_relu,
    thresholded_relu,
    scaled_tanh,
    hard_sigmoid,
    elu,
    softsign,
    softplus,
  };
  Code code = tanh;
  float alpha = 0, beta = 0;
};

struct Recurrence {
  enum Cell : uint8_t { rnn, gru, lstm };
  Cell cell = lstm;
  Elem type = Elem::f32;             // of all operands and results but `projected`
  bool reverse = false;              // of the only direction; the second of two runs backwards anyway
  bool linear_before_reset = false;  // of gru
  bool input_forget = false;         // of lstm: the forget gate is 1 - the input gate
  float clip = 0;                    // of what functions take; 0: none
  int steps = 0, batch = 0, hidden = 0, directions = 1;
  CellFunction functions[2][3];  // [direction]
  int multiprocessors = 132;

  const float* projected = nullptr;               // [L, N, D, G * H]: x by W, without biases
  const void* r = nullptr;                        // [D, G * H, H]
  const void *b = nullptr, *peepholes = nullptr;  // [D, 2 * G * H], [D, 3 * H], or null
  const void* lengths = nullptr;                  // [N], or null; beyond them the state stays and y is 0
  int length_bytes = 0;
  const void *h0 = nullptr, *c0 = nullptr;                  // [D, N, H], or null for 0
  void *y = nullptr, *last_h = nullptr, *last_c = nullptr;  // [L, D, N, H], [D, N, H] twice, or null
  void* scratch = nullptr;                                  // recurrence_scratch_bytes()

  __host__ __device__ int gates() const { return cell == rnn ? 1 : cell == gru ? 3 : 4; }
  // The gru that resets the state before its product hands that over, too.
  __host__ __device__ int phases() const { return cell == gru && !linear_before_reset ? 2 : 1; }
};

// How the work is shared out: groups of entries of the batch, a direction each, and of each group blocks that
// have so many units. A block takes `tile` of its entries at a time.
struct RecurrenceShares {
  int groups = 1, entries = 1, blocks = 1, units = 1, tile = 1;
  int together = 1;   // entries that a warp sums up at a time: 1 or 8; divides tile
  bool kept = false;  // the rows of R stay in shared memory
  int shared_bytes = 0;
};
RecurrenceShares recurrence_shares(const Recurrence& problem);
int64_t recurrence_scratch_bytes(const Recurrence& problem);
cudaError_t recurrence(const Recurrence& problem, cudaStream_t stream);

}  // namespace pelton::backend::cuda
