// SPDX-License-Identifier: Apache-2.0
// How pictures become the value of an input; stored in plan files beside the plan.
#pragma once

#include <memory>
#include <string>

#include "runtime/plan.h"

namespace pelton::runtime {

struct Preprocess {
  std::string name;                  // of the pipeline's file, without folders
  std::string input;                 // of the model's graph
  std::string pipeline;              // its text, in evaluation form
  std::shared_ptr<const Plan> plan;  // the tensor part: "image" u8 [N, H, W, C] to that input
};

}  // namespace pelton::runtime
