// SPDX-License-Identifier: Apache-2.0
// Which values of a graph are rounded to levels on their way.
#pragma once

#include <set>
#include <string>

#include "ir/graph.h"

namespace pelton::cli {

// Names of the values of `g` that a quantisation of anything but constants reaches, names of results
// included.
std::set<std::string> quantised_values(const ir::Graph& g);

}  // namespace pelton::cli
