// SPDX-License-Identifier: Apache-2.0
// What every pass sees. A pass is one free function over a graph, in a file pair of its name; it returns
// whether it changed anything and leaves the graph verified. Which passes run, in which order, is
// compiler/pipeline.cc.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "device/target.h"
#include "ir/graph.h"

namespace pelton::passes {

// What the target can run. Bound to a back end by the compiler; unbound passes decide by structure and cost
// alone.
class KernelOracle {
 public:
  virtual ~KernelOracle() = default;
  // Empty if some implementation other than the reference takes the node as it stands (types and layouts
  // included), else the reasons of all that refused.
  virtual std::string refuse(const ir::Graph& graph, ir::NodeId node) const = 0;
  // Name of the implementation that would run the node; empty: the reference.
  virtual std::string choice(const ir::Graph& graph, ir::NodeId node) const = 0;
};

struct Context {
  device::Target target;
  const KernelOracle* oracle = nullptr;  // may be null
  std::map<std::string, int64_t>* fired =
      nullptr;           // times each rewrite rule fired, by "pass/rule"; may be null
  bool lowered = false;  // values are kept in 16 bits where the plan's precision says so
  bool strict = false;   // 16-bit values round wherever an op yields one, fused or not

  void count(std::string_view rule) const {
    if (fired) ++(*fired)[std::string(rule)];
  }
};

}  // namespace pelton::passes
