// SPDX-License-Identifier: Apache-2.0
// The gradient of depthwise 3x3 weights at strides 1 and 2 with a thread's window in registers and many reads
// of it on their way at once. Channels last, an even number of them. Sums in f32, in a fixed order.
#pragma once

#include <vector>

#include "backend/cuda/own/depthwise_backward.h"

namespace pelton::backend::cuda {

inline constexpr int kLineThreads = 256, kLineChannels = 2;  // of a block; of a thread

// A thread takes two channels of `rows` neighbouring rows of g, `segment` places of them one after the other.
// A block has `lanes` threads side by side and kLineThreads / lanes teams, which take neighbouring rows, so
// that what their windows share is read from memory once. Blocks [tiles of lanes, blocks]; a block takes
// every blocks-th item, an item being a segment of the rows of its teams.
struct DepthwiseLines {
  int lanes = 32, rows = 1, segment = 28;
  int segments = 1, blocks = 1;
  int64_t items = 0;
};
// Ways to share it out, none where the window or layout is another one.
std::vector<DepthwiseLines> depthwise_lines(const DepthwiseBackward& problem, int multiprocessors);
int64_t depthwise_lines_scratch_bytes(const DepthwiseBackward& problem, const DepthwiseLines& lines);
cudaError_t depthwise_weights_by_lines(const DepthwiseBackward& problem, const DepthwiseLines& lines,
                                       float* partial, cudaStream_t stream);

}  // namespace pelton::backend::cuda
