// SPDX-License-Identifier: Apache-2.0
// From an f32 graph and samples to one whose contractions are quantised, as far as the results allow.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/calibrate.h"
#include "device/target.h"
#include "ir/graph.h"
#include "passes/pass.h"
#include "runtime/plan.h"

namespace pelton::compiler {

struct QuantizeOptions {
  std::vector<std::vector<Tensor>> samples;  // one tensor an input of the graph
  Calibration method = Calibration::percentile;
  // Percent that the result may lose: for tensors [rows, classes] of the rows whose largest entry moves, for
  // others the relative error (root of the sum of squares). Below 0: any.
  double max_drop = -1;
};

// `compile` makes a plan of an f32 graph of this signature. Where everything quantised loses too much, those
// contractions stay in f32 whose rounding is largest against what they work on; if even that does not do, the
// error (numeric) says what is lost. Adds to `notes` what was done.
void quantize_graph(ir::Graph& graph, const QuantizeOptions& options, const passes::Context& context,
                    const backend::Registry& registry, const std::function<runtime::Plan(ir::Graph)>& compile,
                    std::vector<std::string>& notes);

// What the results of `plan` lose against those of `reference` on the samples, in percent.
double drop_percent(const std::vector<std::vector<Tensor>>& reference,
                    const std::vector<std::vector<Tensor>>& results);
// The plan's results on every sample.
std::vector<std::vector<Tensor>> run_samples(const runtime::Plan& plan,
                                             const std::vector<std::vector<Tensor>>& samples,
                                             const backend::Registry& registry, std::string_view what,
                                             const std::function<void(const std::vector<Tensor>&)>& see = {});

}  // namespace pelton::compiler
