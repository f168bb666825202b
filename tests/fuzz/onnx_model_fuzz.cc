// SPDX-License-Identifier: Apache-2.0
// The reader of ONNX model files.
#include "fuzz/fuzz.h"
#include "onnx/proto/model_view.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return pelton::fuzz::feed(data, size, [](std::string_view file) { pelton::onnx::parse_model(file); });
}
