// SPDX-License-Identifier: Apache-2.0
// Compilation that measures: choices timed on this machine, values seen on samples.
#pragma once

#include "compiler/compile.h"
#include "compiler/int8.h"
#include "compiler/tactics.h"

namespace pelton::compiler {

struct Measured {
  // Choices by measurement on this machine, where the target is it: what `tactics` does not know yet is timed
  // for as long as `time_budget_seconds` lasts. Null: the first implementation that takes a node.
  Tactics* tactics = nullptr;
  double time_budget_seconds = 0;
  // Options::precision int8 needs samples; with any lower precision, a drop above `max_drop` on the samples
  // is an error (numeric).
  QuantizeOptions quantize;
};

runtime::Plan compile(ir::Graph graph, const device::Target& target, const Options& options,
                      const backend::Registry& registry, const Measured& measured);

}  // namespace pelton::compiler
