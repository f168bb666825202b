// SPDX-License-Identifier: Apache-2.0
// The importer of ONNX models, from the wire format to the verified graph.
#include "fuzz/fuzz.h"
#include "onnx/import/import.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return pelton::fuzz::feed(data, size,
                            [](std::string_view file) { pelton::onnx::import_bytes(file, nullptr, ""); });
}
