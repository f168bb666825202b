// SPDX-License-Identifier: Apache-2.0
// The chain of a group (backend/group.h) as the steps that our kernels interpret.
#pragma once

#include "backend/cuda/own/host.h"
#include "backend/group.h"

namespace pelton::backend::cuda {

// "" if every step has a form at every size: scalars, one number a channel (axis 1), one an image and
// channel, or a whole result in the result's own layout. `main_bias`: the contraction's own bias, a step as
// well.
std::string refuse_steps(const Group& group, const ir::Graph& graph, ir::NodeId node, bool main_bias);

struct StepsPlan {
  Epilogue form;               // operands null
  std::vector<int> inputs;     // of each step: index in the node's inputs, or -1
  std::vector<Packed> packed;  // of each step: its constant, or null
  Epilogue bind(const RunArgs& args) const;
};
// `result`: as the contraction yields it. `bias`: the contraction's own, may be absent.
// Constant operands are copied to the GPU, unless none is `here`.
StepsPlan plan_steps(const Group& group, const GroupOperand& bias, const Instance& instance,
                     const TensorSpec& result, bool here = true);

// An activation without operands as a step; none for other ops.
std::optional<EpilogueStep> step_of(const ir::Node& node);

}  // namespace pelton::backend::cuda
