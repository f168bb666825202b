// SPDX-License-Identifier: Apache-2.0
// Nodes that scale and shift each channel by constants.
#pragma once

#include <optional>
#include <vector>

#include "passes/rewrite.h"

namespace pelton::passes {

// y = scale * x + shift, per channel, in f64 until it is rounded into the weights.
struct Affine {
  std::vector<double> scale, shift;
  bool shifts() const {
    for (double s : shift)
      if (s != 0) return true;
    return false;
  }
};

// What node `id` does to its operand x: batch_norm, mul, add, sub or div by values of axis 1 or the last
// axis.
std::optional<Affine> affine_of(const ir::Graph& g, ir::NodeId id, ir::ValueId x, int64_t channels,
                                bool channel_last);

}  // namespace pelton::passes
