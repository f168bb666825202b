// SPDX-License-Identifier: Apache-2.0
// The last part of a compilation, which may be done in several ways, and the choice of the fastest of them on
// the machine.
#pragma once

#include <string>
#include <vector>

#include "compiler/pipeline.h"
#include "compiler/tune.h"
#include "passes/pass.h"

namespace pelton::compiler {

// What may be done one way or another, depending on which is faster on the machine.
struct Form {
  std::string name = "nhwc";
  ir::Layout layout{ir::Layout::Kind::channels_last, 0};
  bool merge = false;                 // sibling contractions
  std::vector<ir::Layout> by_anchor;  // of each convolution; empty: `layout` for all
};

// Of the precisions that a plan may be compiled for: the floating point ones of 16 bits.
bool is_lower(const std::string& precision);
// From passes that hold for every machine to the graph that runs.
void finish(ir::Graph& graph, const Form& form, Pipeline& p, const passes::Context& context);
// Times the forms of the graph that differ on the machine of the tuner.
Form choose_form(const ir::Graph& graph, const runtime::Plan& so_far, const Options& options,
                 const backend::Registry& registry, Tuner& tuner);

}  // namespace pelton::compiler
