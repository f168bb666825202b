// SPDX-License-Identifier: Apache-2.0
// Device memory that kernels own besides their operands: weights re-ordered when a kernel is prepared. Runs
// take no memory; what a run needs is planned (Kernel::scratch_bytes).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "backend/cuda/handles.h"
#include "tensor/tensor.h"

namespace pelton::backend::cuda {

// Memory of the current GPU, 256-byte aligned and counted; out_of_memory names `what`, the bytes wanted and
// those free. free_device() takes what allocate_device() gave.
void* allocate_device(int64_t bytes, std::string_view what);
void free_device(void* memory) noexcept;
int64_t peak_device_bytes();  // the most that was allocated at once

// Memory of the GPU that is current when it is made; 256-byte aligned.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(int64_t bytes, std::string_view what);
  void* get() const { return memory_.get(); }
  template <class T>
  T* as() const {
    return static_cast<T*>(memory_.get());
  }
  int64_t bytes() const { return bytes_; }

 private:
  Handle<void*, free_device> memory_;
  int64_t bytes_ = 0;
};

// Copies; done when they return.
DeviceBuffer upload(const void* data, int64_t bytes, std::string_view what);
inline DeviceBuffer upload(const Tensor& t, std::string_view what) {
  return upload(t.data(), t.bytes(), what);
}

// The packed form of a constant, made by `make` unless some kernel alive holds it already: kernels for other
// batch sizes, contexts and plans with the same weight share it. `form` names the packing with everything it
// depends on ("krsc f16, 3x3"). Keyed by content, so the tensor need not stay alive.
std::shared_ptr<const DeviceBuffer> shared_packed(const Tensor& constant, std::string_view form,
                                                  const std::function<DeviceBuffer()>& make);

}  // namespace pelton::backend::cuda
