// SPDX-License-Identifier: Apache-2.0
// How far a result may be from the exact one (docs/numerics.md): every back end and every fusion is held to
// this.
#pragma once

#include <string>

#include "ir/graph.h"

namespace pelton::interp {

// Distance between neighbouring numbers of a floating type at `v`: 0 for integers, the least number at 0.
double ulp(DType type, double v);

// The graph with every f32, f16 and bf16 value as f64: run by the interpreter, it gives the exact results.
// Its inputs are f64. Casts between floats vanish; other casts, quantisation among them, stay. Refused
// (bad_type) where an op has no f64 form.
ir::Graph exact_form(const ir::Graph& graph);
// An input for exact_form().
Tensor exact_input(const Tensor& t);

struct Acceptance {
  bool accepted = true;
  double error = 0;  // largest |got - exact|
  double allowed =
      0;  // twice the largest |straightforward - exact|, plus 1 ulp of the type at the largest |exact|
  int64_t worst = -1;  // element of the largest error
  std::string reason;  // empty if accepted
};
// `straightforward`: the graph evaluated in its own types (interp/accept.h does so and calls this). Floats:
// the rule above, and NaN and infinities in the same places. Integers, bool and strings: equal elements.
// `least_error`: the straightforward error where it is known to be more than these tensors show.
Acceptance accept(const Tensor& got, const Tensor& exact, const Tensor& straightforward,
                  double least_error = 0);

}  // namespace pelton::interp
