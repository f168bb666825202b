// SPDX-License-Identifier: Apache-2.0
// The gradient of a depthwise convolution's weights with what it reads brought to shared memory in stages,
// all of a stage on its way at once. Channels last. Sums in f32, in a fixed order.
#pragma once

#include <vector>

#include "backend/cuda/own/depthwise_backward.h"

namespace pelton::backend::cuda {

inline constexpr int kDepthwiseThreads = 256;

// How the work is shared out: blocks [tiles of lanes * 4 bytes of channels, blocks]; a block takes every
// blocks-th stage.
struct DepthwiseShares {
  int lanes = 32;
  int images = 1, band = 1;  // of a stage: images, rows of g of each
  int segment = 28;          // places of a row that a thread takes one after the other
  int bands = 1, stages = 1, blocks = 1;
  bool cluster = false;
};
// Ways to share it out, none where the window, type or layout is another one.
std::vector<DepthwiseShares> depthwise_weights_shares(const DepthwiseBackward& problem, int multiprocessors);
int64_t depthwise_weights_scratch_bytes(const DepthwiseBackward& problem, const DepthwiseShares& shares);
cudaError_t depthwise_weights(const DepthwiseBackward& problem, const DepthwiseShares& shares, float* partial,
                              cudaStream_t stream);

}  // namespace pelton::backend::cuda
