// SPDX-License-Identifier: Apache-2.0
#include "serve/engine/onnxruntime_api.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/error.h"

namespace pelton::serve {
namespace {

constexpr uint32_t kVersion = 11;  // of the table: everything used here is older

struct Base {
  void* const* (*table)(uint32_t version);
  const char* (*version)();
};

struct Element {
  DType dtype;
  int type;
};
constexpr Element kElements[] = {
    {DType::f32, 1},  {DType::u8, 2},   {DType::i8, 3},     {DType::u16, 4},     {DType::i16, 5},
    {DType::i32, 6},  {DType::i64, 7},  {DType::string, 8}, {DType::boolean, 9}, {DType::f16, 10},
    {DType::f64, 11}, {DType::u32, 12}, {DType::u64, 13},   {DType::bf16, 16},
};

}  // namespace

OrtLibrary::OrtLibrary(const std::string& file) {
  // Stays loaded: its threads and its own statics do not survive an unload.
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) fail(ErrorCode::plugin, cat("cannot open ONNX Runtime: ", ::dlerror()), file);
  const auto base = reinterpret_cast<const Base* (*)()>(::dlsym(library, "OrtGetApiBase"));
  if (!base)
    fail(ErrorCode::plugin, "the library has no function OrtGetApiBase", file, "name libonnxruntime.so");
  version_ = base()->version();
  table_ = base()->table(kVersion);
  if (!table_) fail(ErrorCode::plugin, cat("ONNX Runtime ", version_, " is too old"), file);
  Handle handle = nullptr;
  call(kCreateEnv, 3 /* errors */, "pelton", &handle);
  environment_ = own(handle, kReleaseEnv);
  call(kCreateCpuMemoryInfo, 0, 0, &handle);
  cpu_memory_ = own(handle, kReleaseMemoryInfo);
  call(kGetAllocatorWithDefaultOptions, &allocator_);
}

void OrtLibrary::check(Status status) const {
  if (!status) return;
  const std::string message = reinterpret_cast<const char* (*)(Status)>(table_[kGetErrorMessage])(status);
  reinterpret_cast<void (*)(Status)>(table_[kReleaseStatus])(status);
  fail(ErrorCode::plugin, cat("ONNX Runtime: ", message));
}

OrtLibrary::Info OrtLibrary::info(Handle type_and_shape, const std::string& name) const {
  int type = 0;
  size_t rank = 0;
  call(kGetTensorElementType, type_and_shape, &type);
  call(kGetDimensionsCount, type_and_shape, &rank);
  std::vector<int64_t> dims(rank);
  call(kGetDimensions, type_and_shape, dims.data(), rank);
  for (const Element& e : kElements)
    if (e.type == type) return {e.dtype, Dims(dims.begin(), dims.end())};
  fail(ErrorCode::bad_type, cat("tensor '", name, "' has a type that the protocol lacks (", type, ")"));
}

int OrtLibrary::element_type(DType t) {
  for (const Element& e : kElements)
    if (e.dtype == t) return e.type;
  fail(ErrorCode::bad_type, cat("ONNX Runtime has no type ", t));
}

}  // namespace pelton::serve
