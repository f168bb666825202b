// SPDX-License-Identifier: Apache-2.0
// The equation of an einsum, resolved for operands of given ranks.
#pragma once

#include <string>
#include <vector>

#include "ir/eval.h"

namespace pelton::ir {

// Labels are small integers in order of first appearance; those of "..." come as one label an axis, aligned
// at the right.
struct Equation {
  std::vector<std::vector<size_t>> operands;  // label of every axis
  std::vector<size_t> output;
  std::vector<bool> spread;  // label stands for an axis of "...": sizes 1 broadcast
  size_t labels() const { return spread.size(); }
};
// "ij, jk -> ik", "...ij,...jk", "ii->i". Throws usage with the offending part.
Equation parse_equation(const std::string& text, const std::vector<size_t>& ranks);

void eval_einsum(EvalContext& c);

}  // namespace pelton::ir
