// SPDX-License-Identifier: Apache-2.0
// Small nets as whole training steps: forward pass, loss, gradients and a step of plain gradient descent in
// state slots.
#pragma once

#include <string>
#include <vector>

#include "ir/builder.h"

namespace pelton::test {

struct TrainingStep {
  ir::Graph graph;           // output 0: the loss; every parameter slot has a next value
  size_t forward_nodes = 0;  // those before the backward pass, in order
  std::vector<Tensor> inputs;
};

TrainingStep mlp_step();
TrainingStep cnn_step();          // convolutions, batch norm, a residual, max and average pooling, dropout
TrainingStep chain_step();        // layers whose activations outweigh everything else
TrainingStep transformer_step();  // embedding, layer norm, causal attention, GELU, tied head

}  // namespace pelton::test
