// SPDX-License-Identifier: Apache-2.0
// cuBLASLt, cuDNN and NVRTC, opened at their first use: a run that needs none of them loads none of them, and
// the binary starts on a machine that has none. A table has the functions under their own names:
//   PELTON_CUDA(cudnn().cudnnBackendFinalize(descriptor));
// A library that is missing or lacks a function is a `driver` error that names the files tried. A function
// that a kernel needs and that is not listed yet is added to the list here.
#pragma once

#include <cublasLt.h>
#include <cudnn.h>
#include <nvrtc.h>

#include <string>

namespace pelton::backend::cuda {

#define PELTON_CUBLASLT_FUNCTIONS(X)      \
  X(cublasLtCreate)                       \
  X(cublasLtDestroy)                      \
  X(cublasLtGetVersion)                   \
  X(cublasLtGetStatusString)              \
  X(cublasLtMatmul)                       \
  X(cublasLtMatmulAlgoGetHeuristic)       \
  X(cublasLtMatmulAlgoCheck)              \
  X(cublasLtMatmulDescCreate)             \
  X(cublasLtMatmulDescDestroy)            \
  X(cublasLtMatmulDescSetAttribute)       \
  X(cublasLtMatmulPreferenceCreate)       \
  X(cublasLtMatmulPreferenceDestroy)      \
  X(cublasLtMatmulPreferenceSetAttribute) \
  X(cublasLtMatrixLayoutCreate)           \
  X(cublasLtMatrixLayoutDestroy)          \
  X(cublasLtMatrixLayoutSetAttribute)

#define PELTON_CUDNN_FUNCTIONS(X)  \
  X(cudnnCreate)                   \
  X(cudnnDestroy)                  \
  X(cudnnSetStream)                \
  X(cudnnGetVersion)               \
  X(cudnnGetErrorString)           \
  X(cudnnGetLastErrorString)       \
  X(cudnnBackendCreateDescriptor)  \
  X(cudnnBackendDestroyDescriptor) \
  X(cudnnBackendSetAttribute)      \
  X(cudnnBackendGetAttribute)      \
  X(cudnnBackendFinalize)          \
  X(cudnnBackendExecute)

#define PELTON_NVRTC_FUNCTIONS(X) \
  X(nvrtcVersion)                 \
  X(nvrtcGetErrorString)          \
  X(nvrtcCreateProgram)           \
  X(nvrtcDestroyProgram)          \
  X(nvrtcCompileProgram)          \
  X(nvrtcGetProgramLogSize)       \
  X(nvrtcGetProgramLog)           \
  X(nvrtcGetCUBINSize)            \
  X(nvrtcGetCUBIN)

#define PELTON_FUNCTION_POINTER(name) decltype(&::name) name = nullptr;
struct CublasLtTable {
  PELTON_CUBLASLT_FUNCTIONS(PELTON_FUNCTION_POINTER)
};
struct CudnnTable {
  PELTON_CUDNN_FUNCTIONS(PELTON_FUNCTION_POINTER)
};
struct NvrtcTable {
  PELTON_NVRTC_FUNCTIONS(PELTON_FUNCTION_POINTER)
};
#undef PELTON_FUNCTION_POINTER

// Any thread.
const CublasLtTable& cublas_lt();
const CudnnTable& cudnn();
const NvrtcTable& nvrtc();

// Empty if the library can be used here, else why not. For `refuse` of an implementation that has a rival;
// never throws.
std::string missing_cublas_lt();
std::string missing_cudnn();
std::string missing_nvrtc();

}  // namespace pelton::backend::cuda
