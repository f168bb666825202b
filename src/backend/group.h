// SPDX-License-Identifier: Apache-2.0
// A contraction (conv, its backward forms, conv_transpose, matmul) or a batch norm in training with what
// follows it: the chain of pointwise nodes that one call can apply to each result before it is stored.
#pragma once

#include <string>
#include <vector>

#include "backend/kernel.h"

namespace pelton::backend {

// A tensor that the group reads: an input of the outer node, or a constant of the body.
struct GroupOperand {
  int input = -1;   // index in the outer node's inputs; -1: `constant`, or absent
  Tensor constant;  // known value, where there is one
  Shape shape;      // as used (after reshapes), symbolic
  bool reshaped = false;
  bool present() const { return input >= 0 || constant.defined(); }
};

struct GroupStep {
  enum Kind : uint8_t {
    eltwise,  // `op` of one operand, with imm
    binary,   // `op`: add, sub, mul, div, max, min, prelu; the running value comes first
    linear,   // imm[0] x + imm[1]
  } kind = eltwise;
  std::string_view op;
  float imm[2] = {};
  GroupOperand operand;
};

struct Group {
  std::string reason;                // not empty: the body is more than one contraction and such a chain
  const ir::Graph* graph = nullptr;  // that holds `main`
  ir::NodeId main;
  std::vector<GroupOperand> operands;  // of main
  GroupOperand gate;  // factor of operands[0] before main reads it, one number an image and channel
  GroupOperand sums;  // integers that are added to integer results of main before the first step
  std::vector<GroupStep> steps;
  DType result = DType::f32;
  size_t output = 0;  // of the outer node: what the chain yields; others are further results of main

  const ir::Node& node() const { return (*graph)[main]; }
};

// What may stand in a group besides: Group::gate, Group::sums.
struct GroupExtras {
  bool gate = false, sums = false;
};
// `node` is a contraction, or a fused node around one.
Group parse_group(const ir::Graph& graph, ir::NodeId node, const Instance* instance = nullptr,
                  GroupExtras extras = {});

// Whether the step adds one value a channel to a result of this rank: usable as a bias where it comes first.
bool is_bias(const GroupStep& step, size_t rank, size_t channel_axis);

// Dims of `operand` at the sizes of the instance.
Dims dims_of(const GroupOperand& operand, const Instance& instance);
TensorSpec spec_of(const GroupOperand& operand, DType dtype, const Instance& instance);

}  // namespace pelton::backend
