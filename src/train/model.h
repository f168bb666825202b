// SPDX-License-Identifier: Apache-2.0
// What can be trained: a model by name, or the graph of an ONNX file whose initialisers become parameters.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/model.h"

namespace pelton::train {

class Trainable {
 public:
  virtual ~Trainable() = default;
  virtual std::string name() const = 0;
  virtual std::vector<nn::ModelInput> inputs() const = 0;
  // Appends the model to the net's graph; `inputs` have the batch as their first dim.
  virtual ir::ValueId build(nn::Net& net, const std::vector<ir::ValueId>& inputs) const = 0;
  virtual std::string output() const = 0;
  virtual int64_t class_axis() const { return 1; }
};

std::unique_ptr<Trainable> named_model(const std::string& name, const ir::Attrs& options);
// Float initialisers of rank 1 and more are parameters under their names; batch norms get statistics and
// their training form. The first dim of the inputs and of the first output must be one symbol, the batch;
// other open sizes of inputs are those of `samples`, by the input's name.
std::unique_ptr<Trainable> onnx_model(const std::string& path, const ir::Attrs& samples);

}  // namespace pelton::train
