// SPDX-License-Identifier: Apache-2.0
// A sub-graph of control flow as kernels on the device, at exact sizes, its values in a piece of the outer
// node's scratch.
#pragma once

#include "backend/cuda/control/sizes.h"
#include "backend/cuda/own/host.h"
#include "ir/graph.h"

namespace pelton::backend::cuda {

// "" if every node of the graph has a kernel on the device and every size is made of `symbols`, else the
// reason.
std::string refuse_body(const ir::Graph& body, const device::Target& target, const Symbols& symbols);

class Body {
 public:
  // Of fixed sizes.
  Body(ir::GraphPtr body, const device::Target& target, int threads);
  int64_t scratch_bytes() const { return scratch_bytes_; }
  int64_t packed_bytes() const;  // of its kernels and constants
  int64_t output_bytes(size_t i) const { return outputs_[i].bytes; }
  // The input that output i is, or -1.
  int passed_on(size_t i) const { return outputs_[i].input; }
  // Enqueues the kernels. `inputs`: by input of the graph; yields where each output lies.
  std::vector<const void*> run(const std::vector<const void*>& inputs, std::byte* scratch,
                               cudaStream_t stream) const;

 private:
  struct Place {
    int input = -1, constant = -1;
    size_t block = SIZE_MAX;  // of the arena
    int64_t bytes = 0;
    bool absent = false;
  };
  struct Step {
    std::unique_ptr<Kernel> kernel;
    std::vector<Place> in, out;
    size_t scratch = SIZE_MAX;  // block
  };
  struct Constant {
    Tensor value;
    Packed memory;  // null where nothing reads it but in a form that a kernel has packed
  };
  void bring(const Place& place);  // onto the device, if it is a constant
  const void* at(const Place& place, const std::vector<const void*>& inputs, std::byte* scratch) const;

  ir::GraphPtr graph_;
  SymbolValues none_;  // sizes are fixed; kernels are prepared with it
  std::vector<Step> steps_;
  std::vector<Place> outputs_;
  std::vector<Constant> constants_;
  std::vector<int64_t> offsets_;  // by block
  int64_t scratch_bytes_ = 0;
};

}  // namespace pelton::backend::cuda
