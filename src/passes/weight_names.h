// SPDX-License-Identifier: Apache-2.0
// The names by which new values find a constant after compilation (runtime/refit.h): its value's name, those
// of weights that it is a copy of (same_names) and of matrices that it is the transpose of
// (transposed_names).
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace pelton::passes {

// Names of the constants of a model that new values may come for. Not among them are text, those whose values
// types may follow from (small integers, booleans, operands of ops that compute sizes) and those that a
// sub-graph holds a copy of.
std::set<std::string> weight_names(const ir::Graph& model);
// No constant of the graph takes new values by another name than these.
void keep_names(ir::Graph& graph, const std::set<std::string>& names);

// A tensor that two weights have by design and not by chance, as ones or a lonely number are.
bool is_distinct(const Tensor& t);

// Whether an attribute of a constant lists such names.
bool is_name_list(std::string_view attr);
bool has_names(const ir::Graph& graph, ir::ValueId constant);
// Constant `to`, made of constant `from`, takes new values for it too.
void add_names(ir::Graph& graph, ir::ValueId from, ir::ValueId to, bool transposed);
// No constant takes new values by the names of this one any more: something was made of it that would keep
// the old ones.
void forget_names(ir::Graph& graph, ir::ValueId constant);

}  // namespace pelton::passes
