// SPDX-License-Identifier: Apache-2.0
// Pipelines in plans: what compile, run and serve share.
#pragma once

#include <memory>
#include <string>

#include "register/model.h"
#include "runtime/pictures.h"

namespace pelton::cli {

// Compiles the tensor part of a pipeline ("[INPUT=]FILE") for an input of a plan's graph. Without a name the
// input is the only one that pictures fit.
std::shared_ptr<const runtime::Preprocess> compile_preprocess(const ir::Graph& model,
                                                              const std::string& pipeline,
                                                              const device::Target& target,
                                                              const CompileOptions& options);

// Null for a model, and for a plan without preprocessing.
std::shared_ptr<const runtime::Preprocess> find_preprocess(const std::string& path);
std::shared_ptr<const runtime::PictureInput> open_pictures(const std::string& path,
                                                           const device::Target& target);

}  // namespace pelton::cli
