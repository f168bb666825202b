// SPDX-License-Identifier: Apache-2.0
// Facts that a run must keep, and graphs that no run can: what stands for a branch whose sizes do not fit.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace pelton::ir {

// bad_shape if the check does not hold at these sizes; false if it names a size that is not known yet.
bool require_check(const Fact& check, const SymbolValues& sizes);
// bad_shape if a check of the graph does not hold at these sizes. One that names a size that is not known yet
// is left for later.
void require_checks(const Graph& graph, const SymbolValues& sizes);

// The error says that sizes do not fit one another, and no remedy: what raised it can never run at these
// sizes.
bool is_misfit(const Error& error);

// Gives `graph`, whose inputs are of types `inputs`, zeros of the types that `like` yields as its results,
// and a check that no run passes; `why` goes into the error of that run. Sizes that only `like` knows become
// 0. False, with nothing done, if a result of `like` is not a tensor of known rank.
bool make_impossible(Graph& graph, const Graph& like, const std::vector<Type>& inputs, std::string why);

}  // namespace pelton::ir
