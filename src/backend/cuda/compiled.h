// SPDX-License-Identifier: Apache-2.0
// Kernels from CUDA C++ text, compiled by NVRTC: once a process for each text and GPU, and kept with the plan
// and on disk for the next one (kept.h), under text, architecture, compiler and Pelton version.
#pragma once

#include <memory>
#include <string>

#include "backend/cuda/handles.h"

namespace pelton::backend::cuda {

// The kernel `entry` of `text` on the current GPU. Any thread; threads that want the same text wait for one
// compilation.
std::shared_ptr<const LoadedKernel> compiled(const std::string& text, const std::string& entry, int sm);

// Needs no GPU. An error of the compiler is an internal one: texts are ours.
std::string compile_cubin(const std::string& text, int sm);

}  // namespace pelton::backend::cuda
