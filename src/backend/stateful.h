// SPDX-License-Identifier: Apache-2.0
// Kernels that keep memory from run to run.
#pragma once

#include "backend/kernel.h"

namespace pelton::backend {

// Also a base of such kernels, on the CPU only. A context owns one block a node: zeros before the first run
// and after the context went back to its pool. run() of the kernel is not called.
class Stateful {
 public:
  virtual int64_t context_bytes() const = 0;
  virtual void run_with(const RunArgs& args, void* context) const = 0;

 protected:
  ~Stateful() = default;
};

}  // namespace pelton::backend
