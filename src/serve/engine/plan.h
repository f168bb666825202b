// SPDX-License-Identifier: Apache-2.0
// The engine for plans and for ONNX models, which are compiled when they are loaded.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "runtime/pictures.h"
#include "serve/core/engine.h"

namespace pelton::serve {

// How a file becomes something that runs; given by whoever knows the compiler and the back ends. `shapes` and
// `precision` come from the model's parameters and matter only when a model is compiled.
struct PlanRequest {
  std::string path;
  std::map<std::string, std::string> shapes;  // "shape.NAME" -> 1x3x224x224, ranges min:opt:max
  std::string precision = "fp32";             // parameter "precision"
  int gpu = -1;                               // that it is to run on; -1: the CPU
  bool trusted = true;                        // false: a client sent it (runtime::LoadOptions)
};
using PlanLoader = std::function<std::shared_ptr<const runtime::Executable>(const PlanRequest&)>;
// The picture input of a plan file that has one, else null.
using PictureLoader = std::function<std::shared_ptr<const runtime::PictureInput>(const std::string& path)>;

// Plan files are read into private memory first, so that nobody who writes to them later can disturb a run;
// with `map_files` they are mapped as they are. An input that takes pictures is BYTES (one image file an
// element; what a configuration left out becomes), UINT8 pixels, or the finished tensor. `gpus`: those that
// instances may run on.
std::shared_ptr<const Backend> make_plan_backend(PlanLoader loader, bool map_files,
                                                 PictureLoader pictures = {}, std::vector<int> gpus = {});

}  // namespace pelton::serve
