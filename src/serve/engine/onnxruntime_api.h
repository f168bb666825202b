// SPDX-License-Identifier: Apache-2.0
// The C interface of ONNX Runtime as far as the server uses it: a published table of functions that only ever
// grows at its end, so that places in it are stable.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tensor/dim.h"
#include "tensor/dtype.h"

namespace pelton::serve {

class OrtLibrary {
 public:
  explicit OrtLibrary(const std::string& file);
  OrtLibrary(const OrtLibrary&) = delete;

  using Status = void*;  // null: done
  using Handle = void*;  // environment, session, options, value, ...

  enum Place {
    kGetErrorMessage = 2,
    kCreateEnv = 3,
    kCreateSession = 7,
    kRun = 9,
    kCreateSessionOptions = 10,
    kSetSessionGraphOptimizationLevel = 23,
    kSetIntraOpNumThreads = 24,
    kSetInterOpNumThreads = 25,
    kSessionGetInputCount = 30,
    kSessionGetOutputCount = 31,
    kSessionGetInputTypeInfo = 33,
    kSessionGetOutputTypeInfo = 34,
    kSessionGetInputName = 36,
    kSessionGetOutputName = 37,
    kCreateTensorAsOrtValue = 48,
    kCreateTensorWithDataAsOrtValue = 49,
    kGetTensorMutableData = 51,
    kFillStringTensor = 52,
    kGetStringTensorDataLength = 53,
    kGetStringTensorContent = 54,
    kCastTypeInfoToTensorInfo = 55,
    kGetTensorElementType = 60,
    kGetDimensionsCount = 61,
    kGetDimensions = 62,
    kGetTensorShapeElementCount = 64,
    kGetTensorTypeAndShape = 65,
    kCreateCpuMemoryInfo = 69,
    kAllocatorFree = 76,
    kGetAllocatorWithDefaultOptions = 78,
    kReleaseEnv = 92,
    kReleaseStatus = 93,
    kReleaseMemoryInfo = 94,
    kReleaseSession = 95,
    kReleaseValue = 96,
    kReleaseTypeInfo = 98,
    kReleaseTensorTypeAndShapeInfo = 99,
    kReleaseSessionOptions = 100,
  };

  // Calls the function at a place; an error of the library becomes a plugin error.
  template <class... Args>
  void call(Place place, Args... args) const {
    check(reinterpret_cast<Status (*)(Args...)>(table_[place])(args...));
  }
  // An owner that gives its handle back to the function at `place`.
  std::shared_ptr<void> own(Handle handle, Place place) const {
    return {handle, [release = reinterpret_cast<void (*)(Handle)>(table_[place])](Handle h) { release(h); }};
  }
  const std::string& version() const { return version_; }

  struct Info {
    DType dtype;
    Dims dims;  // -1: open
  };
  // Of a handle to type and shape; bad_type for a type that the server lacks.
  Info info(Handle type_and_shape, const std::string& name) const;
  static int element_type(DType t);

  Handle environment() const { return environment_.get(); }
  Handle cpu_memory() const { return cpu_memory_.get(); }
  Handle allocator() const { return allocator_; }

 private:
  void check(Status status) const;

  void* const* table_ = nullptr;
  std::string version_;
  std::shared_ptr<void> environment_, cpu_memory_;
  Handle allocator_ = nullptr;
};

}  // namespace pelton::serve
