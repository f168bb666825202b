// SPDX-License-Identifier: Apache-2.0
// Backend "python": models of one class TritonPythonModel in model.py, each instance in a process of its own.
// A process that ends takes only the requests it was working on with it and is started again for the next.
#pragma once

#include <memory>
#include <string>

#include "serve/core/engine.h"
#include "serve/core/services.h"

namespace pelton::serve {

struct PythonOptions {
  std::string executable = "python3";  // with NumPy; a model may name its own by EXECUTION_ENV_PATH
  std::shared_ptr<ServerServices> services;
};

std::shared_ptr<const Backend> make_python_backend(PythonOptions options);

}  // namespace pelton::serve
