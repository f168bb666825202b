// SPDX-License-Identifier: Apache-2.0
// --precision best: which precision a model runs in, and which of its segments stay in f32, by timing.
#pragma once

#include "compiler/measured.h"

namespace pelton::compiler {

// Whether the text leaves the choice open: "best", or several precisions with commas between.
bool is_choice_of_precisions(const std::string& precision);

// Times the whole model in each precision, on samples where there are some, else on made-up values. One whose
// results are not finite where those of f32 are, or lose more than `max_drop` on the samples, is left out. Of
// the fastest, segments (up to four runs of contractions) then stay in f32 where that is faster still. What
// is chosen holds for the machine that compiles.
runtime::Plan compile_best(const ir::Graph& graph, const device::Target& target, const Options& options,
                           const backend::Registry& registry, const Measured& measured);

}  // namespace pelton::compiler
