// SPDX-License-Identifier: Apache-2.0
// Conditional nodes of the graph that a stream records, and what the kinds of control flow share.
#pragma once

#include <functional>

#include "backend/cuda/control/sizes.h"
#include "backend/cuda/own/host.h"
#include "ir/graph.h"

namespace pelton::backend::cuda {

// enqueue(stream) into what `stream` records. A conditional node is only a node of a graph: outside of a
// recording one is made, played and waited for.
void recorded(cudaStream_t stream, const std::function<void(cudaStream_t)>& enqueue);

cudaGraphConditionalHandle make_condition(cudaStream_t stream);

// Appends a conditional node to what the stream records; fill(i, stream) enqueues body i.
void add_conditional(cudaStream_t stream, cudaGraphConditionalHandle handle,
                     cudaGraphConditionalNodeType type, unsigned bodies,
                     const std::function<void(unsigned, cudaStream_t)>& fill);

// From device memory to device memory; nothing where both are the same.
void copy(void* to, const void* from, int64_t bytes, cudaStream_t stream);

bool same_form(const ir::Type& a, const ir::Type& b);
// "" if the node takes and yields plain tensors of sizes made of `symbols`, else the reason.
std::string refuse_plain(const ir::Graph& graph, ir::NodeId node, const Symbols& symbols);
// The sub-graph at the sizes of the instance.
ir::GraphPtr body_of(const Instance& instance, std::string_view attr);

}  // namespace pelton::backend::cuda
