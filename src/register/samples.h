// SPDX-License-Identifier: Apache-2.0
// Samples of a model's inputs from a folder.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "tensor/tensor.h"

namespace pelton {

inline constexpr size_t kMostSamples = 1024;

// One list of tensors a sample, in the order of the graph's inputs. Entries are taken by name order, the
// first kMostSamples: X.npy where the graph has one input; X.npz with a member an input; folders with
// NAME.npy for each input. Everything else is left alone; a folder without samples is not_found.
std::vector<std::vector<Tensor>> load_samples(const std::string& folder, const ir::Graph& graph);

}  // namespace pelton
