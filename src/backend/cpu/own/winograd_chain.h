// SPDX-License-Identifier: Apache-2.0
// What follows a convolution by Winograd's method, over elements of the result that lie one after another.
#pragma once

#include <vector>

#include "backend/cpu/tile/step.h"
#include "backend/group.h"

namespace pelton::backend::cpu {

// The loop of a step of the chain; Code::none where there is none.
Code chain_code(std::string_view op);

class WinogradChain {
 public:
  // The steps of the group from `first` on.
  void take(const Group& group, size_t first, device::CpuIsa isa);
  bool empty() const { return steps_.empty(); }
  // In place, on `count` elements of the result from `at` on.
  void run(const RunArgs& args, int64_t at, int64_t count) const;

 private:
  struct Late {
    StepFunction function = nullptr;
    int input = -1;  // of the node: the second operand, as large as the result
    int values = 0;  // or that many of imm are further operands
    float imm[2] = {};
  };
  std::vector<Late> steps_;
};

}  // namespace pelton::backend::cpu
