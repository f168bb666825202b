// SPDX-License-Identifier: Apache-2.0
// Which GPUs and NVIDIA libraries this process can use.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "backend/cuda.h"
#include "backend/cuda/implementations.h"
#include "backend/cuda/libraries.h"

namespace pelton::backend {
namespace {

constexpr int kOldestSm = 90;  // what kernels and generated code are built and tested for

std::string version_text(int v) {
  return cat(v / 1000, ".", v % 1000 / 10);
}

// Of CUDA that the driver serves; 0: there is no driver. The runtime knows none of drivers that it cannot
// use.
int driver_version() {
  int version = 0;
  if (cudaDriverGetVersion(&version) == cudaSuccess && version > 0) return version;
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver) return 0;
  const auto ask = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDriverGetVersion"));
  if (!ask || ask(&version) != 0) version = 0;
  dlclose(driver);
  return version;
}

}  // namespace

std::string cuda::why_too_old(int ordinal, std::string_view product, int major, int minor) {
  if (major * 10 + minor >= kOldestSm) return {};
  return cat("GPU ", ordinal, " (", product, ") has compute capability ", major, ".", minor,
             ", this build needs ", kOldestSm / 10, ".", kOldestSm % 10);
}

std::vector<device::Target> cuda_devices(std::string& why) {
  why.clear();
  int count = 0;
  const int driver = driver_version();
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    if (driver == 0)
      why = "there is no NVIDIA driver (libcuda.so.1)";
    else if (error == cudaErrorInsufficientDriver)
      why = cat("the NVIDIA driver serves CUDA ", version_text(driver), ", this build needs ",
                version_text(CUDART_VERSION));
    else if (error == cudaErrorNoDevice || error == cudaSuccess)
      why = "the NVIDIA driver finds no GPU";
    else
      why = cat("the NVIDIA driver fails: ", cudaGetErrorString(error));
    return {};
  }
  std::vector<device::Target> out;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, i) != cudaSuccess) {
      (void)cudaGetLastError();
      why = cat(why, why.empty() ? "" : "; ", "GPU ", i, " does not answer");
      continue;
    }
    if (const std::string old = cuda::why_too_old(i, p.name, p.major, p.minor); !old.empty()) {
      why = cat(why, why.empty() ? "" : "; ", old);
      continue;
    }
    device::Target t = device::cuda_target(p.major * 10 + p.minor);
    t.ordinal = i;
    t.product = p.name;
    t.memory_bytes = static_cast<int64_t>(p.totalGlobalMem);
    t.l2_bytes = p.l2CacheSize;
    t.multiprocessors = p.multiProcessorCount;
    out.push_back(std::move(t));
  }
  return out;
}

std::string cuda_device_uuid(int ordinal) {
  cudaDeviceProp p;
  if (cudaGetDeviceProperties(&p, ordinal) != cudaSuccess) {
    (void)cudaGetLastError();
    return {};
  }
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    const auto byte = static_cast<unsigned char>(p.uuid.bytes[i]);
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::vector<LibraryReport> cuda_libraries() {
  std::vector<LibraryReport> out;
  int runtime = 0;
  const int driver = driver_version();
  (void)cudaRuntimeGetVersion(&runtime);
  out.push_back({"NVIDIA driver", driver ? cat("CUDA ", version_text(driver)) : "",
                 driver ? "" : "libcuda.so.1 is not there"});
  out.push_back({"CUDA runtime", version_text(runtime), ""});
  LibraryReport lt{"cuBLASLt", "", cuda::missing_cublas_lt()};
  if (lt.off.empty()) {
    size_t v = cuda::cublas_lt().cublasLtGetVersion();
    lt.version = cat(v / 10000, ".", v % 10000 / 100, ".", v % 100);
  }
  out.push_back(std::move(lt));
  LibraryReport dnn{"cuDNN", "", cuda::missing_cudnn()};
  if (dnn.off.empty()) {
    size_t v = cuda::cudnn().cudnnGetVersion();
    dnn.version = cat(v / 10000, ".", v % 10000 / 100, ".", v % 100);
  }
  out.push_back(std::move(dnn));
  LibraryReport rtc{"NVRTC", "", cuda::missing_nvrtc()};
  if (rtc.off.empty()) {
    int major = 0, minor = 0;
    cuda::nvrtc().nvrtcVersion(&major, &minor);
    rtc.version = cat(major, ".", minor);
  }
  out.push_back(std::move(rtc));
  return out;
}

}  // namespace pelton::backend
