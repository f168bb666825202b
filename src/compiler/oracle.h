// SPDX-License-Identifier: Apache-2.0
// Binds the passes' KernelOracle to a back end's registry.
#pragma once

#include "backend/kernel.h"
#include "passes/pass.h"

namespace pelton::compiler {

class RegistryOracle : public passes::KernelOracle {
 public:
  RegistryOracle(const backend::Registry& registry, const device::Target& target)
      : registry_(registry), target_(target) {}
  std::string refuse(const ir::Graph& graph, ir::NodeId node) const override;
  std::string choice(const ir::Graph& graph, ir::NodeId node) const override;

 private:
  const backend::Registry& registry_;
  const device::Target& target_;
};

}  // namespace pelton::compiler
