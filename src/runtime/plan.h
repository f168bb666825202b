// SPDX-License-Identifier: Apache-2.0
// The result of a compilation: what runs, with which implementation each node runs and why not with an
// earlier one, and what a reader of the plan file wants to know. Plain data; saved by runtime/plan_file.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/kernel.h"
#include "device/target.h"
#include "ir/graph.h"

namespace pelton::device {
class Artifacts;
}

namespace pelton::runtime {

// The implementation name of nodes that run on their reference function. Control flow on it runs the nodes of
// its sub-graphs on their own choices.
inline constexpr std::string_view kReference = "reference";
// Nodes that cost nothing when they run: constants, and views that share their input's bytes.
inline constexpr std::string_view kNothing = "none";

// Options of a plan that the runtime heeds; "true" or absent.
inline constexpr std::string_view kDeterministic = "deterministic";  // no choice is made by timing
inline constexpr std::string_view kFrozen = "frozen";                // refit refuses

struct Refusal {
  std::string implementation, reason;
};

struct BodyChoices;
struct Choice {
  std::string implementation;       // name in the registry, kReference or kNothing
  std::vector<Refusal> refusals;    // earlier candidates, in their order
  std::vector<BodyChoices> bodies;  // control flow and fused groups that run node by node
  double seconds = 0;               // measured, where candidates were timed; else 0
};
struct BodyChoices {
  std::string attr;             // "then", "else", "body"
  std::vector<Choice> choices;  // one a node of the sub-graph's order()
};

struct PassReport {
  std::string name;
  int64_t changes = 0;
  double seconds = 0;
  std::vector<std::string> notes;  // what was kept, refused or not faster, for people
};

struct Plan {
  ir::Graph graph;              // weights are `constant` nodes
  std::vector<Choice> choices;  // one a node of graph.order()
  device::Target target;        // what it was compiled for
  std::string source;           // file name or "zoo:..." of the model, without folders
  std::string source_sha256;    // of the model file; empty if there was none
  std::string precision = "fp32";
  std::map<std::string, std::string> options;  // those that differ from their defaults
  std::map<std::string, int64_t> optimum;      // size of each symbol that tactics were chosen for
  std::vector<PassReport> passes;
  bool has_option(std::string_view name) const {
    const auto it = options.find(std::string(name));
    return it != options.end() && it->second == "true";
  }
  double compile_seconds = 0;  // never saved: equal inputs give equal files
  // What the target's back end made of it (device/artifacts.h); grows while kernels are prepared. Null: not
  // kept.
  std::shared_ptr<device::Artifacts> artifacts;
  // Runs instead when the sizes of a run break one of graph.guards; may be null if there are none.
  std::shared_ptr<const Plan> unguarded;
};

// The first implementation of the registry that takes the node on `target`, with the refusals before it; for
// a device, else the first that takes it on the host. Nodes that cost nothing get kNothing, those that
// nothing takes kReference.
Choice choose(const ir::Graph& graph, ir::NodeId node, const backend::Registry& registry,
              const device::Target& target);
std::vector<Choice> choose_all(const ir::Graph& graph, const backend::Registry& registry,
                               const device::Target& target);

// Constants, and what leaves its operand's bytes as they are (ir/keeps_bytes.h).
bool costs_nothing(const ir::Graph& graph, ir::NodeId node);
// Whether a result has a size that only running the node can tell. Such nodes run on their reference function
// and cut the plan: what follows is prepared when the size is known.
bool size_depends_on_data(const ir::Graph& graph, ir::NodeId node);

}  // namespace pelton::runtime
