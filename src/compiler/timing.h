// SPDX-License-Identifier: Apache-2.0
// How long kernels and whole plans take on this machine, measured in turns so that what else runs here hits
// all of them alike.
#pragma once

#include <functional>
#include <vector>

#include "backend/kernel.h"
#include "compiler/tactics.h"
#include "runtime/plan.h"

namespace pelton::compiler {

// Calls each of `work` in turns for about `seconds` in all, after one call each to warm up; three rounds even
// if they take longer, but only the first is begun after `most_seconds`. Figures are in the order of `work`;
// names are left to the caller.
std::vector<Candidate> measure(const std::vector<std::function<void()>>& work, double seconds,
                               double most_seconds);

// The node on each implementation, at these sizes, on made-up values. An implementation whose kernel is
// handed on (backend/ran_by.h) to another of the list is left out, and so is one that throws, with a line in
// `notes`.
std::vector<Candidate> time_node(const ir::Graph& graph, ir::NodeId node, const SymbolValues& sizes,
                                 const std::vector<const backend::Implementation*>& implementations,
                                 const device::Target& target, double seconds, double most_seconds,
                                 std::vector<std::string>& notes);

// Whole runs of plans of one signature, at the sizes of `sizes`, on made-up values; on a device with memory
// of its own these lie there.
std::vector<Candidate> time_plans(const std::vector<std::shared_ptr<const runtime::Plan>>& plans,
                                  const SymbolValues& sizes, const backend::Registry& registry,
                                  const device::Target& target, double seconds, double most_seconds);

// The results of one run on made-up values, at the plan's optimum.
std::vector<Tensor> run_made_up(const runtime::Plan& plan, const backend::Registry& registry,
                                const device::Target& target);

// Every symbol of the graph at its optimum, or at the least it may be.
SymbolValues sizes_of(const ir::Graph& graph, const std::map<std::string, int64_t>& optimum);

}  // namespace pelton::compiler
