// SPDX-License-Identifier: Apache-2.0
// What training, evaluation and inference steps take and how it becomes what the model takes.
#pragma once

#include <vector>

#include "train/step.h"

namespace pelton::train {

// What the data gives for the model.
struct Given {
  std::vector<ir::ValueId> raw;  // one a model input
  ir::ValueId epoch, indices;    // where stages of a pipeline draw
};

// Appends the inputs of the model to the step's graph.
Given add_model_inputs(StepGraph& s, const Trainable& model, const StepOptions& o, const Dim& batch);
// The model's inputs from them: stages of a pipeline, then type, layout and normalisation.
std::vector<ir::ValueId> adapted(nn::Net& net, const Trainable& model, const StepOptions& o,
                                 const Given& given);
// The type of the target follows from the model's output, which a throw-away build tells.
ir::Type find_target_type(const Trainable& model, const StepOptions& o, const Dim& batch);
// The model's output, a large head grown. Smoothing spreads over the model's own classes.
ir::ValueId with_classes(ir::Builder& b, ir::ValueId y, const Trainable& model, const StepOptions& o);

}  // namespace pelton::train
