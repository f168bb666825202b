// SPDX-License-Identifier: Apache-2.0
// Entry points of the CUDA back end. A build without CUDA has the same ones (backend/no_cuda): they find no
// device and say why, so nothing above asks which build it is.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/kernel.h"

namespace pelton::backend {

// Adds every CUDA implementation of this build, best first. Needs no GPU, driver or NVIDIA library: plans for
// a GPU can be made without one.
void register_cuda(Registry& registry);

// The GPUs that this process can use, in the order of their ordinals. If there are none, or some cannot be
// used, `why` says what was found instead. Never throws for a missing GPU, driver or library.
std::vector<device::Target> cuda_devices(std::string& why);

// The name of a GPU that management tools know it by, "GPU-..."; empty if there is none of this ordinal.
std::string cuda_device_uuid(int ordinal);

// Compiles the generated kernels of a graph at these sizes and makes the plans that cuDNN offers for its
// convolutions and attentions, into the artifacts of the calling thread's scope (device/artifacts.h); all
// threads work. `names`: the implementation of each node, in order(). For a target
// that is not present: choices that need timing stay open, and so do nodes of sizes that the symbols do not
// tell.
// "", or why nothing was compiled.
std::string compile_cuda_kernels(const ir::Graph& graph, const std::vector<std::string>& names,
                                 const SymbolValues& sizes, const device::Target& target);

// Where a graph at these sizes needs more than `most` different generated kernels, has them made in a form
// that groups of other sizes share, for the plan of the calling thread's scope; before anything is prepared
// or compiled for it. Needs no GPU.
void limit_cuda_kernels(const ir::Graph& graph, const std::vector<std::string>& names,
                        const SymbolValues& sizes, const device::Target& target, size_t most);

// For `pelton doctor`: each NVIDIA library with its version, or why it is off.
struct LibraryReport {
  std::string name, version, off;  // `off` empty: usable
};
std::vector<LibraryReport> cuda_libraries();

}  // namespace pelton::backend
