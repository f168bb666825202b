// SPDX-License-Identifier: Apache-2.0
// Judges results of back ends, passes and fusions by the rule of interp/numerics.h: a graph and inputs give
// the truth (f64 throughout, nothing rounded between ops), what a straightforward evaluation in the graph's
// own types yields, and from both the error that a result may have.
#pragma once

#include <string>
#include <vector>

#include "interp/interpreter.h"
#include "interp/numerics.h"

namespace pelton::interp {

struct Reference {  // of one graph output
  DType type = DType::f32;
  Tensor truth;          // f64 for floats, else the output's own type
  Tensor plain;          // in the output's type
  double error = 0;      // largest finite |plain - truth|, over two orders of summation
  bool rounded = false;  // integers that stand for rounded reals: one unit is a rounding difference
};
// `inputs` and `options` as for run(). Outputs must be tensors (bad_type).
std::vector<Reference> references(const ir::Graph& graph, const std::vector<ir::HostValue>& inputs,
                                  const Options& options = {});

// The rule of interp/numerics.h. Integers and bool may equal the truth or the straightforward evaluation;
// rounded integers may be one off the truth.
Acceptance judge(const Reference& reference, const Tensor& result);

}  // namespace pelton::interp
