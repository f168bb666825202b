// SPDX-License-Identifier: Apache-2.0
// Checked calls of CUDA and its libraries. An error names the call that failed and what the library says of
// it.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <nvrtc.h>

#include <string_view>

#include "base/error.h"

namespace pelton::backend::cuda {

// out_of_memory, no_device, driver (missing, too old), device_lost (the process must end: nothing more runs
// on that GPU) or, for anything else, driver. `what` goes in front: "no 1024 bytes for ...".
[[noreturn]] void fail_cuda(cudaError_t error, std::string_view call, std::string_view what = {});
[[noreturn]] void fail_cublas(cublasStatus_t status, std::string_view call);
[[noreturn]] void fail_cudnn(cudnnStatus_t status, std::string_view call);

inline void check(cudaError_t error, std::string_view call) {
  if (error != cudaSuccess) [[unlikely]]
    fail_cuda(error, call);
}
inline void check(cublasStatus_t status, std::string_view call) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    fail_cublas(status, call);
}
inline void check(cudnnStatus_t status, std::string_view call) {
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]]
    fail_cudnn(status, call);
}

}  // namespace pelton::backend::cuda

// PELTON_CUDA(cudaMemsetAsync(p, 0, n, stream)); any of the three status types.
#define PELTON_CUDA(call) ::pelton::backend::cuda::check((call), #call)
