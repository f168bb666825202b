// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/conv/cudnn_machine.h"

#include <array>
#include <map>
#include <mutex>
#include <string_view>

#include "backend/cuda/libraries.h"
#include "base/cat.h"

namespace pelton::backend::cuda {
namespace {

struct Known {
  int sm, multiprocessors;
  const char *product, *properties;
};
// Properties as cuDNN 9.19 writes them on such a GPU (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION).
constexpr std::array<Known, 1> kKnown = {
    {{90, 132, "NVIDIA H200",
      R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
      R"("multiProcessorCount":132,"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
      R"("maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,)"
      R"("maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":6,"isTccDriver":0,)"
      R"("supportCoopLaunch":1,"totalGlobalMem":150109880320,"smClockRateKHz":1980000,)"
      R"("memClockRateKHz":3201000,"l2CacheSize":62914560,"cudaDeviceId":0,"deviceVer":900,)"
      R"("driverVer":13000,"deviceName":"NVIDIA H200"})"}}};

std::string name_of(std::string_view product, int multiprocessors) {
  return cat("cudnn ", cudnn().cudnnGetVersion(), " ", product, " ", multiprocessors);
}

}  // namespace

CudnnMachine cudnn_machine() {
  static auto* const names = new std::map<int, std::string>;  // by device
  static std::mutex mutex;
  int device = 0;
  PELTON_CUDA(cudaGetDevice(&device));
  CudnnMachine out;
  out.handle = cudnn_handle(nullptr);
  std::lock_guard lock(mutex);
  std::string& name = (*names)[device];
  if (name.empty()) {
    cudaDeviceProp p{};
    PELTON_CUDA(cudaGetDeviceProperties(&p, device));
    name = name_of(p.name, p.multiProcessorCount);
  }
  out.name = name;
  return out;
}

std::optional<CudnnMachine> absent_cudnn_machine(const device::Target& target, std::string& why) {
  if (why = missing_cudnn(); !why.empty()) return {};
  for (const Known& k : kKnown) {
    if (k.sm != target.sm) continue;
    const std::string_view text = k.properties;
    DescriptorHandle d;
    const CudnnTable& c = cudnn();
    if (c.cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, d.out()) !=
            CUDNN_STATUS_SUCCESS ||
        c.cudnnBackendSetAttribute(d.get(), CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                   static_cast<int64_t>(text.size()), text.data()) != CUDNN_STATUS_SUCCESS ||
        c.cudnnBackendFinalize(d.get()) != CUDNN_STATUS_SUCCESS) {
      why = cat("cuDNN ", c.cudnnGetVersion(), " makes no plans for a GPU that is not here");
      return {};
    }
    return CudnnMachine{nullptr, std::make_shared<const DescriptorHandle>(std::move(d)),
                        name_of(k.product, k.multiprocessors)};
  }
  why = cat("the properties of a GPU of ", target.name, " are not known here");
  return {};
}

}  // namespace pelton::backend::cuda
