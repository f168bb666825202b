// SPDX-License-Identifier: Apache-2.0
// Specialisation: gives inputs the shapes or ranges the user named, symbols with a single possible value
// become integers, and every type is inferred again.
#pragma once

#include <map>
#include <string>

#include "passes/pass.h"

namespace pelton::passes {

// One dimension of an input: fixed, or min:opt:max.
struct DimRange {
  int64_t min = 0, opt = 0, max = 0;
};
using InputShapes = std::map<std::string, std::vector<DimRange>>;  // by input name

// bad_name for an input that does not exist (naming those that do), bad_shape where the model contradicts.
// `optimum` receives the opt value of each symbol that stays symbolic.
bool specialise(ir::Graph& graph, const InputShapes& shapes, std::map<std::string, int64_t>* optimum,
                const Context& context);

// Dims in place of symbols, in all types, attributes, facts and sub-graphs. Nothing is inferred again.
using Replacements = std::map<std::string, Dim, std::less<>>;
void substitute(ir::Graph& graph, const Replacements& replacements);

// Infers every type again. Where a node told a symbol and its result has a size now that what it was computed
// from is known, that size stands in the symbol's place everywhere.
void infer_again(ir::Graph& graph);

// "1x3x224x224", or "1:8:32x3x224x224" with min:opt:max where a dimension may vary. usage error otherwise.
std::vector<DimRange> parse_shape(const std::string& text);

}  // namespace pelton::passes
