// SPDX-License-Identifier: Apache-2.0
// Inference of control ops: what they share, and the functions that rows in control.cc name.
#pragma once

#include <string_view>
#include <vector>

#include "ir/ops/common.h"
#include "ir/subgraph.h"

namespace pelton::ir {

// Types of inputs [first, end); an absent one is refused.
std::vector<Type> input_types(InferContext& c, size_t first, size_t end);
std::vector<Type> output_types(const Graph& g, size_t first, size_t end);
GraphPtr graph_attr(InferContext& c, std::string_view name);
// Whether the input may have exactly one element.
bool one_element(InferContext& c, size_t i);
void require_results(InferContext& c, const Graph& body, size_t expected, std::string_view constraint);

void infer_loop(InferContext& c);
void infer_scan(InferContext& c);
void infer_fused(InferContext& c);
std::vector<ValueId> decompose_fused(Builder& b, const Node& n);
double fused_flops(const Graph& graph, const Node& n, const std::vector<Dims>& inputs,
                   const std::vector<Dims>& outputs);

}  // namespace pelton::ir
