// SPDX-License-Identifier: Apache-2.0
// Choices by measurement: which of several forms of a plan, which implementation of a node.
#pragma once

#include <atomic>
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
  // `stop`: set by another thread, it ends the timing; may be null.
  Tuner(Tactics& tactics, double budget_seconds, const backend::Registry& registry,
        const device::Target& target, const std::atomic<bool>* stop = nullptr);

  // One of several forms of the whole plan; `make` compiles one. The first is kept unless another gains more
  // than the noise. `key` names the graph.
  size_t choose_form(const std::string& key, const std::vector<std::string>& names,
                     const std::function<runtime::Plan(size_t)>& make);
  // Implementations of nodes that have several worth timing, one choice a node; how many were left out. One
  // that fails on made-up values is none of them, and notes() says so.
  int64_t choose_nodes(const ir::Graph& graph, const std::map<std::string, int64_t>& optimum,
                       std::vector<runtime::Choice>& choices);

  const std::vector<std::string>& notes() const { return notes_; }
  bool spent() const;  // or stopped, or the user has interrupted: what is not timed keeps its first way

 private:
  double seconds_left() const { return budget_ - watch_.seconds(); }

  Tactics& tactics_;
  double budget_;
  const backend::Registry& registry_;
  const device::Target& target_;
  const std::atomic<bool>* stop_;
  std::string machine_;
  Stopwatch watch_;
  std::vector<std::string> notes_;
};

// What a node computes on what, at these sizes: equal for nodes that take equal time.
std::string timing_key(const ir::Graph& graph, ir::NodeId node, const SymbolValues& sizes);

}  // namespace pelton::compiler
