// SPDX-License-Identifier: Apache-2.0
// Models from what the command line names: a file, the folder of a training run, or a built-in model.
#pragma once

#include "register/model.h"

namespace pelton::cli {

bool is_zoo(std::string_view name);
bool is_plan_file(const std::string& name);

// A run folder gives its best checkpoint, or the newest where none is best. "zoo:resnet50" is the built-in
// model of that name, "zoo:vit,layers=4,size=64" the same with other options; its weights are random, the
// same each time.
Model model_of(const std::string& name, const CompileOptions& options);
// A plan file as it is, a model compiled.
std::shared_ptr<const runtime::Plan> plan_of(const std::string& name, const device::Target& target,
                                             const CompileOptions& options);

// Before the work that makes `output`: fails now where it could not be written at the end, or where it is the
// file that the work reads.
void require_output(const std::string& output, const std::string& input);

}  // namespace pelton::cli
