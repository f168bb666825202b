// SPDX-License-Identifier: Apache-2.0
// The GPU that cuDNN makes plans for: the current one, or one that is not here, from its properties alone.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backend/cuda/handles.h"
#include "device/target.h"

namespace pelton::backend::cuda {

struct CudnnMachine {
  cudnnHandle_t handle = nullptr;                      // null: the GPU is not here
  std::shared_ptr<const DescriptorHandle> properties;  // then
  // Version of the library, GPU model and its multiprocessors: plans of one such machine serve any other.
  std::string name;
};

CudnnMachine cudnn_machine();  // of the current GPU
// What stands for all GPUs of the target's architecture. None, and why, where the library is missing or older
// than 9.8, or the properties of such a GPU are not known here.
std::optional<CudnnMachine> absent_cudnn_machine(const device::Target& target, std::string& why);

}  // namespace pelton::backend::cuda
