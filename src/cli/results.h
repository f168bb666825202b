// SPDX-License-Identifier: Apache-2.0
// Results of a run as tensors with names: items of sequences one by one.
#pragma once

#include <string>
#include <vector>

#include "ir/eval.h"

namespace pelton::cli {

struct ResultTensor {
  std::string name, type;  // "y", or "y/0", "y/1", ... of a sequence; an optional without a value has none
  std::string file;        // the same as the name of a file, without its ending
  Tensor tensor;
};
std::vector<ResultTensor> result_tensors(const ir::Graph& graph, const std::vector<ir::HostValue>& outputs);

}  // namespace pelton::cli
