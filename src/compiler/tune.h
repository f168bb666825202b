// SPDX-License-Identifier: Apache-2.0
// Choices by measurement: which of several forms of a plan, which implementation of a node.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "compiler/tactics.h"
#include "runtime/plan.h"

namespace pelton::compiler {

// Time that may be spent and what came of it. Choices that the tactics know cost nothing.
class Tuner {
 public:
  Tuner(Tactics& tactics, double budget_seconds, const backend::Registry& registry,
        const device::Target& target);

  // One of several forms of the whole plan; `make` compiles one. The first is kept unless another gains more
  // than the noise. `key` names the graph.
  size_t choose_form(const std::string& key, const std::vector<std::string>& names,
                     const std::function<runtime::Plan(size_t)>& make);
  // Implementations of nodes that have several worth timing.
  void choose_nodes(runtime::Plan& plan);

  const std::vector<std::string>& notes() const { return notes_; }
  bool spent() const;  // or the user has interrupted: what is not timed keeps its first way

 private:
  double seconds_left() const { return budget_ - watch_.seconds(); }

  Tactics& tactics_;
  double budget_;
  const backend::Registry& registry_;
  const device::Target& target_;
  std::string machine_;
  Stopwatch watch_;
  std::vector<std::string> notes_;
};

// What a node computes on what, at these sizes: equal for nodes that take equal time.
std::string timing_key(const ir::Graph& graph, ir::NodeId node, const SymbolValues& sizes);

}  // namespace pelton::compiler
