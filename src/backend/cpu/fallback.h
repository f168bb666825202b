// SPDX-License-Identifier: Apache-2.0
// Kernels that take what a library call does not.
#pragma once

#include "backend/kernel.h"

namespace pelton::backend::cpu {

// For a contraction or a fused node around one: the own contraction kernel, then the rest of the body.
std::unique_ptr<Kernel> prepare_fallback(const Instance& instance, const device::Target& target);
// A single conv, conv_transpose or matmul on own loops, any types and sizes. refuse_own says why not.
std::string refuse_own_contraction(const ir::Graph& graph, ir::NodeId node);
std::unique_ptr<Kernel> prepare_own_contraction(const Instance& instance, const device::Target& target);
// A fused node run node by node.
std::unique_ptr<Kernel> prepare_body(const Instance& instance, const device::Target& target);

}  // namespace pelton::backend::cpu
