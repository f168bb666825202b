// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/handles.h"

#include <map>
#include <mutex>

#include "backend/cuda/libraries.h"

namespace pelton::backend::cuda {

void free_cublas_lt(cublasLtHandle_t handle) {
  cublas_lt().cublasLtDestroy(handle);
}
void free_matmul(cublasLtMatmulDesc_t descriptor) {
  cublas_lt().cublasLtMatmulDescDestroy(descriptor);
}
void free_layout(cublasLtMatrixLayout_t layout) {
  cublas_lt().cublasLtMatrixLayoutDestroy(layout);
}
void free_preference(cublasLtMatmulPreference_t preference) {
  cublas_lt().cublasLtMatmulPreferenceDestroy(preference);
}
void free_cudnn(cudnnHandle_t handle) {
  cudnn().cudnnDestroy(handle);
}
void free_descriptor(cudnnBackendDescriptor_t descriptor) {
  cudnn().cudnnBackendDestroyDescriptor(descriptor);
}

cublasLtHandle_t cublas_lt_handle() {
  // Kept until the process ends: the order in which libraries shut down is not known.
  static auto* const handles = new std::map<int, cublasLtHandle_t>;
  static std::mutex mutex;
  int device = 0;
  PELTON_CUDA(cudaGetDevice(&device));
  std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = (*handles)[device];
  if (!handle) PELTON_CUDA(cublas_lt().cublasLtCreate(&handle));
  return handle;
}

cudnnHandle_t cudnn_handle(cudaStream_t stream) {
  struct Pool {
    std::mutex mutex;
    std::multimap<int, cudnnHandle_t> free;  // by GPU; of threads that ended
  };
  static auto* const pool = new Pool;
  struct Mine {
    std::map<int, cudnnHandle_t> handles;
    ~Mine() {
      std::lock_guard lock(pool->mutex);
      for (auto& [device, handle] : handles) pool->free.emplace(device, handle);
    }
  };
  thread_local Mine mine;
  int device = 0;
  PELTON_CUDA(cudaGetDevice(&device));
  cudnnHandle_t& handle = mine.handles[device];
  if (!handle) {
    std::lock_guard lock(pool->mutex);
    if (auto it = pool->free.find(device); it != pool->free.end()) {
      handle = it->second;
      pool->free.erase(it);
    }
  }
  if (!handle) PELTON_CUDA(cudnn().cudnnCreate(&handle));
  PELTON_CUDA(cudnn().cudnnSetStream(handle, stream));
  return handle;
}

StreamHandle make_stream() {
  StreamHandle stream;
  PELTON_CUDA(cudaStreamCreateWithFlags(stream.out(), cudaStreamNonBlocking));
  return stream;
}

EventHandle make_event(bool timed) {
  EventHandle event;
  PELTON_CUDA(cudaEventCreateWithFlags(event.out(), timed ? cudaEventDefault : cudaEventDisableTiming));
  return event;
}

OnDevice::OnDevice(int ordinal) {
  PELTON_CUDA(cudaGetDevice(&before_));
  if (before_ != ordinal) PELTON_CUDA(cudaSetDevice(ordinal));
}

OnDevice::~OnDevice() {
  int now = before_;
  (void)cudaGetDevice(&now);
  if (now != before_) (void)cudaSetDevice(before_);
}

LoadedKernel load_kernel(const std::vector<char>& cubin, const char* entry) {
  LoadedKernel out;
  PELTON_CUDA(cudaLibraryLoadData(out.module.out(), cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  PELTON_CUDA(cudaLibraryGetKernel(&out.kernel, out.module.get(), entry));
  return out;
}

void launch(cudaKernel_t kernel, const Launch& how, void** arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(how.blocks);
  config.blockDim = dim3(how.block);
  config.dynamicSmemBytes = how.shared_bytes;
  config.stream = how.stream;
  config.attrs = &attribute;
  config.numAttrs = how.waits_itself ? 1 : 0;
  PELTON_CUDA(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), arguments));
}

}  // namespace pelton::backend::cuda
