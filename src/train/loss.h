// SPDX-License-Identifier: Apache-2.0
// Losses and what evaluation counts, as nodes after a model's output.
#pragma once

#include <string>

#include "nn/net.h"

namespace pelton::train {

struct LossOptions {
  // cross_entropy (labels are classes), bce (logits against targets in 0..1), mse, l1 (output against
  // targets)
  std::string kind = "cross_entropy";
  double label_smoothing = 0;  // cross_entropy
  int64_t ignore = -100;       // label that counts for nothing
  // cross_entropy: targets are f32 [N, classes], shares of classes that sum to 1; a row of zeros counts for
  // nothing
  bool soft = false;
};

bool has_classes(const LossOptions& o);
// "label" of classes, "target" of values, by the kind.
std::string target_name(const LossOptions& o);
// Type of the target for an output of this type: labels lack the class axis, values and shares have the
// output's shape.
ir::Type target_type(const LossOptions& o, const ir::Type& output, int64_t class_axis);

struct Loss {
  ir::ValueId sum;     // f32 scalar, over the elements that count
  ir::ValueId count;   // f32 scalar: these elements
  ir::ValueId logits;  // [M, classes] (cross_entropy): one row an element
  ir::ValueId labels;  // [M], `ignore` where an element does not count
};
// `net.valid()` limits the rows that count.
Loss build_loss(nn::Net& net, ir::ValueId output, ir::ValueId target, int64_t class_axis,
                const LossOptions& o);
// Elements of the target that count, f32 scalar: Loss::count, before the model has run.
ir::ValueId count_elements(nn::Net& net, ir::ValueId target, const LossOptions& o);

// f32 scalars: elements whose class is the largest output, or among the five largest (ties count for the
// label).
ir::ValueId count_correct(nn::Net& net, const Loss& loss);
ir::ValueId count_top5(nn::Net& net, const Loss& loss);

}  // namespace pelton::train
