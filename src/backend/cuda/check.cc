// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/check.h"

#include "backend/cuda/libraries.h"

namespace pelton::backend::cuda {
namespace {

// The name of the function of a call as PELTON_CUDA saw it: "table.cudnnCreate(&h)" is "cudnnCreate".
std::string_view function_of(std::string_view call) {
  std::string_view name = call.substr(0, call.find('('));
  if (size_t dot = name.find_last_of(".>"); dot != name.npos) name = name.substr(dot + 1);
  return name;
}

ErrorCode code_of(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return ErrorCode::out_of_memory;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
      return ErrorCode::no_device;
    // After these the context is gone: every later call gives the same error.
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorAssert:
    case cudaErrorContained:
      return ErrorCode::device_lost;
    default:
      return ErrorCode::driver;
  }
}

const char* fix_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::out_of_memory:
      return "use smaller inputs or fewer contexts, or free memory of the GPU";
    case ErrorCode::no_device:
      return "use --device cpu, or --device auto";
    case ErrorCode::device_lost:
      return "start the process again; if it comes back, check the GPU with its vendor's tools";
    default:
      return "";
  }
}

}  // namespace

void fail_cuda(cudaError_t error, std::string_view call, std::string_view what) {
  (void)cudaGetLastError();  // an error that was reported is not reported again by a later call
  ErrorCode code = code_of(error);
  fail(code,
       cat(what, what.empty() ? "" : ": ", function_of(call), " failed: ", cudaGetErrorString(error), " (",
           cudaGetErrorName(error), ")"),
       "", fix_of(code));
}

void fail_cublas(cublasStatus_t status, std::string_view call) {
  ErrorCode code = status == CUBLAS_STATUS_ALLOC_FAILED       ? ErrorCode::out_of_memory
                   : status == CUBLAS_STATUS_EXECUTION_FAILED ? ErrorCode::device_lost
                                                              : ErrorCode::driver;
  fail(code, cat(function_of(call), " failed: ", cublas_lt().cublasLtGetStatusString(status)), "",
       fix_of(code));
}

void fail_cudnn(cudnnStatus_t status, std::string_view call) {
  char detail[512] = "";
  cudnn().cudnnGetLastErrorString(detail, sizeof detail);
  ErrorCode code = ErrorCode::driver;
  if (status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ||
      status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED)
    code = ErrorCode::out_of_memory;
  else if (status == CUDNN_STATUS_EXECUTION_FAILED)
    code = ErrorCode::device_lost;
  fail(
      code,
      cat(function_of(call), " failed: ", cudnn().cudnnGetErrorString(status), detail[0] ? ": " : "", detail),
      "", fix_of(code));
}

}  // namespace pelton::backend::cuda
