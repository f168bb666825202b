// SPDX-License-Identifier: Apache-2.0
// The part that groups of kinds "squeeze_excite" and "excite" (passes/fuse_blocks.h) share: factors of the
// channels of x, act2(conv1x1(act1(conv1x1(mean(x))))).
#pragma once

#include <string>

#include "backend/cuda/own/host.h"
#include "backend/cuda/own/squeeze_excite.h"

namespace pelton::backend::cuda {

struct ExcitationForm {
  // A bias: an input of the outer node, a constant of the body, or absent.
  struct Bias {
    int input = -1;
    Tensor constant;
  };
  std::string reason;    // not empty: another form
  int w1 = -1, w2 = -1;  // indices of the outer node's inputs
  Bias b1, b2;
  EpilogueStep act1, act2;
};
// How `gate` is made from `x` in a body; the activations may not be left out.
ExcitationForm parse_excitation(const ir::Graph& body, ir::ValueId gate, ir::ValueId x);
// Index of the body's input that a value is, or -1.
int input_of(const ir::Graph& body, ir::ValueId v);

// "" if the kernel takes these sizes and all operands have the type of x.
std::string refuse_excitation(const ExcitationForm& form, const ir::Graph& graph, ir::NodeId node, DType x);

// Prepared for x of dims [N,C,...].
class Excitation {
 public:
  Excitation(const ExcitationForm& form, const Instance& instance, const TensorSpec& x);
  int64_t scratch_bytes() const { return scratch_bytes_; }
  void add_to(KernelNeeds& needs) const;  // what it keeps, and inputs that it does not read
  // All but x, part_sums and y. May enqueue the move of weights that change, into scratch.
  SqueezeExcite bind(const RunArgs& args, void* scratch) const;

 private:
  ExcitationForm form_;
  SqueezeExcite fixed_;
  Packed w2_, b1_, b2_;
  int64_t scratch_bytes_ = 0;
};

}  // namespace pelton::backend::cuda
