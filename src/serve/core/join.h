// SPDX-License-Identifier: Apache-2.0
// How the inputs of several requests become one tensor, and how ragged outputs come apart again.
#pragma once

#include <span>

#include "serve/core/engine.h"

namespace pelton::serve {

// Whether two requests may share an execution: the same inputs, equal in shape but for the first dimension;
// ragged inputs may differ.
bool can_share(const ModelConfig& config, const Request& a, const Request& b);

// Along the first dimension, which becomes `rows`. One request: no copy.
TensorValue join_rows(std::span<const RequestPtr> requests, const std::string& name, int64_t rows);
// All elements in one dimension.
TensorValue join_flat(std::span<const RequestPtr> requests, const std::string& name);
// How many bytes join_padded would make; nullopt: beyond any count.
std::optional<size_t> padded_bytes(std::span<const RequestPtr> requests, const std::string& name,
                                   int64_t rows);
// Along the first dimension, the others as large as the largest, filled with `padding`.
TensorValue join_padded(std::span<const RequestPtr> requests, const std::string& name, int64_t rows,
                        double padding);
TensorValue make_batch_input(const BatchInput& b, std::span<const RequestPtr> requests);
// Moves the output from `outputs` to the responses, each with the shape of its request's source input.
void scatter_output(const BatchOutput& b, BatchRun& batch, std::vector<TensorValue>& outputs);

}  // namespace pelton::serve
