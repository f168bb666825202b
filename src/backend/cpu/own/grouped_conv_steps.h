// SPDX-License-Identifier: Apache-2.0
// The inner loops of convolutions in groups of few channels, channels last: the results of a few pixels for
// one or two vectors of output channels, all sums in registers.
#pragma once

#include <cstdint>

#include "device/target.h"

namespace pelton::backend::cpu {

struct GroupedTile {
  // [taps][pixels of the loop]: the input pixels under each tap; zeros stand for those outside the image.
  const float* const* pixels = nullptr;
  int64_t taps = 0, inputs = 0;    // `inputs` a group
  const float* weights = nullptr;  // [taps][inputs][vectors][lanes]
  // Of each vector: its first input channel, how many channels its groups read, and how many outputs count.
  int64_t first[2] = {}, reads[2] = {}, outputs[2] = {};
  const int32_t* lookup = nullptr;  // [inputs][lanes]: which of the channels read each lane takes
  const float* bias = nullptr;      // of the outputs, or none
  float low = 0;                    // the least that a result becomes
  float* out = nullptr;
  int64_t out_stride = 0, count = 0;  // from pixel to pixel; pixels that count
};

struct GroupedConvSteps {
  int64_t lanes = 0, pixels = 1, vectors = 1;  // at once
  bool looks_up = false;                       // groups are smaller than a vector
  // For one and for two vectors.
  void (*tile[2])(const GroupedTile& tile) = {};
};

// `inputs`, `outputs`: of a group. No lanes where there is no loop.
GroupedConvSteps grouped_conv_steps(device::CpuIsa isa, int64_t inputs, int64_t outputs);

}  // namespace pelton::backend::cpu
