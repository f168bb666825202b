// SPDX-License-Identifier: Apache-2.0
// Runs a kernel on host tensors, statement by statement; the oracle of the emitters.
#pragma once

#include "codegen/kernel.h"
#include "tensor/tensor.h"

namespace pelton::codegen {

// `inputs` one an input buffer; returns one tensor an output buffer. Scalars of f32, f16 and bf16 compute in
// f32, reductions in f32 as well. An index outside its buffer is an internal error.
std::vector<Tensor> interpret(const Kernel& kernel, const std::vector<Tensor>& inputs,
                              const SymbolValues& sizes);

}  // namespace pelton::codegen
