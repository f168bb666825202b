// SPDX-License-Identifier: Apache-2.0
// The families of CUDA implementations, each added by one call; register.cc fixes their order.
#pragma once

#include "backend/kernel.h"

namespace pelton::backend::cuda {

void add_conv(Registry& registry);            // convolutions with what follows them
void add_pool(Registry& registry);            // pooling, means of channels-last data
void add_squeeze_excite(Registry& registry);  // groups of passes/squeeze_excite.h
void add_attention(Registry& registry);       // with the views around it
// The device of a target, shared while it is in use.
std::shared_ptr<device::Device> open_device(const device::Target& target);

void add_contraction(Registry& registry);  // matmul on cuBLASLt
void add_generated(Registry& registry);    // groups and single nodes through the kernel IR
void add_gather(Registry& registry);

void add_norm(Registry& registry);     // norms and softmax over rows
void add_ranking(Registry& registry);  // topk, sort, arg_max, cumsum
void add_resample(Registry& registry);

}  // namespace pelton::backend::cuda
