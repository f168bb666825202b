// SPDX-License-Identifier: Apache-2.0
// ONNX files run by the real ONNX Runtime, where an operator asks for it: its shared library is named on the
// command line and opened then; no header of it is needed.
#pragma once

#include <memory>
#include <string>

#include "serve/core/engine.h"

namespace pelton::serve {

// plugin error if the file is not ONNX Runtime. Instances run on the CPU. Of the model's parameters,
// intra_op_thread_count and inter_op_thread_count are honoured.
std::shared_ptr<const Backend> open_onnxruntime_backend(const std::string& library);

}  // namespace pelton::serve
