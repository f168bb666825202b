// SPDX-License-Identifier: Apache-2.0
// What follows a convolution of the own loops, over elements of the result that lie one after another.
#pragma once

#include <limits>
#include <string>

#include "backend/cpu/own/row_chain.h"

namespace pelton::backend::cpu {

// Why not: a group around a convolution on channels-last f32 tensors, with constant f32 weights. "" if both
// its chain and its bias are ones that a ConvChain and a sum that begins with the bias can do.
std::string refuse_conv_chain(const Group& group, const ir::Graph& graph, ir::NodeId node);

class ConvChain {
 public:
  // `rank`: of the result.
  void take(const Group& group, size_t rank, device::CpuIsa isa);
  // What the sums begin with, and the least they become; the rest of the group are steps.
  const float* bias(const RunArgs& args) const;
  float low() const { return low_; }
  bool empty() const { return chain_.empty(); }
  // In place, on `count` elements of the result from `at` on.
  void run(const RunArgs& args, int64_t at, int64_t count) const;

 private:
  GroupOperand bias_;
  float low_ = -std::numeric_limits<float>::infinity();
  RowChain chain_;
};

}  // namespace pelton::backend::cpu
