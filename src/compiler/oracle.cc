// SPDX-License-Identifier: Apache-2.0
#include "compiler/oracle.h"

#include "ir/op.h"

namespace pelton::compiler {

std::string RegistryOracle::refuse(const ir::Graph& graph, ir::NodeId node) const {
  std::string reasons;
  for (const backend::Implementation* i : registry_.candidates(graph.op(node).name, target_.kind)) {
    std::string reason = i->refuse(graph, node, target_);
    if (reason.empty()) return "";
    append(reasons, cat(reasons.empty() ? "" : "; ", i->name, ": ", reason));
  }
  return reasons.empty() ? cat("no implementation of ", graph.op(node).name, " on ", target_.name) : reasons;
}

std::string RegistryOracle::choice(const ir::Graph& graph, ir::NodeId node) const {
  for (const backend::Implementation* i : registry_.candidates(graph.op(node).name, target_.kind))
    if (i->refuse(graph, node, target_).empty()) return std::string(i->name);
  return "";
}

}  // namespace pelton::compiler
