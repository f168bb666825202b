// SPDX-License-Identifier: Apache-2.0
#include "register/artifacts.h"

#include "backend/cuda.h"
#include "compiler/timing.h"
#include "device/artifacts.h"
#include "register/registry.h"
#include "runtime/executable.h"

namespace pelton {

ArtifactReport make_artifacts(runtime::Plan& plan, const device::Target& target) {
  ArtifactReport report;
  if (target.kind != device::Kind::cuda) return report;
  plan.artifacts = std::make_shared<device::Artifacts>();
  const SymbolValues sizes = compiler::sizes_of(plan.graph, plan.optimum);
  const device::ArtifactScope scope(plan.artifacts.get());
  std::vector<std::string> names;
  for (const runtime::Choice& c : plan.choices) names.push_back(c.implementation);
  backend::limit_cuda_kernels(plan.graph, names, sizes, target, ArtifactReport::kMostKernels);
  report.timed = target.multiprocessors > 0;
  if (report.timed) {
    auto e = runtime::Executable::create(std::make_shared<runtime::Plan>(plan), registry(), target);
    std::vector<Dims> dims;
    for (ir::ValueId v : plan.graph.inputs) {
      const ir::Type& t = plan.graph.type(v);
      dims.push_back(t.is_tensor() ? eval(t.shape, sizes) : Dims{});
    }
    e->prepare(dims);
  } else {
    report.left = backend::compile_cuda_kernels(plan.graph, names, sizes, target);
  }
  for (const auto& [name, content] : plan.artifacts->entries())
    if (name.first == "kernels")
      ++report.kernels;
    else if (name.first == "tactics")
      ++report.choices;
    else if (content.starts_with('{'))  // beside plans stand lists of their names
      ++report.library_plans;
  return report;
}

}  // namespace pelton
