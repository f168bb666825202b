// SPDX-License-Identifier: Apache-2.0
// A product of 8-bit integers, exact: the kernel behind cpu.int8.
#pragma once

#include <memory>

#include "backend/group.h"
#include "backend/kernel.h"

namespace pelton::backend::cpu {

// Rows of outputs: y[image][row][output] = bias + sum of (x - x_zero) (w - w_zero) over the window and the
// channels of the output's group. In images channels lie innermost; a matrix product has a window of one
// place.
struct ByteProblem {
  int64_t images = 1, channels = 0, groups = 1, outputs = 0;  // channels of a pixel; outputs of all groups
  // Depth, height and width; 1 where there are fewer.
  int64_t in[3] = {1, 1, 1}, low[3] = {0, 0, 0}, padded[3] = {1, 1, 1}, kernel[3] = {1, 1, 1},
          stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1}, out[3] = {1, 1, 1};
  GroupOperand x, w, bias, x_zero, w_zero;  // the bias is constant
  // Right matrices that only a run brings, or several of them: those of each image, and its left matrix.
  bool late = false;
  std::vector<int64_t> x_of, w_of;
  int64_t w_output = 0, w_channel = 0;  // strides of w; places of the window lie side by side
  int64_t rows() const { return out[0] * out[1] * out[2]; }  // of an image
};

// For what byte_contraction.cc accepts.
std::unique_ptr<Kernel> make_byte_product(const Group& group, const Instance& instance,
                                          const ByteProblem& problem, const device::Target& target);

}  // namespace pelton::backend::cpu
