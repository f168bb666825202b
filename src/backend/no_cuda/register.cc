// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda.h"

namespace pelton::backend {

void register_cuda(Registry&) {}

std::vector<device::Target> cuda_devices(std::string& why) {
  why = "this build has no CUDA back end";
  return {};
}

std::string compile_cuda_kernels(const ir::Graph&, const std::vector<std::string>&, const SymbolValues&,
                                 const device::Target&) {
  return "this build has no CUDA back end";
}

void limit_cuda_kernels(const ir::Graph&, const std::vector<std::string>&, const SymbolValues&,
                        const device::Target&, size_t) {}

std::string cuda_device_uuid(int) {
  return {};
}

std::vector<LibraryReport> cuda_libraries() {
  return {};
}

}  // namespace pelton::backend
