// SPDX-License-Identifier: Apache-2.0
// Models from files or from the folder of a training run.
#pragma once

#include "register/model.h"

namespace pelton::cli {

// A run folder gives its best checkpoint, or the newest where none is best.
Model model_of(const std::string& path, const CompileOptions& options);

}  // namespace pelton::cli
