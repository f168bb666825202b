// SPDX-License-Identifier: Apache-2.0
// Inputs on which a fuzzer once found a fault: each must now end in an error that blames the file, or in a
// graph.
#include <doctest/doctest.h>

#include <filesystem>

#include "base/file.h"
#include "onnx/import/import.h"

using namespace pelton;

TEST_CASE("old findings of the importer") {
  int tried = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/fuzz/found/onnx_model")) {
    const std::string name = entry.path().string();
    CAPTURE(name);
    const std::string bytes = read_file(name);
    try {
      onnx::import_bytes(bytes, nullptr, "");
    } catch (const Error& e) {
      CHECK(e.code() != ErrorCode::internal);
    }
    ++tried;
  }
  CHECK(tried > 0);
}
