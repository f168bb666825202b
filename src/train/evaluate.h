// SPDX-License-Identifier: Apache-2.0
// Evaluation: a program from build_eval_step over one epoch of a loader.
#pragma once

#include "train/loader.h"
#include "train/program.h"
#include "train/report.h"

namespace pelton::train {

// loss; with classes: accuracy, top5 (more than 5 classes), f1 (macro; up to 1024 classes); for lines of
// tokens perplexity. A loss that is not finite is a numeric error that names `update` and the first such
// node.
Values evaluate(Program& program, Loader& loader, int64_t classes, bool tokens, int64_t update);

// Counts of (true class, predicted class).
class Confusion {
 public:
  explicit Confusion(int64_t classes);
  void add(const Tensor& labels, const Tensor& predictions,
           int64_t rows);  // labels out of range count for nothing
  // Mean over the classes that occur, of 2 P R / (P + R).
  double macro_f1() const;

 private:
  int64_t classes_;
  std::vector<int64_t> counts_;
};

// Multiply-adds count two; nodes without a figure count nothing.
double step_flops(const ir::Graph& graph);

}  // namespace pelton::train
