// SPDX-License-Identifier: Apache-2.0
// Weights from files into the slots of a graph, by name.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "tensor/tensor.h"

namespace pelton::train {

// Tensors of a .safetensors, .npz or .onnx file (its initialisers), or of the newest checkpoint of a run
// folder.
std::map<std::string, Tensor> read_weights(const std::string& path);
void write_weights(const std::string& path,
                   const std::map<std::string, Tensor>& tensors);  // .safetensors, .npz

struct LoadReport {
  int64_t loaded = 0;
  std::vector<std::string> fresh;   // left at their initial value by pattern
  std::vector<std::string> unused;  // in the file, not in the model
};

// Sets the initial values of parameters and statistics. A name may stand in the file below a prefix that all
// share ("module.", "model."). Every slot must be found with its shape unless a pattern of `fresh` matches
// it; the error lists what is missing and what does not fit.
LoadReport load_weights(ir::Graph& graph, const std::map<std::string, Tensor>& tensors,
                        const std::vector<std::string>& fresh, const std::string& where);

}  // namespace pelton::train
