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
  CellFunction functions[2][3];                          // [direction]
  bool tf32 = false;                                     // states and rows of f32 may be rounded to TF32
  int multiprocessors = 132, shared_bytes = 220 * 1024;  // of the GPU, of a block of it at most

  const float* projected = nullptr;               // [L, N, D, G * H]: x by W, without biases
  const void* r = nullptr;                        // [D, G * H, H]
  const void *b = nullptr, *peepholes = nullptr;  // [D, 2 * G * H], [D, 3 * H], or null
  const void* lengths = nullptr;                  // [N], or null; beyond them the state stays and y is 0
  int length_bytes = 0;
  uint32_t* fault = nullptr;                // gets 1 where a length is below 0 or above L; null: nobody looks
  const void *h0 = nullptr, *c0 = nullptr;  // [D, N, H], or null for 0
  void *y = nullptr, *last_h = nullptr, *last_c = nullptr;  // [L, D, N, H], [D, N, H] twice, or null
  void* scratch = nullptr;                                  // recurrence_scratch_bytes()

  __host__ __device__ int gates() const { return cell == rnn ? 1 : cell == gru ? 3 : 4; }
  // The gru that resets the state before its product hands that over, too.
  __host__ __device__ int phases() const { return cell == gru && !linear_before_reset ? 2 : 1; }
};

// How a block multiplies the states by its rows of R: entry by entry or eight at a time, with the rows in
// shared memory or read again each step; or, of 16-bit types, on tensor cores with states rounded to the
// type.
enum class RecurrenceWay : uint8_t { one_kept, one_read, eight_kept, eight_read, tensor };

// How the work is shared out: groups of entries of the batch, a direction each, and of each group blocks that
// have so many units. A block takes `tile` of its entries at a time; warps that are left over share out sums.
struct RecurrenceShares {
  int groups = 1, entries = 1, blocks = 1, units = 1, tile = 1, splits = 1;
  RecurrenceWay way = RecurrenceWay::one_kept;
  int shared_bytes = 0;  // 0: a state does not fit
};
RecurrenceShares recurrence_shares(const Recurrence& problem);
int64_t recurrence_scratch_bytes(const Recurrence& problem);
cudaError_t recurrence(const Recurrence& problem, const RecurrenceShares& shares, cudaStream_t stream);

}  // namespace pelton::backend::cuda
