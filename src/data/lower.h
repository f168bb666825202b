// SPDX-License-Identifier: Apache-2.0
// The tensor part of a pipeline as IR: what its stages do to decoded pictures, as nodes that any compiled
// graph can hold (a served plan, a training step).
#pragma once

#include "data/spec.h"
#include "ir/builder.h"

namespace pelton::data {

// Appends the stages of `spec` to pictures u8 [N, H, W, C]; stages that do not touch the picture are passed
// over. The result is what the host makes of the same pixels: equal bits under `match`, unless colour stages
// or a picture smaller than its crop come in, else within 1e-3 of a level (before normalisation). A random
// stage, and one that has no IR form, is a usage error that names it.
ir::ValueId lower_stages(ir::Builder& b, const PipelineSpec& spec, ir::ValueId pictures);

// The evaluation form of a pipeline as a graph of its own: input "image" u8 [N, H, W, C] with N, H and W
// open, result `output` [N, C, h, w] or [N, h, w, C].
ir::Graph lower_pipeline(const PipelineSpec& spec, const std::string& output);

}  // namespace pelton::data
