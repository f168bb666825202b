// SPDX-License-Identifier: Apache-2.0
// Owners of CUDA objects: move-only, freed by their destructor, which never throws. Each belongs to the GPU
// that was current when it was made.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>
#include <vector>

#include "backend/cuda/check.h"

namespace pelton::backend::cuda {

// An owner of one value of type T (a pointer type), freed by `Free`; null: owns nothing.
template <class T, auto Free>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T value) : value_(value) {}
  Handle(Handle&& other) noexcept : value_(std::exchange(other.value_, T{})) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) reset(std::exchange(other.value_, T{}));
    return *this;
  }
  ~Handle() { reset(); }
  T get() const { return value_; }
  explicit operator bool() const { return value_ != T{}; }
  T* out() {  // for calls that write a new value
    reset();
    return &value_;
  }
  void reset(T value = T{}) {
    if (value_ != T{}) (void)Free(value_);
    value_ = value;
  }

 private:
  T value_{};
};

using StreamHandle = Handle<cudaStream_t, cudaStreamDestroy>;
using EventHandle = Handle<cudaEvent_t, cudaEventDestroy>;
using GraphHandle = Handle<cudaGraph_t, cudaGraphDestroy>;
using GraphExecHandle = Handle<cudaGraphExec_t, cudaGraphExecDestroy>;
using ModuleHandle = Handle<cudaLibrary_t, cudaLibraryUnload>;  // a loaded cubin

// Of cuBLASLt and cuDNN, through their tables.
void free_cublas_lt(cublasLtHandle_t handle);
void free_matmul(cublasLtMatmulDesc_t descriptor);
void free_layout(cublasLtMatrixLayout_t layout);
void free_preference(cublasLtMatmulPreference_t preference);
void free_cudnn(cudnnHandle_t handle);
void free_descriptor(cudnnBackendDescriptor_t descriptor);
using CublasLtHandle = Handle<cublasLtHandle_t, free_cublas_lt>;
using MatmulHandle = Handle<cublasLtMatmulDesc_t, free_matmul>;
using LayoutHandle = Handle<cublasLtMatrixLayout_t, free_layout>;
using PreferenceHandle = Handle<cublasLtMatmulPreference_t, free_preference>;
using CudnnHandle = Handle<cudnnHandle_t, free_cudnn>;
using DescriptorHandle = Handle<cudnnBackendDescriptor_t, free_descriptor>;

// The library handle to use on this thread for the current GPU, made on first use. cuBLASLt's serves any
// stream; cuDNN's is bound to `stream` by the call and belongs to the calling thread.
cublasLtHandle_t cublas_lt_handle();
cudnnHandle_t cudnn_handle(cudaStream_t stream);

StreamHandle make_stream();  // does not wait for the default stream
EventHandle make_event(bool timed = false);

// Makes a GPU current on this thread for as long as it lives, then the one before. The runtime does this
// around `prepare` and `run`; only code on threads of its own needs it.
class OnDevice {
 public:
  explicit OnDevice(int ordinal);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
};

// Loads a cubin and finds one kernel in it.
struct LoadedKernel {
  ModuleHandle module;
  cudaKernel_t kernel = nullptr;
};
LoadedKernel load_kernel(const std::vector<char>& cubin, const char* entry);

struct Launch {
  unsigned blocks = 1, block = 256;
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
  // The kernel starts while the one before it ends, and itself waits for that one (griddepcontrol.wait)
  // before it touches memory.
  bool waits_itself = false;
};
// `arguments`: addresses of the values of the parameters. Shared memory above 48 KiB must be allowed before.
void launch(cudaKernel_t kernel, const Launch& how, void** arguments);

}  // namespace pelton::backend::cuda
