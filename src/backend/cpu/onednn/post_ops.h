// SPDX-License-Identifier: Apache-2.0
// The chain after a contraction as post-ops of a primitive.
#pragma once

#include <string>

#include "backend/cpu/onednn/engine.h"
#include "backend/group.h"

namespace pelton::backend::cpu::onednn {

// "" if every step has a post-op.
std::string refuse_steps(const Group& group);

// The function of the last step where the own loop is much cheaper than the library's post-op (which computes
// a full exponential with a true division); null: no such step. `zero` tells whether it maps 0 to 0, so that
// the padding of blocked tensors stays 0.
struct Tail {
  StepFunction function = nullptr;
  bool zero = true;
};
Tail tail_of(const Group& group, device::CpuIsa isa);

struct PostOps {
  dnnl::post_ops ops;
  // Binary operands, in order; `argument` is DNNL_ARG_ATTR_MULTIPLE_POST_OP(i) | DNNL_ARG_SRC_1.
  struct Operand {
    int argument;
    Desc desc;
    GroupOperand operand;
  };
  std::vector<Operand> operands;
};
// Steps [first, last). `result` has the dims seen by the primitive; `as_seen` maps the dims of an operand,
// padded to the rank of the node's result, to those the primitive needs (empty result: cannot).
PostOps post_ops_of(const Group& group, size_t first, size_t last, const Instance& instance, size_t rank,
                    FunctionRef<Desc(const TensorSpec&)> as_seen);

// Adds the binary operands to the arguments of a primitive.
void bind_operands(const PostOps& post, Sequence& sequence, std::vector<Argument>& arguments);
// Where an operand's bytes are: an input of the outer node, or kept in the sequence.
Place place_of(const GroupOperand& operand, Sequence& sequence);

}  // namespace pelton::backend::cpu::onednn
