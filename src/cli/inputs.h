// SPDX-License-Identifier: Apache-2.0
// Inputs of a run: from files by name, or made up at given sizes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/eval.h"
#include "ir/graph.h"
#include "register/model.h"

namespace pelton::cli {

// One value an input, from `files` (name to .npy or .pb, by what is in them). Missing and unknown names are
// usage errors that list the inputs. `values` are there already and have no file.
std::vector<ir::HostValue> load_inputs(const ir::Graph& graph,
                                       const std::map<std::string, std::string>& files,
                                       const std::map<std::string, ir::HostValue>& values = {});

// bad_shape if a loaded value has other sizes than `shapes` (name to 1x3x224x224; ranges are left alone) say.
void require_dims(const ir::Graph& graph, const std::vector<ir::HostValue>& values,
                  const std::map<std::string, std::string>& shapes);

// Sizes of all inputs: from `shapes` (name to 1x3x224x224), the batch (size of a first axis that may vary; 0:
// not given) and, for symbols still open, `optimum` or 1.
std::vector<Dims> choose_dims(const ir::Graph& graph, const std::map<std::string, std::string>& shapes,
                              int64_t batch, const std::map<std::string, int64_t>& optimum);

// Floats are normal (0, 1), integers and bools 0 or 1: valid as indices, lengths and masks of most models.
std::vector<ir::HostValue> random_inputs(const ir::Graph& graph, const std::vector<Dims>& dims,
                                         uint64_t seed);

// NAME of the file NAME.npy of each value: characters outside A-Za-z0-9._- become _, and a name that is then
// taken gets a number, so that no file stands for two values.
std::vector<std::string> file_names(const std::vector<std::string>& value_names);

// Misuse unless the value of the flag is finite and not negative: NaN as a tolerance would let everything
// pass.
void require_amount(double value, std::string_view flag);

// The shapes that a command passes on to compilation: those without a range as they are.
CompileOptions compile_options(const std::vector<std::string>& shapes, const std::string& precision);

}  // namespace pelton::cli
